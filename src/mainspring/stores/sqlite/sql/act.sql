-- act: cancel, retry, run_now, reprioritise, delete by hand. prune: what retention lets go.

-- name: order_cancel
-- a running job: an order for its owner, told with its next turn
update {t}jobs set ordered = coalesce(ordered, ?), flags = flags | 2 where id = ?

-- name: due_row
select queue, lane, task, crashes, buckets from {t}jobs where id = ?

-- name: reprioritise
update {t}jobs set priority = ? where id = ?

-- name: delete_job
delete from {t}jobs where id = ?

-- name: revive_finished
insert into {t}jobs
    (id, state, queue, lane, task, priority, seq, token, worker, epoch, crash_limit, early, enqueued, expires, flags,
     buckets, record)
select id, 'ready', queue, :lane, task, priority, :seq, token, worker, epoch + 1, crash_limit, early, enqueued,
    case when expires > :now then expires end, :flags, buckets, record
from {t}finished
where id = :id

-- name: revive_dead
insert into {t}jobs
    (id, state, queue, lane, task, priority, seq, token, worker, epoch, crash_limit, early, enqueued, expires, flags,
     buckets, record)
select id, 'ready', queue, :lane, task, priority, :seq, token, worker, epoch + 1, crash_limit, early, enqueued,
    case when expires > :now then expires end, :flags, buckets, record
from {t}dead
where id = :id

-- name: ended_row_finished
select queue, lane, task, buckets from {t}finished where id = ?

-- name: ended_row_dead
select queue, lane, task, buckets from {t}dead where id = ?

-- name: drop_finished
delete from {t}finished where id = ?

-- name: drop_dead
delete from {t}dead where id = ?

-- name: drop_attempts
delete from {t}attempts where job = ?

-- name: drop_logs
delete from {t}logs where job = ?

-- name: drop_progress
delete from {t}progress where job = ?

-- name: nth_youngest
-- the age of the job that is one too many
select finished from {t}finished order by finished desc limit 1 offset ?

-- name: old_finished
select id from {t}finished where finished < ? order by finished limit ?

-- name: old_dead
select id from {t}dead where finished < ? order by finished limit ?

-- name: drop_workers
delete from {t}workers where lost = 1 and seen < ?

-- name: drop_lanes
delete from {t}lanes
where not exists (select 1 from {t}jobs where state = 'ready' and {t}jobs.lane = {t}lanes.lane)

-- name: drop_buckets
-- a bucket is written again with each job of its lane that becomes ready
delete from {t}buckets
where name not in (select bucket from {t}holds)
    and name not in (select json_extract(b.value, '$[0]') from {t}lanes as l, json_each(l.buckets) as b)
