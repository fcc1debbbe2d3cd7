-- migration 1: what locks need of guests: a number, when they came, and what they say of themselves
alter table {schema}.guests
    add column token bigint not null default 0,
    add column since bigint not null default 0,
    add column info bytea not null default '';

-- the last number that came with places in a bucket; given under the lock of the bucket
create table {schema}.fences (
    bucket text collate "C" primary key,
    token bigint not null
) with (fillfactor = 50);
create index fences_token on {schema}.fences (token);
