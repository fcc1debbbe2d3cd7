-- Workers, and the documents that the fleet shares.

-- limited: the worker may have rows in bucket_uses
create table {schema}.workers (
    id text primary key,
    number bigint not null,
    turn bigint not null default 0,
    lost boolean not null default false,
    limited boolean not null default false,
    started bigint not null,
    seen bigint not null,
    queues text[] not null,
    tasks text[] not null,
    lease bigint not null,
    info bytea not null
) with (fillfactor = 50);

-- Which worker leads a service of the fleet, until when, and how many workers it has counted.
create table {schema}.leads (
    service text primary key,
    worker text not null,
    until bigint not null,
    fleet bigint not null
) with (fillfactor = 50);

create table {schema}.documents (
    kind text collate "C" not null,
    name text collate "C" not null,
    version bigint not null,
    data bytea not null,
    primary key (kind, name)
);
