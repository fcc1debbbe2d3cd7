-- What running attempts report, and what is kept of ended attempts.

create table {schema}.attempts (
    job bytea not null,
    token bigint not null,
    epoch integer not null,
    attempt integer not null,
    worker text not null,
    started bigint not null,
    ended bigint not null,
    ran bigint,
    outcome text not null,
    acked boolean not null,
    error bytea,
    primary key (job, token)
);

create table {schema}.progress (
    job bytea primary key,
    data bytea not null
) with (fillfactor = 70);

create table {schema}.logs (
    job bytea not null,
    n bigint not null,
    at bigint not null,
    level text not null,
    text bytea not null,
    primary key (job, n)
);

create table {schema}.items (
    job bytea not null,
    n bigint not null,
    data bytea not null,
    primary key (job, n)
);
