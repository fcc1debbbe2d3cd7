-- The schema: one section for each numbered migration. Statements are separated by ";".
-- Every table is "without rowid": the primary key is the table, so a read by key needs one search.

-- name: create_meta
create table if not exists mainspring_meta (
    namespace text not null primary key,
    version integer not null
) without rowid

-- name: set_version
insert or replace into mainspring_meta (namespace, version) values (?, ?)

-- name: migration_1
create table {t}counters (
    name text not null primary key,
    value integer not null
) without rowid;

insert into {t}counters (name, value) values ('seq', 0);

create table {t}jobs (
    id blob not null primary key check (typeof(id) = 'blob' and length(id) = 16),
    state text not null check (state in ({LIVE})),
    queue text not null,
    lane text not null,
    task text not null,
    priority integer not null,
    seq integer not null,
    due integer check (typeof(due) in ('integer', 'null')),
    expires integer check (typeof(expires) in ('integer', 'null')),
    token integer not null default 0,
    worker text,
    turn integer not null default 0,
    attempt integer not null default 0,
    epoch integer not null default 1,
    crashes integer not null default 0,
    crash_limit integer not null,
    early integer not null,
    enqueued integer not null,
    started integer,
    deps integer not null default 0,
    flags integer not null default 0,
    cancel_order text,
    buckets text,
    record blob not null
) without rowid;

create index {t}jobs_ready on {t}jobs (lane, priority desc, seq, expires, state) where state = {READY};
create index {t}jobs_later on {t}jobs (due, seq) where state in ({SCHEDULED}, {RETRYING});
create index {t}jobs_running on {t}jobs (worker) where state = {RUNNING};
create index {t}jobs_expiring on {t}jobs (expires) where expires is not null;
create index {t}jobs_cancel_ordered on {t}jobs (worker) where cancel_order is not null;

create table {t}finished (
    id blob not null primary key,
    state text not null,
    reason text,
    task text not null,
    queue text not null,
    lane text not null,
    priority integer not null,
    attempt integer not null,
    epoch integer not null,
    crashes integer not null,
    crash_limit integer not null,
    early integer not null,
    token integer not null,
    worker text,
    seq integer not null,
    enqueued integer not null,
    expires integer,
    started integer,
    finished integer not null,
    ran integer,
    buckets text,
    note text,
    result blob check (typeof(result) in ('blob', 'null')),
    error blob check (typeof(error) in ('blob', 'null')),
    record blob not null,
    check (
        (state = {SUCCEEDED} and reason is null) or (state = {CANCELLED} and reason in ({CANCELLED_REASONS}))
    )
) without rowid;

create index {t}finished_age on {t}finished (finished, state);

create table {t}dead (
    id blob not null primary key,
    state text not null check (state = {DEAD}),
    reason text not null check (reason in ({DEAD_REASONS})),
    task text not null,
    queue text not null,
    lane text not null,
    priority integer not null,
    attempt integer not null,
    epoch integer not null,
    crashes integer not null,
    crash_limit integer not null,
    early integer not null,
    token integer not null,
    worker text,
    seq integer not null,
    enqueued integer not null,
    expires integer,
    started integer,
    finished integer not null,
    ran integer,
    buckets text,
    note text,
    result blob check (typeof(result) in ('blob', 'null')),
    error blob check (typeof(error) in ('blob', 'null')),
    record blob not null
) without rowid;

create index {t}dead_age on {t}dead (finished, state);

create table {t}attempts (
    job blob not null,
    token integer not null,
    epoch integer not null,
    attempt integer not null,
    worker text not null,
    started integer not null,
    ended integer not null,
    ran integer,
    outcome text not null,
    acked integer not null,
    error blob check (typeof(error) in ('blob', 'null')),
    primary key (job, token)
) without rowid;

create table {t}logs (
    job blob not null,
    n integer not null,
    at integer not null,
    level text not null,
    text text not null,
    primary key (job, n)
) without rowid;

create table {t}progress (
    job blob not null primary key,
    data blob not null
) without rowid;

create table {t}edges (
    parent blob not null,
    child blob not null,
    policy text not null check (policy in ({EDGE_FAIL}, {EDGE_IGNORE})),
    primary key (parent, child)
) without rowid;

create index {t}edges_child on {t}edges (child);

create table {t}lanes (
    lane text not null primary key,
    base text not null,
    suspect integer not null,
    task text,
    buckets text
) without rowid;

create index {t}lanes_base on {t}lanes (base);

create table {t}buckets (
    name text not null primary key,
    size integer not null
) without rowid;

create table {t}job_holds (
    bucket text not null,
    job blob not null,
    token integer not null,
    primary key (bucket, job)
) without rowid;

create index {t}job_holds_job on {t}job_holds (job);

create table {t}workers (
    id text not null primary key,
    number integer not null,
    turn integer not null,
    lost integer not null,
    started integer not null,
    seen integer not null,
    queues text not null,
    tasks text not null,
    lease integer not null,
    info blob not null
) without rowid;

create table {t}documents (
    kind text not null,
    name text not null,
    version integer not null,
    data blob not null,
    primary key (kind, name)
) without rowid

-- name: migration_2
alter table {t}jobs add column keep integer;
alter table {t}finished add column drop_at integer;
alter table {t}finished add column keep integer;
alter table {t}dead add column keep integer;
alter table {t}dead add column label text;

create index {t}finished_drop on {t}finished (drop_at) where drop_at is not null;
create index {t}dead_label on {t}dead (coalesce(label, reason));

drop index {t}finished_age;
create index {t}finished_age on {t}finished (finished, state, drop_at);

drop index {t}jobs_later;
create index {t}jobs_later on {t}jobs (due, seq, state) where state in ({SCHEDULED}, {RETRYING});

-- one row for each job with a unique key. The job that took a key last (holds = 1) holds it while it is live and to the end
-- of its window. Nothing is written when that is over: the next job that asks for the key looks
create table {t}unique_keys (
    job blob not null primary key,
    hash blob not null check (typeof(hash) = 'blob' and length(hash) = 16),
    window_end integer not null,
    holds integer not null
) without rowid;

create unique index {t}unique_keys_held on {t}unique_keys (hash) where holds = 1;

create table {t}marks (
    mark text not null,
    job blob not null,
    primary key (mark, job)
) without rowid;

create index {t}marks_job on {t}marks (job);

-- the follow-up jobs of a job as msgpack, for as long as the job is kept: a retry by hand may need them again
create table {t}follow_ups (
    job blob not null,
    state text not null,
    n integer not null,
    data blob not null,
    primary key (job, state, n)
) without rowid;

create table {t}items (
    job blob not null,
    n integer not null,
    data blob not null,
    primary key (job, n)
) without rowid;

create table {t}queues (
    name text not null primary key,
    mode text not null,
    since integer not null
) without rowid

-- name: migration_3
-- batches of which a retry has arrived: a first try that arrives later counts as a retry too
create table {t}retried_batches (
    batch blob not null primary key,
    at integer not null
) without rowid

-- name: migration_4
-- limits by name. override: the size that a user set in place of the declared one. Declarations leave it alone
create table {t}limits (
    name text not null primary key,
    kind text not null,
    size integer not null,
    per integer not null,
    burst integer not null,
    share integer not null default 0,
    span integer not null default 0,
    override integer
) without rowid;

insert into {t}limits (name, kind, size, per, burst) select name, {LIMIT_CONCURRENCY}, size, 0, 0 from {t}buckets;
drop table {t}buckets;

update {t}jobs
set buckets = (select json_group_array(json_array(value ->> 0, '', 1)) from json_each({t}jobs.buckets))
where buckets is not null;
update {t}jobs set flags = flags | {FLAG_UNKEYED_ONLY} where flags & {FLAG_LIMITED};
update {t}finished
set buckets = (select json_group_array(json_array(value ->> 0, '', 1)) from json_each({t}finished.buckets))
where buckets is not null;
update {t}dead
set buckets = (select json_group_array(json_array(value ->> 0, '', 1)) from json_each({t}dead.buckets))
where buckets is not null;

-- the lane sets beside a base lane: a lane without keys is a lane set by itself, lanes with keys share one
create table {t}lane_sets (
    name text not null primary key,
    base text not null,
    suspect integer not null,
    task text,
    unkeyed_limits text,
    keyed integer not null
) without rowid;

create index {t}lane_sets_base on {t}lane_sets (base);

-- a running job that names unkeyed limits only uses them by its own row. Any other limited job has a row in job_holds for
-- each of its buckets
create index {t}jobs_unkeyed on {t}jobs (lane, state, flags) where state = {RUNNING} and flags & {FLAG_UNKEYED_ONLY};
drop index {t}job_holds_job;
delete from {t}job_holds;

insert into {t}lane_sets (name, base, suspect, task, unkeyed_limits, keyed)
select
    lane, base, suspect, task,
    (select json_group_array(value ->> 0) from json_each({t}lanes.buckets)), 0
from {t}lanes;
update {t}lane_sets set unkeyed_limits = null where unkeyed_limits = '[]';
drop table {t}lanes;

-- lanes with keys, a row for each priority (rank: its negative). seq: no job of the lane has a lower one.
-- parked_on: empty for an open lane, else the bucket without capacity. recheck_at: when to open the lane whatever happens.
-- vtime: of fair keys, the virtual time of the next claim. step: by how much a claim puts it back, one over the weight
create table {t}lanes (
    lane text not null,
    rank integer not null,
    lane_set text not null,
    queue text not null,
    seq integer not null,
    buckets text not null,
    parked_on text not null default '',
    recheck_at integer,
    vtime real,
    step real,
    primary key (lane, rank)
) without rowid;

create index {t}lanes_order on {t}lanes (parked_on, lane_set, rank, seq);
create index {t}lanes_recheck on {t}lanes (lane_set, recheck_at) where recheck_at is not null;
create index {t}lanes_fair on {t}lanes (lane_set, rank, vtime, seq) where parked_on = '' and vtime is not null;

-- the virtual time of the fair keys of a queue, by rank
create table {t}virtual_times (
    queue text not null,
    rank integer not null,
    vtime real not null,
    primary key (queue, rank)
) without rowid;

-- buckets without a key that held a job back, and the queues to wake when they have capacity
create table {t}waiting_queues (
    bucket text not null,
    queue text not null,
    primary key (bucket, queue)
) without rowid;

-- starts that a rate let through: n from first to last, counted until the window after last is over
create table {t}starts (
    bucket text not null,
    first integer not null,
    last integer not null,
    n integer not null,
    primary key (bucket, first)
) without rowid;

-- tat: when a smooth rate has its whole burst again. blocked_until: before this moment nothing starts
create table {t}rates (
    bucket text not null primary key,
    tat integer not null default 0,
    blocked_until integer not null default 0
) without rowid;

create table {t}holders (
    bucket text not null,
    holder blob not null,
    until integer not null,
    cost integer not null,
    primary key (bucket, holder)
) without rowid;

create index {t}holders_holder on {t}holders (holder);

-- mode: keep (the key is held for a time after a success), or debounce, throttle, keep_last (the newest enqueue replaces the
-- waiting job). span: for how long the key counts after the job succeeded, or (throttle) was started.
-- previous: the job of the key that was started last. replaced_by: the enqueue that replaced this job last
alter table {t}unique_keys add column mode text not null default '';
alter table {t}unique_keys add column span integer not null default 0;
alter table {t}unique_keys add column print blob;
alter table {t}unique_keys add column previous blob;
alter table {t}unique_keys add column replaced_by blob;

-- limits that were changed, until every lane that is parked on one of their buckets has been opened
create table {t}rechecks (
    name text not null primary key
) without rowid;

-- settings of queues: declared by code, and given by a user in place of these
alter table {t}queues add column disabled text;
alter table {t}queues add column disabled_at integer not null default 0;
alter table {t}queues add column disabled_by text not null default '';
alter table {t}queues add column declared text;
alter table {t}queues add column given text;

-- counted: the job counts for the depth of its queue
alter table {t}jobs add column counted integer not null default 0;
create index {t}jobs_counted on {t}jobs (queue, enqueued, id, counted, state) where counted = 1 and state <> {RUNNING};

-- breakers that have counted something. rev: the number of the row, which a writer must know to exchange the row. until:
-- 0 while the breaker is closed. doc: what mainspring/breakers/counting.py keeps there
create table {t}breakers (
    name text not null primary key,
    rev integer not null,
    until integer not null,
    opened integer not null,
    doc text not null
) without rowid

-- name: migration_5
-- schedules. A row without a doc is a deleted schedule, whose number is remembered for a day
create table {t}schedules (
    name text not null primary key,
    rev integer not null,
    look integer check (typeof(look) in ('integer', 'null')),
    doc blob check (typeof(doc) in ('blob', 'null')),
    deleted_at integer
) without rowid;

create index {t}schedules_look on {t}schedules (look, name) where look is not null;

create table {t}schedule_runs (
    schedule text not null,
    at integer not null check (typeof(at) = 'integer'),
    job blob,
    doc blob not null check (typeof(doc) = 'blob'),
    primary key (schedule, at)
) without rowid;

-- fencing tokens of holders, the moment since when they hold, and their info. fencing_tokens: the last token of each bucket
alter table {t}holders add column token integer not null default 0;
alter table {t}holders add column since integer not null default 0;
alter table {t}holders add column info blob not null default x'';
create table {t}fencing_tokens (
    bucket text not null primary key,
    token integer not null
) without rowid;
create index {t}fencing_tokens_token on {t}fencing_tokens (token);

-- which worker leads a service of the fleet, and until when
create table {t}leads (
    service text not null primary key,
    worker text not null,
    until integer not null
) without rowid

-- name: migration_6
-- joins: jobs that end with their members, for as long as the job is kept. pruning: its flow is being deleted
create table {t}joins (
    job blob not null primary key,
    open integer not null,
    lenient integer not null,
    total integer not null default 0,
    succeeded integer not null default 0,
    dead integer not null default 0,
    cancelled integer not null default 0,
    bypassed integer not null default 0,
    pruning integer not null default 0
) without rowid;

create index {t}joins_open on {t}joins (job) where open = 1;

-- ended joins with children that promote resolves, and how they ended. died: a member was dead
create table {t}releasing (
    job blob not null primary key,
    state text not null,
    reason text,
    died integer not null
) without rowid;

-- flows whose root was cancelled or deleted: promote cancels or deletes their jobs. at: when to go on. last: the last job that
-- was looked at. found: whether this walk over the jobs has changed one
create table {t}swept (
    root blob not null primary key,
    deleted integer not null,
    at integer not null,
    last blob not null default x'',
    found integer not null default 0
) without rowid;

create index {t}swept_at on {t}swept (at);

-- two checks have more values than before: the policies of edges, and the reasons of cancelled jobs
create table {t}new_edges (
    parent blob not null,
    child blob not null,
    policy text not null check (policy in ({EDGE_POLICIES})),
    primary key (parent, child)
) without rowid;

insert into {t}new_edges (parent, child, policy) select parent, child, policy from {t}edges;
drop table {t}edges;
alter table {t}new_edges rename to {t}edges;
create index {t}edges_child on {t}edges (child);

create table {t}new_finished (
    id blob not null primary key,
    state text not null,
    reason text,
    task text not null,
    queue text not null,
    lane text not null,
    priority integer not null,
    attempt integer not null,
    epoch integer not null,
    crashes integer not null,
    crash_limit integer not null,
    early integer not null,
    token integer not null,
    worker text,
    seq integer not null,
    enqueued integer not null,
    expires integer,
    started integer,
    finished integer not null,
    ran integer,
    drop_at integer,
    keep integer,
    buckets text,
    note text,
    result blob check (typeof(result) in ('blob', 'null')),
    error blob check (typeof(error) in ('blob', 'null')),
    record blob not null,
    check (
        (state = {SUCCEEDED} and reason is null) or (state = {CANCELLED} and reason in ({CANCELLED_REASONS}))
    )
) without rowid;

insert into {t}new_finished
    (id, state, reason, task, queue, lane, priority, attempt, epoch, crashes, crash_limit, early, token, worker,
     seq, enqueued, expires, started, finished, ran, drop_at, keep, buckets, note, result, error, record)
select
    id, state, reason, task, queue, lane, priority, attempt, epoch, crashes, crash_limit, early, token, worker,
    seq, enqueued, expires, started, finished, ran, drop_at, keep, buckets, note, result, error, record
from {t}finished;
drop table {t}finished;
alter table {t}new_finished rename to {t}finished;
create index {t}finished_age on {t}finished (finished, state, drop_at);
create index {t}finished_drop on {t}finished (drop_at) where drop_at is not null;

drop index {t}dead_age;
create index {t}dead_age on {t}dead (finished, state, keep)
