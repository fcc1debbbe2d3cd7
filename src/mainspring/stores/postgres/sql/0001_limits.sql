-- migration 1: what limits need
-- what the buckets of a name let through; set_size is what somebody set in place of the declared size
create table {schema}.limits (
    name text collate "C" primary key,
    kind text not null check (kind in ('concurrency', 'rate', 'smooth', 'breaker')),
    size bigint not null,
    per bigint not null,
    burst bigint not null,
    share bigint not null default 0,
    span bigint not null default 0,
    set_size bigint
);

-- the lock of a bucket, and what a rate remembers: tat is when a smooth one has all of its burst again, until blocked
-- nothing is let through
create table {schema}.buckets (
    name text collate "C" primary key,
    tat bigint not null default 0,
    blocked bigint not null default 0
) with (fillfactor = 50);

-- how many running jobs of a worker name a bucket; changed under the lock of the worker, counted under that of the bucket
create table {schema}.uses (
    bucket text collate "C" not null,
    worker text not null,
    n bigint not null check (n > 0),
    primary key (bucket, worker)
) with (fillfactor = 50);
create index uses_worker on {schema}.uses (worker);

-- places that are held outside of a claim, for a time
create table {schema}.guests (
    guest bytea not null,
    bucket text collate "C" not null,
    cost bigint not null,
    until bigint not null,
    primary key (guest, bucket)
);
create index guests_bucket on {schema}.guests (bucket, until);

-- what a worker (or, without a name, a guest) started in a bucket of a rate between two moments, which lie less than a
-- thousandth of its window apart
create table {schema}.starts (
    bucket text collate "C" not null,
    worker text not null,
    first bigint not null,
    last bigint not null,
    n bigint not null
) with (fillfactor = 70);
create index starts_bucket on {schema}.starts (bucket, last);

-- a gate that was found full, and a queue in which something waits for it
create table {schema}.waits (
    bucket text collate "C" not null,
    queue text not null,
    primary key (bucket, queue)
);

-- limits that were changed, and the bucket from which on lanes are still to be looked at again
create table {schema}.stirs (
    name text collate "C" primary key,
    bucket text collate "C" not null
);

-- lanes with keys that have ready jobs of a priority, in the order of their first; a row that is parked is not in that
-- order until somebody opens it. Two rows of one lane and priority are harmless, and so is one without jobs. Those of fair
-- keys have a vtime, the virtual time of their next claim
create table {schema}.lanes (
    id bigint generated always as identity primary key,
    seq bigint not null,
    priority integer not null,
    lane text collate "C" not null,
    grp text collate "C" not null,
    queue text not null,
    buckets text[] not null,
    parked_on text collate "C",
    parked_until bigint,
    vtime double precision
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);
create index lanes_lane on {schema}.lanes (lane, priority);
create index lanes_order on {schema}.lanes (grp, priority desc, seq) where parked_on is null;
create index lanes_parked on {schema}.lanes (parked_on, grp, priority desc, seq) where parked_on is not null;
create index lanes_until on {schema}.lanes (parked_until) where parked_until is not null;

-- a lane to claim from and its gates (null: nothing limits it), or a group of lanes with keys
create type {schema}.lane_v1 as (
    lane text, suspect boolean, buckets text[], costs bigint[], priority integer, seq bigint, keyed boolean
);
-- how a bucket stands: a start fits if room is at least its cost, or cap if that is less; unit is the most that it uses up
create type {schema}.room_v1 as (name text, kind text, size bigint, used bigint, room bigint, cap bigint, unit bigint);
-- jobs that somebody chose and locked, those of them that need a place in a short bucket, the rows of lanes that it looked
-- at, and the buckets that are locked by now
create type {schema}.picked_v1 as (ids bytea[], short bytea[], looked bigint[], locked text[], more boolean);
-- rows of lanes with keys: those that have something to hand out, all that were looked at; how the buckets stand that were
-- locked for them
create type {schema}.looked_v1 as (good bigint[], looked bigint[], locked text[], rooms {schema}.room_v1[], more boolean);
-- what a turn did about gates: had alone or shared; passed over, for they are full; those with room for all that it wants;
-- those that were roomy when it began, and the lanes left to claim from; the moment of which all this is said
create type {schema}.gated_v1 as (
    alone text[], shared text[], passed text[], roomy text[], ahead text[], lanes {schema}.lane_v1[], now bigint
);
create type {schema}.settled_v1 as (opened bigint[], next_at bigint);
create type {schema}.noted_v1 as (held text[], next_at bigint);
create type {schema}.line_v1 as (lane text, priority integer, seq bigint, grp text, queue text, buckets text[]);
