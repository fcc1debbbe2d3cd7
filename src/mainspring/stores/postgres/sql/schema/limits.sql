-- Limits, their buckets, and the lanes that wait for capacity.

-- set_size: the size that an operator set in place of the declared size
create table {schema}.limits (
    name text collate "C" primary key,
    kind text not null check (kind in ({LIMIT_CONCURRENCY}, {LIMIT_RATE}, {LIMIT_SMOOTH}, {LIMIT_BREAKER})),
    size bigint not null,
    per bigint not null,
    burst bigint not null,
    share bigint not null default 0,
    span bigint not null default 0,
    set_size bigint
);

-- the lock of a bucket, and what a rate remembers. tat: when a smooth rate has its whole burst again ("theoretical
-- arrival time").
-- blocked_until: a rate lets nothing start until then
create table {schema}.buckets (
    name text collate "C" primary key,
    tat bigint not null default 0,
    blocked_until bigint not null default 0
) with (fillfactor = 50);

-- how many running jobs of a worker name a bucket; changed under the lock of the worker, counted under the lock of the
-- bucket
create table {schema}.bucket_uses (
    bucket text collate "C" not null,
    worker text not null,
    n bigint not null check (n > 0),
    primary key (bucket, worker)
) with (fillfactor = 50);
create index bucket_uses_worker on {schema}.bucket_uses (worker);

-- what a worker (or, with an empty name, a holder) started in a bucket of a rate between two moments, which lie less
-- than the {RATE_PIECES}th part of the window apart
create table {schema}.rate_starts (
    bucket text collate "C" not null,
    worker text not null,
    first bigint not null,
    last bigint not null,
    n bigint not null
) with (fillfactor = 70);
create index rate_starts_bucket on {schema}.rate_starts (bucket, last);

-- an unkeyed bucket that was found full, and a queue in which a job waits for it
create table {schema}.waiting_queues (
    bucket text collate "C" not null,
    queue text not null,
    primary key (bucket, queue)
);

-- limits that were changed, and the bucket from which on their lanes are still to be rechecked
create table {schema}.rechecks (
    name text collate "C" primary key,
    bucket text collate "C" not null
);

-- keyed lanes that have ready jobs of a priority, in the order of their first job. A row that waits for a bucket is not
-- in the order until it is rechecked. Two rows of one lane and priority are harmless, and so is a row without jobs.
-- Lanes of fair keys have a vtime, the virtual time of their next claim, and a step, by which a claim puts it back: one
-- over the weight of the key
create table {schema}.keyed_lanes (
    id bigint generated always as identity primary key,
    seq bigint not null,
    priority integer not null,
    lane text collate "C" not null,
    lane_set text collate "C" not null,
    queue text not null,
    buckets text[] not null,
    waits_for text collate "C",
    recheck_at bigint,
    vtime double precision,
    step double precision
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);
create index keyed_lanes_lane on {schema}.keyed_lanes (lane, priority);
create index keyed_lanes_order on {schema}.keyed_lanes (lane_set, priority desc, seq) where waits_for is null;
create index keyed_lanes_waiting on {schema}.keyed_lanes (waits_for, lane_set, priority desc, seq) where waits_for is not null;
create index keyed_lanes_recheck on {schema}.keyed_lanes (recheck_at) where recheck_at is not null;
create index keyed_lanes_fair on {schema}.keyed_lanes (lane_set, priority desc, vtime, seq)
    where waits_for is null and vtime is not null;

-- the virtual time that the fair keys of a queue have reached; changed under the lock of the bucket "*" and the queue's
-- name
create table {schema}.fair_clocks (
    queue text collate "C" not null,
    priority integer not null,
    vtime double precision not null,
    primary key (queue, priority)
) with (fillfactor = 50);

-- a lane to claim from and its unkeyed buckets (null: no limits), or a set of keyed lanes
create type {schema}.lane_v1 as (
    lane text, suspect boolean, buckets text[], costs bigint[], priority integer, seq bigint, keyed boolean
);
-- the capacity of a bucket: a start fits if available is at least its cost, or at least cap if that is less; unit is
-- the most that one start is charged
create type {schema}.capacity_v1 as (
    name text, kind text, size bigint, used bigint, available bigint, cap bigint, unit bigint
);
-- jobs that were chosen and locked, the rows of keyed lanes that were examined, the buckets that are locked by now
create type {schema}.picked_v1 as (ids bytea[], examined bigint[], locked text[], more boolean);
-- rows of keyed lanes: those that have a job to claim, all that were examined; the capacity of the buckets that were
-- locked for them
create type {schema}.examined_v1 as (
    eligible bigint[], examined bigint[], locked text[], capacities {schema}.capacity_v1[], more boolean
);
-- what a turn did about unkeyed buckets: locked exclusively or shared; skipped, because they are full; plentiful for
-- all that it wants; plentiful when it began (ahead), and the lanes left to claim from; the moment of all this
create type {schema}.limit_locks_v1 as (
    exclusive text[], shared text[], skipped text[], plentiful text[], ahead text[], lanes {schema}.lane_v1[], now bigint
);
create type {schema}.settled_v1 as (rechecked bigint[], next_at bigint);
create type {schema}.held_back_v1 as (queues text[], next_at bigint);
create type {schema}.lane_head_v1 as (lane text, priority integer, seq bigint, lane_set text, queue text, buckets text[]);
