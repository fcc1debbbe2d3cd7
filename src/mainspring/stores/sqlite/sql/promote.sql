-- promote: scheduled | retrying -> ready; expire: any waiting state -> cancelled

-- name: due_jobs
select id, queue, lane, task, priority, crashes, buckets
from {t}jobs
where state in ({SCHEDULED}, {RETRYING}) and due <= ?
order by due, seq
limit ?

-- name: promote
update {t}jobs set state = {READY}, due = null, seq = case when seq < 0 then -?1 else ?1 end where id = ?2

-- name: expired_jobs
select id
from {t}jobs
where expires is not null and state <> {RUNNING} and expires <= ?
order by expires
limit ?

-- name: next_due
select min(at)
from (
    select min(due) as at from {t}jobs where state in ({SCHEDULED}, {RETRYING})
    union all
    select min(expires) as at from {t}jobs where expires is not null and state <> {RUNNING}
)
