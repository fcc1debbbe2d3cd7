-- ack: running -> succeeded | dead | cancelled | retrying | scheduled | ready
-- The fast pair ack_succeeded and delete_plain applies plain successes in bulk: jobs without cancel order or follow-up jobs
-- for succeeded. If ack_succeeded does not match every ack, it is rolled back and each ack is applied by itself.

-- name: ack_succeeded
-- now, worker, then rows of (id, token, result, error, microseconds that the body ran)
insert into {t}finished
    (id, state, task, queue, lane, priority, attempt, epoch, crashes, crash_limit, early, token, worker,
     seq, enqueued, expires, started, finished, ran, drop_at, keep, buckets, result, error, record)
select
    j.id, {SUCCEEDED}, j.task, j.queue, j.lane, j.priority, j.attempt, j.epoch, j.crashes, j.crash_limit, j.early,
    j.token, ?2, j.seq, j.enqueued, j.expires, j.started, ?1, a.column5, ?1 + j.keep, j.keep,
    j.buckets, a.column3, a.column4, j.record
from (values {rows:5}) as a
cross join {t}jobs as j
where j.id = a.column1
    and j.token = a.column2
    and j.worker = ?2
    and j.state = {RUNNING}
    and j.flags & {FLAGS_OF_MORE_WORK} = 0

-- name: delete_plain
-- deletes the jobs whose end wakes no waiting job: jobs without children and limits, and jobs without children and with
-- unkeyed limits only while no unkeyed concurrency limit has held a job back and every breaker is closed
delete from {t}jobs
where id in ({marks}) and (
    flags & {FLAGS_OF_OTHERS} = 0
    or flags & {FLAG_UNKEYED_ONLY}
        and flags & {FLAG_HAS_CHILDREN} = 0
        and not exists (select 1 from {t}breakers where until > 0)
        and not exists (
            select 1
            from {t}waiting_queues as w
            left join {t}limits as l on l.name = w.bucket
            where l.kind is null or l.kind = {LIMIT_CONCURRENCY}
        )
)

-- name: delete_others
delete from {t}jobs where id in ({marks}) returning id, flags, buckets

-- name: owned_job
select state, token, worker, lane, task, queue, priority, attempt, epoch, crashes, crash_limit, early, started, flags,
    buckets, cancel_order
from {t}jobs
where id = ?

-- name: ended_by
-- returns a row if this owner ended this attempt in this way before. A plain success is in the history only, or belongs to
-- the epoch before this one; any other end is in the attempts
select 1
from {t}finished
where id = :id and token = :token and worker = :worker and state = {SUCCEEDED} and :outcome = {SUCCEEDED}
union all
select 1
from {t}attempts
where job = :id and token = :token and worker = :worker and acked = 1 and outcome = :outcome
union all
select 1
from {t}jobs
where id = :id and token = :token and worker = :worker and state <> {RUNNING} and :outcome = {SUCCEEDED}
    and not exists (select 1 from {t}attempts where job = :id and token = :token)

-- name: add_attempt
insert or ignore into {t}attempts (job, token, epoch, attempt, worker, started, ended, ran, outcome, acked, error)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: drop_old_attempts
-- job, how many to keep: a job that snoozes for ever keeps its newest attempts only
delete from {t}attempts
where job = ?1 and token <= (select token from {t}attempts where job = ?1 order by token desc limit 1 offset ?2)

-- name: set_due
-- running -> retrying | scheduled: the job has started, so it cannot expire any more
update {t}jobs
set state = ?, due = ?, expires = null, attempt = ?
where id = ?

-- name: hand_back
-- running -> ready, behind the other jobs of its lane. A job that has started (?5 = 0) cannot expire any more
update {t}jobs
set state = {READY}, due = null, expires = case when ?5 then expires end, attempt = ?1, lane = ?2,
    seq = case when seq < 0 then -?3 else ?3 end
where id = ?4

-- name: hand_back_to_lane
-- running -> ready, at its old place (seq), with the buckets that the job names from now on and the flags for them. The
-- body never began, so the job keeps its expires
update {t}jobs
set state = {READY}, due = null, attempt = ?1, lane = ?2, buckets = ?3, flags = flags & ~{FLAGS_OF_LIMITS} | ?5
where id = ?4
returning seq
