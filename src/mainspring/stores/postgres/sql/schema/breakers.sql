-- Breakers that have counted more than successes; a row is guarded by the lock of its bucket.

-- until: 0 while the breaker is closed. probing: a probe has begun while it is half open. counts, of a breaker with a
-- share: the beginnings of pieces of its window, with successes and failures in each. changed_by: the transaction that
-- opened or closed it or began to probe it
create table {schema}.breakers (
    name text collate "C" primary key,
    failures bigint not null default 0,
    calls bigint not null default 0,
    until bigint not null default 0,
    opened bigint not null default 0,
    probing boolean not null default false,
    tripped boolean not null default false,
    error text not null default '',
    counts jsonb not null default '[]',
    changed_by xid8
) with (fillfactor = 50);
