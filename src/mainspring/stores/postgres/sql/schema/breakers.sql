-- Breakers that have counted something; a row is guarded by the lock of its bucket.

-- rev: the number of the row, which a writer must know to exchange the row. until: 0 while the breaker is closed. doc:
-- what mainspring/breakers/counting.py keeps there
create table {schema}.breakers (
    name text collate "C" primary key,
    rev bigint not null default 0,
    until bigint not null default 0,
    opened bigint not null default 0,
    doc text not null default ''
) with (fillfactor = 50);
