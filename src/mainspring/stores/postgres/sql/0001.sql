-- migration 1: tables, indexes and the types that travel between the functions
-- One live table; ended jobs move to finished (succeeded, cancelled) or dead. Bodies are bytea. Fixed widths come first.
-- home is the lane without what befell the job; lane adds suspect and parked (see lane_of). It is no generated column:
-- the server would read that one's expression anew for every row that a claim updates, a fifth of the cost of a turn.
-- worker stays readable after an ack, so that its repeat is told "already"; a rescue forgets it.
create sequence {schema}.seq;

create table {schema}.meta (id uuid not null);
insert into {schema}.meta (id) values (gen_random_uuid());

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
    follows smallint not null default 0,
    early boolean not null,
    parked boolean not null default false,
    bound boolean not null default false,
    id bytea primary key,
    state text not null check (state in ('blocked', 'scheduled', 'retrying', 'ready', 'running')),
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
    check (state <> 'running' or worker is not null),
    check ((state = 'blocked') = (deps > 0))
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

create index jobs_ready on {schema}.jobs (lane, priority desc, seq) where state = 'ready';
create index jobs_later on {schema}.jobs (due, seq, state) where state in ('scheduled', 'retrying');
create index jobs_running on {schema}.jobs (worker, turn) where state = 'running';
create index jobs_ordered on {schema}.jobs (worker) where ordered is not null;
create index jobs_expiring on {schema}.jobs (expires) where expires is not null and state <> 'running';
-- bound: it counts for the depth of its queue
create index jobs_bound on {schema}.jobs (queue, enqueued, id) where bound and state <> 'running';

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
    follows smallint not null,
    early boolean not null,
    id bytea not null,
    state text not null check (state in ('succeeded', 'cancelled')),
    task text not null,
    queue text not null,
    home text not null,
    lane text not null,
    record bytea not null,
    worker text,
    started bigint,
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
    check ((state = 'cancelled') = (reason is not null))
) partition by range (finished);
create index finished_id on {schema}.finished (id);
create index finished_age on {schema}.finished (finished, state, drop_at);
create index finished_drop on {schema}.finished (drop_at) where drop_at is not null;

create table {schema}.dead (like {schema}.finished, check (state = 'dead' and reason is not null));
create index dead_id on {schema}.dead (id);
create index dead_age on {schema}.dead (finished, state, drop_at);
create index dead_drop on {schema}.dead (drop_at) where drop_at is not null;
create index dead_label on {schema}.dead ((coalesce(label, reason)));

create table {schema}.attempts (
    job bytea not null,
    token bigint not null,
    epoch integer not null,
    attempt integer not null,
    worker text not null,
    started bigint not null,
    ended bigint not null,
    outcome text not null,
    acked boolean not null,
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

-- who took a unique key last. Nothing is written when its time is over: the next to ask for the key looks
-- mode is keep for one that is held after its job succeeded too, or debounce, throttle, keep_last; span: for how long after
-- that, or (throttle) after a start, it counts. before: the job of the key that was started last. said: the enqueue
-- that replaced the job last
create table {schema}.keys (
    hash bytea primary key check (length(hash) = 16),
    job bytea,
    until bigint not null default 0,
    span bigint not null default 0,
    mode text not null default '',
    print bytea,
    before bytea,
    said bytea
) with (fillfactor = 70);
create index keys_job on {schema}.keys (job);

create table {schema}.marks (
    mark text collate "C" not null,
    job bytea not null,
    primary key (mark, job)
);
create index marks_job on {schema}.marks (job);

-- the follow-up jobs of a job, for as long as it is kept: a retry by hand may need them again
create table {schema}.follows (
    job bytea not null,
    state text not null check (state in ('succeeded', 'dead', 'cancelled')),
    n integer not null,
    id bytea not null check (length(id) = 16),
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
    primary key (job, state, n)
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

-- a queue without a row is open. declared: the settings that code declares; given: what somebody set over those
-- held: it hands out nothing; special: an enqueue has to look at it; bounded: what waits in it is counted
create table {schema}.queues (
    name text collate "C" primary key,
    mode text not null check (mode in ('open', 'paused', 'draining')),
    since bigint not null,
    disabled text check (disabled in ('hold', 'skip', 'reject')),
    disabled_at bigint not null default 0,
    disabled_by text not null default '',
    declared jsonb,
    given jsonb,
    settings jsonb generated always as (
        case when declared is not null or given is not null then coalesce(declared, '{}') || coalesce(given, '{}') end
    ) stored,
    held boolean generated always as (mode = 'paused' or disabled is not null) stored,
    special boolean generated always as (
        mode = 'draining' or coalesce(disabled, 'hold') <> 'hold' or declared is not null or given is not null
    ) stored,
    bounded boolean generated always as (
        coalesce((given ->> 'max_depth')::bigint, (declared ->> 'max_depth')::bigint, 0) > 0
    ) stored
);

create table {schema}.docs (
    kind text collate "C" not null,
    name text collate "C" not null,
    version bigint not null,
    data bytea not null,
    primary key (kind, name)
);

-- batches that were sent again: a first try that comes after that acts as a retry
create table {schema}.retried (
    batch bytea primary key,
    at bigint not null
);
create index retried_at on {schema}.retried (at);

create type {schema}.ack_v1 as (
    n integer, id bytea, token bigint, outcome text, "to" text, reason text, delay bigint, due bigint,
    result bytea, error bytea, label text, refund boolean, park boolean, slow bigint, spent jsonb,
    fault text, buckets jsonb, part text
);
create type {schema}.ending_v1 as (
    id bytea, state text, reason text, result bytea, error bytea, label text, note text, refund integer
);
create type {schema}.ended_v1 as (id bytea, epoch integer, state text);
create type {schema}.moved_v1 as (done bytea[], token bigint[], woken text[]);
create type {schema}.fate_v1 as (id bytea, state text, reason text, charged boolean, due bigint);
