-- migration 1: what breakers need
-- how a breaker stands, if it was ever told of anything but success; guarded by the lock of its bucket. until: 0 while it is
-- closed. half: somebody has begun to probe it. counts, of one that goes by a share: the beginnings of parts of its window,
-- successes and failures in each. news: the transaction that opened or closed it or began to probe it
create table {schema}.breakers (
    name text collate "C" primary key,
    failures bigint not null default 0,
    calls bigint not null default 0,
    until bigint not null default 0,
    opened bigint not null default 0,
    half boolean not null default false,
    tripped boolean not null default false,
    error text not null default '',
    counts jsonb not null default '[]',
    news xid8
) with (fillfactor = 50);
