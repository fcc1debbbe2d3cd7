-- migration 1: tables, indexes and the types that travel between the functions
-- One live table; ended jobs move to finished (succeeded, cancelled) or dead. Bodies are bytea.
-- home is the lane without what befell the job; lane adds parked and suspect, so it cannot disagree with them.
create sequence {schema}.seq;

create table {schema}.jobs (
    id bytea primary key,
    state text not null check (state in ('blocked', 'scheduled', 'retrying', 'ready', 'running')),
    task text not null,
    queue text not null,
    home text collate "C" not null,
    parked boolean not null default false,
    crashes integer not null default 0,
    lane text collate "C" not null generated always as (
        home || case when parked then '?' || task else '' end || case when crashes > 0 and crashes >= crash_limit - 1 then '!' else '' end
    ) stored,
    priority integer not null,
    seq bigint not null default 0,
    due bigint,
    expires bigint,
    token bigint not null default 0,
    worker text,
    turn bigint,
    attempt integer not null default 0,
    epoch integer not null default 1,
    crash_limit integer not null,
    early boolean not null,
    deps integer not null default 0,
    ordered text,
    buckets text[],
    enqueued bigint not null,
    started bigint,
    progress bytea,
    record bytea not null,
    check ((state = 'running') = (worker is not null)),
    check ((state = 'blocked') = (deps > 0))
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

create index jobs_ready on {schema}.jobs (lane, priority desc, seq) where state = 'ready';
create index jobs_later on {schema}.jobs (due) where state in ('scheduled', 'retrying');
create index jobs_running on {schema}.jobs (worker, turn) where state = 'running';
create index jobs_ordered on {schema}.jobs (worker) where ordered is not null;
create index jobs_expiring on {schema}.jobs (expires) where expires is not null and state <> 'running';

create table {schema}.finished (
    id bytea not null,
    state text not null check (state in ('succeeded', 'cancelled')),
    reason text,
    task text not null,
    queue text not null,
    home text not null,
    parked boolean not null,
    lane text not null,
    priority integer not null,
    seq bigint not null,
    due bigint,
    expires bigint,
    token bigint not null,
    worker text,
    attempt integer not null,
    epoch integer not null,
    crashes integer not null,
    crash_limit integer not null,
    early boolean not null,
    ordered text,
    buckets text[],
    enqueued bigint not null,
    started bigint,
    finished bigint not null,
    run_us bigint not null,
    progress bytea,
    result bytea,
    error bytea,
    record bytea not null,
    check ((state = 'cancelled') = (reason is not null))
);
create index finished_id on {schema}.finished (id);

create table {schema}.dead (like {schema}.finished, check (state = 'dead' and reason is not null));
create index dead_id on {schema}.dead (id);

create table {schema}.attempts (
    job bytea not null,
    token bigint not null,
    epoch integer not null,
    attempt integer not null,
    worker text not null,
    started bigint not null,
    ended bigint not null,
    outcome text not null,
    error bytea,
    primary key (job, token)
);

create table {schema}.edges (
    parent bytea not null,
    child bytea not null,
    policy text not null check (policy in ('fail', 'ignore')),
    primary key (parent, child)
);
create index edges_child on {schema}.edges (child);

create table {schema}.buckets (
    name text collate "C" primary key,
    size integer not null
) with (fillfactor = 50);

-- one row per running job and bucket: the use of a bucket is their number, counted under the bucket's lock
create table {schema}.holds (
    bucket text collate "C" not null,
    job bytea not null,
    primary key (bucket, job)
);
create index holds_job on {schema}.holds (job);

create table {schema}.workers (
    id text primary key,
    number bigint not null,
    turn bigint not null default 0,
    lost boolean not null default false,
    started bigint not null,
    seen bigint not null,
    queues text[] not null,
    tasks text[] not null,
    lease bigint not null,
    info bytea not null
) with (fillfactor = 50);

create type {schema}.ack_v1 as (
    n integer, id bytea, token bigint, outcome text, "to" text, reason text, delay bigint, due bigint,
    result bytea, error bytea, refund boolean, park boolean, run_us bigint
);
create type {schema}.ending_v1 as (id bytea, state text, reason text, result bytea, error bytea, run_us bigint);
create type {schema}.fate_v1 as (id bytea, state text, reason text, charged boolean, due bigint);
create type {schema}.lane_v1 as (lane text, suspect boolean, buckets text[]);
