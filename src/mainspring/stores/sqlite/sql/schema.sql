-- The schema, one section for each numbered migration. Statements are separated by ";".
-- {live}, {ended} and {dead_reasons} are written from states.py.

-- name: meta
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
    state text not null check (state in ({live})),
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
    ordered text,
    buckets text,
    record blob not null
) without rowid;

create index {t}jobs_ready on {t}jobs (lane, priority desc, seq, expires, state) where state = 'ready';
create index {t}jobs_later on {t}jobs (due, seq) where state in ('scheduled', 'retrying');
create index {t}jobs_running on {t}jobs (worker) where state = 'running';
create index {t}jobs_expiring on {t}jobs (expires) where expires is not null;
create index {t}jobs_ordered on {t}jobs (worker) where ordered is not null;

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
    buckets text,
    note text,
    result blob check (typeof(result) in ('blob', 'null')),
    error blob check (typeof(error) in ('blob', 'null')),
    record blob not null,
    check ({ended})
) without rowid;

create index {t}finished_age on {t}finished (finished, state);

create table {t}dead (
    id blob not null primary key,
    state text not null check (state = 'dead'),
    reason text not null check (reason in ({dead_reasons})),
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
    policy text not null check (policy in ('fail', 'ignore')),
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

create table {t}holds (
    bucket text not null,
    job blob not null,
    token integer not null,
    primary key (bucket, job)
) without rowid;

create index {t}holds_job on {t}holds (job);

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

create table {t}docs (
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
create index {t}jobs_later on {t}jobs (due, seq, state) where state in ('scheduled', 'retrying');

-- one row for each job that has a unique key. The one that took a key last (holds) holds it while it is
-- live and to the end of its window. Nothing is written when that is over: the next to take the key looks
create table {t}uniq (
    job blob not null primary key,
    hash blob not null check (typeof(hash) = 'blob' and length(hash) = 16),
    until integer not null,
    holds integer not null
) without rowid;

create unique index {t}uniq_held on {t}uniq (hash) where holds = 1;

create table {t}marks (
    mark text not null,
    job blob not null,
    primary key (mark, job)
) without rowid;

create index {t}marks_job on {t}marks (job);

-- the follow-up jobs of a job, packed, for as long as it is kept: a retry by hand may need them again
create table {t}follows (
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
-- batches of which a repeat has arrived: a first try that comes later is one too
create table {t}retried (
    batch blob not null primary key,
    at integer not null
) without rowid

-- name: migration_4
-- limits by name. What somebody set in place of a size outlives declarations
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

insert into {t}limits (name, kind, size, per, burst) select name, 'concurrency', size, 0, 0 from {t}buckets;
drop table {t}buckets;

update {t}jobs
set buckets = (select json_group_array(json_array(value ->> 0, '', 1)) from json_each({t}jobs.buckets))
where buckets is not null;
update {t}jobs set flags = flags | 32 where flags & 4;
update {t}finished
set buckets = (select json_group_array(json_array(value ->> 0, '', 1)) from json_each({t}finished.buckets))
where buckets is not null;
update {t}dead
set buckets = (select json_group_array(json_array(value ->> 0, '', 1)) from json_each({t}dead.buckets))
where buckets is not null;

-- what stands beside a base lane: lanes without keys, each for itself, and groups of lanes with keys
create table {t}groups (
    name text not null primary key,
    base text not null,
    suspect integer not null,
    task text,
    gates text,
    keyed integer not null
) without rowid;

create index {t}groups_base on {t}groups (base);

-- jobs that name gates only hold their places by their own rows. The others have a row in holds for each bucket
create index {t}jobs_gated on {t}jobs (lane, state, flags) where state = 'running' and flags & 32;
drop index {t}holds_job;
delete from {t}holds;

insert into {t}groups (name, base, suspect, task, gates, keyed)
select
    lane, base, suspect, task,
    (select json_group_array(value ->> 0) from json_each({t}lanes.buckets)), 0
from {t}lanes;
update {t}groups set gates = null where gates = '[]';
drop table {t}lanes;

-- lanes with keys, a row for each priority (rank: its negative). seq: no job of it stands before that.
-- parked_on: empty for one in line, else the bucket that has no room. until: when to look again whatever happens.
-- vtime: of fair keys, the virtual time of its next claim
create table {t}lanes (
    lane text not null,
    rank integer not null,
    team text not null,
    seq integer not null,
    buckets text not null,
    parked_on text not null default '',
    until integer,
    vtime real,
    primary key (lane, rank)
) without rowid;

create index {t}lanes_line on {t}lanes (parked_on, team, rank, seq);
create index {t}lanes_until on {t}lanes (team, until) where until is not null;
create index {t}lanes_fair on {t}lanes (team, rank, vtime, seq) where parked_on = '' and vtime is not null;

-- how far the virtual time of fair keys has come
create table {t}clocks (
    queue text not null,
    rank integer not null,
    vtime real not null,
    primary key (queue, rank)
) without rowid;

-- gates that held something back, and the queues to wake when they have room
create table {t}waits (
    bucket text not null,
    queue text not null,
    primary key (bucket, queue)
) without rowid;

-- what rates have let through: n from first to last, counted until the window after last is over
create table {t}starts (
    bucket text not null,
    first integer not null,
    last integer not null,
    n integer not null,
    primary key (bucket, first)
) without rowid;

-- tat: when a smooth rate has all back, in nanoseconds. slow: before that nothing is let through
create table {t}rates (
    bucket text not null primary key,
    tat integer not null default 0,
    slow integer not null default 0
) without rowid;

create table {t}guests (
    bucket text not null,
    guest blob not null,
    until integer not null,
    cost integer not null,
    primary key (bucket, guest)
) without rowid;

create index {t}guests_guest on {t}guests (guest);

-- of keys that are kept after a success (keep), and of those under which the newest enqueue replaces the job that waits
-- (debounce, throttle, keep_last). span: for how long after the job succeeded, or (throttle) was started, they count.
-- before: the job of the key that was started last. said: the enqueue that replaced this job last
alter table {t}uniq add column mode text not null default '';
alter table {t}uniq add column span integer not null default 0;
alter table {t}uniq add column print blob;
alter table {t}uniq add column before blob;
alter table {t}uniq add column said blob;

-- limits that were changed, until every lane that is parked on them has been opened
create table {t}stirs (
    name text not null primary key
) without rowid;

-- settings of queues: what code declares, and what somebody gave them over that
alter table {t}queues add column disabled text;
alter table {t}queues add column disabled_at integer not null default 0;
alter table {t}queues add column disabled_by text not null default '';
alter table {t}queues add column declared text;
alter table {t}queues add column given text;

-- bound: the job counts for the depth of its queue
alter table {t}jobs add column bound integer not null default 0;
create index {t}jobs_bound on {t}jobs (queue, enqueued, id, bound, state) where bound = 1 and state <> 'running';

-- breakers that are open or have failures to remember. until: 0 while it is closed
create table {t}breakers (
    name text not null primary key,
    failures integer not null,
    calls integer not null,
    until integer not null,
    opened integer not null,
    half integer not null,
    tripped integer not null,
    error text not null,
    counts text not null
) without rowid

-- name: migration_5
-- schedules. One without a doc went: its number is remembered for a while
create table {t}schedules (
    name text not null primary key,
    rev integer not null,
    look integer check (typeof(look) in ('integer', 'null')),
    doc blob check (typeof(doc) in ('blob', 'null')),
    went integer
) without rowid;

create index {t}schedules_look on {t}schedules (look, name) where look is not null;

create table {t}runs (
    schedule text not null,
    at integer not null check (typeof(at) = 'integer'),
    job blob,
    doc blob not null check (typeof(doc) = 'blob'),
    primary key (schedule, at)
) without rowid;

-- parts that wait for others, by the marks of their jobs. released: the job that was released last, and its token then
create table {t}parts (
    name text not null primary key,
    released blob,
    token integer not null default 0
) without rowid;

create table {t}links (
    part text not null,
    after text not null,
    noted integer not null default 0,
    primary key (part, after)
) without rowid;

create index {t}links_after on {t}links (after, part);

-- a job that waits for parts is a child of its own part, which is no job: it has a place in the line of that
alter table {t}edges add column place integer;
create index {t}edges_line on {t}edges (parent, place) where place is not null;

-- guests with a number, when they came and what they say of themselves. fences: the last number of each bucket
alter table {t}guests add column token integer not null default 0;
alter table {t}guests add column since integer not null default 0;
alter table {t}guests add column info blob not null default x'';
create table {t}fences (
    bucket text not null primary key,
    token integer not null
) without rowid;
create index {t}fences_token on {t}fences (token)
