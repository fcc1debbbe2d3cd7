-- ack: running -> succeeded | dead | cancelled | retrying | scheduled | ready
-- The fast pair takes plain successes in bulk (no dependents, no order, no follow-up jobs, nobody who waits for its part);
-- if it does not match every ack, it is rolled back and each ack is looked at by itself.

-- name: ack_succeeded
-- now, worker, then rows of (id, token, result, error)
insert into {t}finished
    (id, state, task, queue, lane, priority, attempt, epoch, crashes, crash_limit, early, token, worker,
     seq, enqueued, expires, started, finished, drop_at, keep, buckets, result, error, record)
select
    j.id, 'succeeded', j.task, j.queue, j.lane, j.priority, j.attempt, j.epoch, j.crashes, j.crash_limit, j.early,
    j.token, ?2, j.seq, j.enqueued, j.expires, j.started, ?1, ?1 + j.keep, j.keep,
    j.buckets, a.column3, a.column4, j.record
from (values {rows:4}) as a
cross join {t}jobs as j
where j.id = a.column1
    and j.token = a.column2
    and j.worker = ?2
    and j.state = 'running'
    and j.flags & 11 = 0
    and (
        j.flags & 64 = 0
        or not exists (select 1 from {t}marks as m cross join {t}links as l where m.job = j.id and l.after = m.mark)
    )

-- name: delete_free
-- those whose places nobody waits for: the unlimited, and while no gate has held anybody back those with gates only
delete from {t}jobs
where id in ({marks}) and (
    flags & 4 = 0
    or flags & 32
        and not exists (select 1 from {t}breakers)
        and not exists (
            select 1
            from {t}waits as w
            left join {t}limits as l on l.name = w.bucket
            where l.kind is null or l.kind = 'concurrency'
        )
)

-- name: delete_limited
delete from {t}jobs where id in ({marks}) returning id, buckets, started

-- name: owned
select state, token, worker, lane, task, queue, priority, attempt, epoch, crashes, crash_limit, early, started, flags, buckets,
    ordered
from {t}jobs
where id = ?

-- name: ended_by
-- whether the owner said the same before: a plain success stands in the history only, or in the epoch after it; anything
-- else in the attempts
select 1
from {t}finished
where id = :id and token = :token and worker = :worker and state = 'succeeded' and :outcome = 'succeeded'
union all
select 1
from {t}attempts
where job = :id and token = :token and worker = :worker and acked = 1 and outcome = :outcome
union all
select 1
from {t}jobs
where id = :id and token = :token and worker = :worker and state <> 'running' and :outcome = 'succeeded'
    and not exists (select 1 from {t}attempts where job = :id and token = :token)

-- name: add_attempt
insert or ignore into {t}attempts (job, token, epoch, attempt, worker, started, ended, outcome, acked, error)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: forget_attempts
-- a job that snoozes for ever keeps its newest attempts only
delete from {t}attempts
where job = ?1 and token <= (select token from {t}attempts where job = ?1 order by token desc limit 1 offset ?2)

-- name: put_off
-- retrying or scheduled
update {t}jobs
set state = ?, due = ?, attempt = ?
where id = ?

-- name: give_back
update {t}jobs
set state = 'ready', due = null, attempt = ?1, lane = ?2, seq = case when seq < 0 then -?3 else ?3 end
where id = ?4

-- name: relane
-- it names buckets that it did not name: flags say so
update {t}jobs
set state = 'ready', due = null, attempt = ?1, lane = ?2, buckets = ?3, flags = flags & ~36 | ?5
where id = ?4
returning seq
