-- promote: scheduled, retrying -> ready; expire: any waiting -> cancelled

-- name: due
select id, queue, lane, task, priority, crashes, buckets
from {t}jobs
where state in ('scheduled', 'retrying') and due <= ?
order by due, seq
limit ?

-- name: promote
update {t}jobs set state = 'ready', due = null, seq = case when seq < 0 then -?1 else ?1 end where id = ?2

-- name: expired
select id
from {t}jobs
where expires is not null and state <> 'running' and expires <= ?
order by expires
limit ?

-- name: next_due
select min(at)
from (
    select min(due) as at from {t}jobs where state in ('scheduled', 'retrying')
    union all
    select min(expires) as at from {t}jobs where expires is not null and state <> 'running'
)
