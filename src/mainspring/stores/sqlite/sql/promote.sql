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

-- name: next_flow_work
-- a past moment, or null: when large joins and flows that were cancelled need a promotion
select case when exists (select 1 from {t}releasing) then 0 else (select min(at) from {t}swept) end

-- name: releasing
select job, state, reason, died from {t}releasing order by job limit 1

-- name: due_sweep
-- now: a flow whose jobs are cancelled or deleted
select root, deleted, last, found from {t}swept where at <= ? order by at limit 1

-- name: jobs_of_flow
-- mark, job, how many: the next jobs of a flow, with the state of live jobs and whether they have a cancel order
select m.job, j.state, j.cancel_order is not null
from {t}marks as m
left join {t}jobs as j on j.id = m.job
where m.mark = ? and m.job > ?
order by m.job
limit ?

-- name: go_on_sweeping
update {t}swept set last = :last, found = :found, at = :at where root = :root

-- name: end_sweep
delete from {t}swept where root = ?

-- name: flow_has_jobs
-- mark, root
select 1 from {t}marks where mark = ? and job <> ? limit 1
