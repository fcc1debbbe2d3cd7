-- fleet: beat, lead, rescue, retire, workers

-- name: beat
update {t}workers set number = number + 1, seen = ? where id = ? and lost = 0 returning number

-- name: register
insert or ignore into {t}workers (id, number, turn, lost, started, seen, queues, tasks, lease, info)
values (?, 1, 0, 0, ?, ?, ?, ?, ?, ?)

-- name: set_worker_info
update {t}workers set info = ? where id = ?

-- name: leads
select service, worker, until from {t}leads

-- name: take_lead
-- service, worker, the end of the lead, now: unless another worker leads. A lead that ends later than this one was made
-- before the clock was set back
insert into {t}leads (service, worker, until) values (?1, ?2, ?3)
on conflict (service) do update set worker = excluded.worker, until = excluded.until
where worker = ?2 or until <= ?4 or until > ?3

-- name: drop_leads
delete from {t}leads where worker = ?

-- name: fleet_and_looks
select (select count(*) from {t}workers where lost = 0),
    (select min(look) from {t}schedules where look > {ALWAYS_DUE}),
    exists (select 1 from {t}schedules where look = {ALWAYS_DUE})

-- name: mark_lost
update {t}workers set lost = 1 where id = ? and number = ? and lost = 0

-- name: drop_worker
delete from {t}workers where id = ? and lost = 0

-- name: jobs_of_worker
select id, token, queue, lane, task, priority, attempt, epoch, crashes, crash_limit, early, started, flags, buckets,
    cancel_order
from {t}jobs
where state = {RUNNING} and worker = ?
order by seq

-- name: take_back
-- running -> ready | retrying. A rescue removes the owner, so that its own late ack is stale; an ack leaves it. The body
-- may have begun, so the job cannot expire any more
update {t}jobs
set state = ?1, due = ?2, expires = null, attempt = ?3, crashes = ?4, lane = ?5,
    seq = case when seq < 0 then -?6 else ?6 end,
    worker = ?8
where id = ?7

-- name: workers
select id, number, turn, lost, started, seen, queues, tasks, lease, info,
    (select count(*) from {t}jobs where state = {RUNNING} and worker = {t}workers.id)
from {t}workers
order by started, id
