-- limits and the use of their buckets. See limits/

-- name: limit
select kind, coalesce(override, size), per, burst, share, span from {t}limits where name = ?

-- name: limits
select name, kind, size, per, burst, share, span, override from {t}limits order by name

-- name: add_limit
insert or ignore into {t}limits (name, kind, size, per, burst, share, span) values (?, ?, ?, ?, ?, ?, ?)

-- name: set_limit
insert into {t}limits (name, kind, size, per, burst, share, span) values (?, ?, ?, ?, ?, ?, ?)
on conflict (name) do update set
    kind = excluded.kind, size = excluded.size, per = excluded.per, burst = excluded.burst, share = excluded.share,
    span = excluded.span
where kind <> excluded.kind or size <> excluded.size or per <> excluded.per or burst <> excluded.burst
    or share <> excluded.share or span <> excluded.span

-- name: override_limit
update {t}limits set override = ? where name = ?

-- name: drop_limit
delete from {t}limits where name = ?

-- name: running_by_lane
-- the number of running jobs by lane, of jobs that name unkeyed limits only, and the buckets of one of them: the jobs of a
-- lane name the same buckets
select
    lane, count(*),
    (
        select buckets
        from {t}jobs indexed by {t}jobs_unkeyed
        where {t}jobs.lane = running.lane and state = {RUNNING} and flags & {FLAG_UNKEYED_ONLY}
        limit 1
    )
from {t}jobs as running indexed by {t}jobs_unkeyed
where state = {RUNNING} and flags & {FLAG_UNKEYED_ONLY}
group by lane

-- name: concurrency_used
-- bucket, now: the number of running jobs with keys, the number of holders, and when the first holder expires
select (select count(*) from {t}job_holds where bucket = ?1), count(*), min(until)
from {t}holders
where bucket = ?1 and until > ?2

-- name: window_used
-- bucket, the beginning of the window
select
    coalesce((select sum(n) from {t}starts where bucket = ?1 and last > ?2), 0),
    coalesce((select blocked_until from {t}rates where bucket = ?1), 0)

-- name: starts
-- bucket, the beginning of the window
select last, n from {t}starts where bucket = ? and last > ?

-- name: newest_start
select first, last, n from {t}starts where bucket = ? order by first desc limit 1

-- name: newest_starts
select first, n from {t}starts where bucket = ? and last > ? order by first desc

-- name: put_start
insert or replace into {t}starts (bucket, first, last, n) values (?, ?, ?, ?)

-- name: reduce_start
update {t}starts set n = n - ? where bucket = ? and first = ?

-- name: drop_starts
-- bucket, the beginning of the window
delete from {t}starts where bucket = ?1 and first <= ?2 and last <= ?2

-- name: smooth_rate
select tat, blocked_until from {t}rates where bucket = ?

-- name: set_tat
insert into {t}rates (bucket, tat) values (?, ?)
on conflict (bucket) do update set tat = excluded.tat

-- name: block_bucket
insert into {t}rates (bucket, blocked_until) values (?, ?)
on conflict (bucket) do update set blocked_until = max(blocked_until, excluded.blocked_until)

-- name: jobs_in_bucket
-- bucket, the lanes without keys that name it: the running jobs in the bucket, the oldest claims first
select job, token from {t}job_holds where bucket = ?1
union all
select {t}jobs.id, token
from json_each(?2) cross join {t}jobs indexed by {t}jobs_unkeyed on lane = value
where state = {RUNNING} and flags & {FLAG_UNKEYED_ONLY}
order by token, job
limit {HOLDERS_SHOWN}

-- name: add_job_hold
insert or replace into {t}job_holds (bucket, job, token) values (?, ?, ?)

-- name: drop_job_hold
delete from {t}job_holds where bucket = ? and job = ?

-- name: add_waiting_queue
-- bucket, queue: a job of this queue found no capacity in this bucket without a key
insert or ignore into {t}waiting_queues (bucket, queue) values (?, ?)

-- name: take_waiting_queues
delete from {t}waiting_queues where bucket = ? returning queue

-- name: add_recheck
insert or ignore into {t}rechecks (name) values (?)

-- name: limits_to_recheck
select name from {t}rechecks

-- name: drop_recheck
delete from {t}rechecks where name = ?
