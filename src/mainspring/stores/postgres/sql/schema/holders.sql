-- Capacity that is held outside of a claim, for a time.

create table {schema}.holders (
    holder bytea not null,
    bucket text collate "C" not null,
    cost bigint not null,
    until bigint not null,
    token bigint not null default 0,
    since bigint not null default 0,
    info bytea not null default '',
    primary key (holder, bucket)
);
create index holders_bucket on {schema}.holders (bucket, until);

-- the last token that a bucket gave; given under the lock of the bucket
create table {schema}.holder_tokens (
    bucket text collate "C" primary key,
    token bigint not null
) with (fillfactor = 50);
create index holder_tokens_token on {schema}.holder_tokens (token);
