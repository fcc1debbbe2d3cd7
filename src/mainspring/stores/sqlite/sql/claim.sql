-- claim: ready -> running
-- The statements *_heads return the first jobs of a lane; *_with_costs return the buckets of each job as well, for limits
-- where the cost of a start matters.

-- name: heads
-- lane, now, how many: the first jobs of a lane, by priority and seq
select priority, seq, id
from {t}jobs
where state = {READY} and lane = ?1 and (expires is null or expires > ?2)
order by priority desc, seq
limit ?3

-- name: heads_with_costs
select priority, seq, id, buckets
from {t}jobs
where state = {READY} and lane = ?1 and (expires is null or expires > ?2)
order by priority desc, seq
limit ?3

-- name: head_buckets
-- lane, now, how many: the buckets of the first jobs of a lane
select buckets
from {t}jobs
where state = {READY} and lane = ?1 and (expires is null or expires > ?2)
order by priority desc, seq
limit ?3

-- name: next_priority
-- lane, priority: the next lower priority in use in a lane
select priority
from {t}jobs
where state = {READY} and lane = ?1 and priority < ?2
order by priority desc
limit 1

-- name: priority_heads
-- lane, now, how many, priority
select priority, seq, id
from {t}jobs
where state = {READY} and lane = ?1 and priority = ?4 and (expires is null or expires > ?2)
order by seq
limit ?3

-- name: priority_heads_with_costs
select priority, seq, id, buckets
from {t}jobs
where state = {READY} and lane = ?1 and priority = ?4 and (expires is null or expires > ?2)
order by seq
limit ?3

-- name: next_heads
-- lane, now, how many, priority, seq: the jobs behind a seq
select priority, seq, id
from {t}jobs
where state = {READY} and lane = ?1 and priority = ?4 and seq > ?5 and (expires is null or expires > ?2)
order by seq
limit ?3

-- name: next_heads_with_costs
select priority, seq, id, buckets
from {t}jobs
where state = {READY} and lane = ?1 and priority = ?4 and seq > ?5 and (expires is null or expires > ?2)
order by seq
limit ?3

-- name: claim
-- lane, now, how many, worker, turn: claim the first jobs of one lane without a look at each
update {t}jobs
set state = {RUNNING}, worker = ?4, turn = ?5, attempt = attempt + 1, token = max(token + 1, ?2), started = ?2
where id in (
    select id
    from {t}jobs
    where state = {READY} and lane = ?1 and (expires is null or expires > ?2)
    order by priority desc, seq
    limit ?3
)
returning id, token, task, queue, lane, priority, attempt, epoch, crashes, early, enqueued, expires, record, turn, seq, flags

-- name: claim_ids
-- now, worker, turn, then the ids of jobs that were picked in this transaction
update {t}jobs
set state = {RUNNING}, worker = ?2, turn = ?3, attempt = attempt + 1, token = max(token + 1, ?1), started = ?1
where id in ({marks})
returning id, token, task, queue, lane, priority, attempt, epoch, crashes, early, enqueued, expires, record, turn, seq, flags
