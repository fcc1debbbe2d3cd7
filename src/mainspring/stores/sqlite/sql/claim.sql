-- claim: ready -> running

-- name: worker_row
select lost, turn, tasks from {t}workers where id = ?

-- name: worker_turned
update {t}workers set turn = ?, seen = ? where id = ?

-- name: heads
-- the first of one lane, in order: lane, now, how many
select priority, seq, id
from {t}jobs
where state = 'ready' and lane = ?1 and (expires is null or expires > ?2)
order by priority desc, seq
limit ?3

-- name: heads_costs
select priority, seq, id, buckets
from {t}jobs
where state = 'ready' and lane = ?1 and (expires is null or expires > ?2)
order by priority desc, seq
limit ?3

-- name: head_buckets
-- of the first of one lane: lane, now, how many
select buckets
from {t}jobs
where state = 'ready' and lane = ?1 and (expires is null or expires > ?2)
order by priority desc, seq
limit ?3

-- name: level
-- the next lower priority in use in a lane
select priority
from {t}jobs
where state = 'ready' and lane = ?1 and priority < ?2
order by priority desc
limit 1

-- name: level_heads
select priority, seq, id
from {t}jobs
where state = 'ready' and lane = ?1 and priority = ?4 and (expires is null or expires > ?2)
order by seq
limit ?3

-- name: level_heads_costs
select priority, seq, id, buckets
from {t}jobs
where state = 'ready' and lane = ?1 and priority = ?4 and (expires is null or expires > ?2)
order by seq
limit ?3

-- name: next_heads
-- those behind a seq
select priority, seq, id
from {t}jobs
where state = 'ready' and lane = ?1 and priority = ?4 and seq > ?5 and (expires is null or expires > ?2)
order by seq
limit ?3

-- name: next_heads_costs
select priority, seq, id, buckets
from {t}jobs
where state = 'ready' and lane = ?1 and priority = ?4 and seq > ?5 and (expires is null or expires > ?2)
order by seq
limit ?3

-- name: claim
-- straight from one lane: lane, now, how many, worker, turn
update {t}jobs
set state = 'running', worker = ?4, turn = ?5, attempt = attempt + 1, token = max(token + 1, ?2), started = ?2
where id in (
    select id
    from {t}jobs
    where state = 'ready' and lane = ?1 and (expires is null or expires > ?2)
    order by priority desc, seq
    limit ?3
)
returning id, token, task, queue, lane, priority, attempt, epoch, crashes, early, enqueued, expires, record, turn, seq, flags

-- name: claim_ids
-- now, worker, turn, then ids that were picked in this transaction
update {t}jobs
set state = 'running', worker = ?2, turn = ?3, attempt = attempt + 1, token = max(token + 1, ?1), started = ?1
where id in ({marks})
returning id, token, task, queue, lane, priority, attempt, epoch, crashes, early, enqueued, expires, record, turn, seq, flags

-- name: claims_since
-- what this worker holds by turns it has not heard of
select id, token, task, queue, lane, priority, attempt, epoch, crashes, early, enqueued, expires, record, turn, seq, flags
from {t}jobs
where state = 'running' and worker = ? and turn > ?

-- name: leases
select id, token from {t}jobs where state = 'running' and worker = ?

-- name: orders
select id, token, ordered from {t}jobs where worker = ? and ordered is not null and state = 'running'
