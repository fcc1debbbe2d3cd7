-- claim: ready -> running
-- The index of ready jobs has the jobs of a lane at one priority in a row; see order_key() in mainspring/jobs/records.py
-- for the order between priorities. The statements *_with_costs return the buckets of each job as well, for limits
-- where the cost of a start matters.

-- name: priorities
-- lane: the highest and the lowest priority in use in a lane
select
    (select priority from {t}jobs where state = {READY} and lane = ?1 order by priority desc limit 1),
    (select priority from {t}jobs where state = {READY} and lane = ?1 order by priority limit 1)

-- name: next_priority
-- lane, priority: the next lower priority in use in a lane
select priority
from {t}jobs
where state = {READY} and lane = ?1 and priority < ?2
order by priority desc
limit 1

-- name: heads
-- lane, now, how many, priority, seq: the jobs of a lane at one priority behind a seq
select priority, seq, id
from {t}jobs
where state = {READY} and lane = ?1 and priority = ?4 and seq > ?5 and (expires is null or expires > ?2)
order by seq
limit ?3

-- name: heads_with_costs
select priority, seq, id, buckets
from {t}jobs
where state = {READY} and lane = ?1 and priority = ?4 and seq > ?5 and (expires is null or expires > ?2)
order by seq
limit ?3

-- name: head_buckets
-- lane, now, how many, priority: the buckets of the first jobs of a lane at one priority
select buckets
from {t}jobs
where state = {READY} and lane = ?1 and priority = ?4 and (expires is null or expires > ?2)
order by seq
limit ?3

-- name: claim
-- lane, now, how many, worker, turn, priority: claim the first jobs of one lane at one priority without a look at each
update {t}jobs
set state = {RUNNING}, worker = ?4, turn = ?5, attempt = attempt + 1, token = max(token + 1, ?2), started = ?2
where id in (
    select id
    from {t}jobs
    where state = {READY} and lane = ?1 and priority = ?6 and (expires is null or expires > ?2)
    order by seq
    limit ?3
)
returning id, token, task, queue, lane, priority, attempt, epoch, crashes, early, enqueued, expires, record, turn, seq, flags

-- name: claim_ids
-- now, worker, turn, then the ids of jobs that were picked in this transaction
update {t}jobs
set state = {RUNNING}, worker = ?2, turn = ?3, attempt = attempt + 1, token = max(token + 1, ?1), started = ?1
where id in ({marks})
returning id, token, task, queue, lane, priority, attempt, epoch, crashes, early, enqueued, expires, record, turn, seq, flags
