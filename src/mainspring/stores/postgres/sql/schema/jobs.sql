-- Jobs: one live table; ended jobs move to finished (succeeded, cancelled) or to dead. Bodies are bytea.
-- Columns of fixed width come first.

-- home: the lane by queue, slot, limits and keys; lane adds suspect and parked (see job_lane). lane is no generated
-- column: the server would evaluate the expression for every row that a claim updates, a fifth of the cost of a turn
-- worker: stays readable after an ack, so that a repeat of the ack is answered "already"; a rescue clears it
-- deps: the edges that the job waits for
-- followed: bits that tell for which ends the job has follow-up jobs, and whether it is a join
-- counted: the job counts for the depth of its queue
-- ordered: the reason of a cancel order for a running job
create table {schema}.jobs (
    seq bigint not null default 0,
    token bigint not null default 0,
    enqueued bigint not null,
    priority integer not null,
    attempt integer not null default 0,
    epoch integer not null default 1,
    crashes integer not null default 0,
    crash_limit integer not null,
    deps integer not null default 0,
    followed smallint not null default 0,
    early boolean not null,
    parked boolean not null default false,
    counted boolean not null default false,
    id bytea primary key,
    state text not null check (state in ({LIVE})),
    task text not null,
    queue text not null,
    home text collate "C" not null,
    lane text collate "C" not null,
    record bytea not null,
    worker text,
    due bigint,
    expires bigint,
    started bigint,
    turn bigint,
    keep bigint,
    key bytea,
    ordered text,
    buckets text[],
    costs bigint[],
    check (state <> {RUNNING} or worker is not null),
    check ((state = {BLOCKED}) = (deps > 0))
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

create index jobs_ready on {schema}.jobs (lane, priority desc, seq) where state = {READY};
create index jobs_later on {schema}.jobs (due, seq, state) where state in ({SCHEDULED}, {RETRYING});
create index jobs_running on {schema}.jobs (worker, turn) where state = {RUNNING};
create index jobs_ordered on {schema}.jobs (worker) where ordered is not null;
create index jobs_expiring on {schema}.jobs (expires) where expires is not null and state <> {RUNNING};
create index jobs_counted on {schema}.jobs (queue, enqueued, id) where counted and state <> {RUNNING};

-- partitioned by the day of the end, see prune.sql. drop_at: when a job with a keep of its own is pruned, or until when
-- its pruning is postponed
create table {schema}.finished (
    seq bigint not null,
    token bigint not null,
    enqueued bigint not null,
    finished bigint not null,
    priority integer not null,
    attempt integer not null,
    epoch integer not null,
    crashes integer not null,
    crash_limit integer not null,
    followed smallint not null,
    early boolean not null,
    id bytea not null,
    state text not null check (state in ({SUCCEEDED}, {CANCELLED})),
    task text not null,
    queue text not null,
    home text not null,
    lane text not null,
    record bytea not null,
    worker text,
    started bigint,
    ran bigint,
    result bytea,
    error bytea,
    expires bigint,
    keep bigint,
    drop_at bigint,
    key bytea,
    reason text,
    note text,
    label text,
    buckets text[],
    costs bigint[],
    check ((state = {CANCELLED}) = (reason is not null))
) partition by range (finished);
create index finished_id on {schema}.finished (id);
create index finished_age on {schema}.finished (finished, state, drop_at);
create index finished_drop on {schema}.finished (drop_at) where drop_at is not null;
create table {schema}.finished_rest partition of {schema}.finished default;

create table {schema}.dead (like {schema}.finished, check (state = {DEAD} and reason is not null));
create index dead_id on {schema}.dead (id);
create index dead_age on {schema}.dead (finished, state, drop_at);
create index dead_drop on {schema}.dead (drop_at) where drop_at is not null;
create index dead_label on {schema}.dead ((coalesce(label, reason)));

create table {schema}.edges (
    parent bytea not null,
    child bytea not null,
    policy text not null check (policy in (
        {EDGE_FAIL}, {EDGE_IGNORE}, {EDGE_SKIP}, {EDGE_WAIT}, {EDGE_FAILED}, {EDGE_DEAD}, {EDGE_MEMBER}, {EDGE_HOLD}
    )),
    primary key (parent, child)
);
create index edges_child on {schema}.edges (child);

create table {schema}.marks (
    mark text collate "C" not null,
    job bytea not null,
    primary key (mark, job)
);
create index marks_job on {schema}.marks (job);

-- the follow-up jobs of a job, for as long as the job is kept: a retry by hand may need them again
-- follows: the follow-up jobs of the follow-up job, as store_follow_ups reads them
create table {schema}.follow_ups (
    job bytea not null,
    state text not null check (state in ({FINAL})),
    n integer not null,
    id bytea not null check (length(id) = {ID_BYTES}),
    task text not null,
    queue text not null,
    home text not null,
    priority integer not null,
    delay bigint not null,
    run_at bigint,
    expires_in bigint,
    crash_limit integer not null,
    early boolean not null,
    keep bigint,
    marks text[] not null,
    record bytea not null,
    followed smallint not null,
    follows jsonb,
    primary key (job, state, n)
);

-- batches that were sent again: a first try that arrives after its retry acts as a retry
create table {schema}.retried_batches (
    batch bytea primary key,
    at bigint not null
);
create index retried_batches_at on {schema}.retried_batches (at);

create type {schema}.ack_v1 as (
    n integer, id bytea, token bigint, outcome text, "to" text, reason text, delay bigint, due bigint,
    result bytea, error bytea, label text, refund boolean, unstarted boolean, park boolean, slow bigint,
    spent jsonb, buckets jsonb, ran bigint, delays bigint[]
);
create type {schema}.ending_v1 as (
    id bytea, state text, reason text, result bytea, error bytea, label text, note text, refund integer, ran bigint
);
create type {schema}.ended_v1 as (id bytea, epoch integer, state text);
-- parents: whether one of the jobs is the parent of another job
create type {schema}.moved_v1 as (done bytea[], token bigint[], woken text[], parents boolean);
create type {schema}.taken_back_v1 as (id bytea, state text, reason text, charged boolean, due bigint);
