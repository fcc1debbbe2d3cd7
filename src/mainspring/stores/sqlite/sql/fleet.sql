-- beat, rescue, retire, workers

-- name: beat
update {t}workers set number = number + 1, seen = ? where id = ? and lost = 0 returning number

-- name: register
insert or ignore into {t}workers (id, number, turn, lost, started, seen, queues, tasks, lease, info)
values (?, 1, 0, 0, ?, ?, ?, ?, ?, ?)

-- name: say_again
update {t}workers set info = ? where id = ?

-- name: mark_lost
update {t}workers set lost = 1 where id = ? and number = ? and lost = 0

-- name: forget_worker
delete from {t}workers where id = ? and lost = 0

-- name: held
select id, token, queue, lane, task, priority, attempt, epoch, crashes, crash_limit, early, started, flags, buckets,
    ordered
from {t}jobs
where state = 'running' and worker = ?
order by seq

-- name: take_back
-- the owner is forgotten, so that its own late ack is told "stale"
update {t}jobs
set state = ?1, due = ?2, attempt = ?3, crashes = ?4, lane = ?5, seq = case when seq < 0 then -?6 else ?6 end,
    worker = null
where id = ?7

-- name: workers
select id, number, turn, lost, started, seen, queues, tasks, lease, info,
    (select count(*) from {t}jobs where state = 'running' and worker = {t}workers.id)
from {t}workers
order by started, id
