-- act: cancel, retry, run_now, reprioritise, delete by hand

-- name: order_cancel
-- a running job: an order for its owner, told with its next turn
update {t}jobs set ordered = coalesce(ordered, ?), flags = flags | 2 where id = ?

-- name: due_row
select queue, lane, task, priority, crashes, buckets from {t}jobs where id = ?

-- name: reprioritise
update {t}jobs set priority = ? where id = ?
returning state = 'ready', seq, lane, task, priority, crashes, buckets

-- name: delete_job
delete from {t}jobs where id = ?

-- name: revive_finished
insert into {t}jobs
    (id, state, queue, lane, task, priority, seq, token, worker, epoch, crash_limit, early, enqueued, expires, flags,
     buckets, keep, record, bound)
select id, 'ready', queue, :lane, task, priority, case when seq < 0 then -:seq else :seq end, token, worker, epoch + 1, crash_limit, early, enqueued,
    case when expires > :now then expires end, :flags, buckets, keep, record, :bound
from {t}finished
where id = :id

-- name: revive_dead
insert into {t}jobs
    (id, state, queue, lane, task, priority, seq, token, worker, epoch, crash_limit, early, enqueued, expires, flags,
     buckets, keep, record, bound)
select id, 'ready', queue, :lane, task, priority, case when seq < 0 then -:seq else :seq end, token, worker, epoch + 1, crash_limit, early, enqueued,
    case when expires > :now then expires end, :flags, buckets, keep, record, :bound
from {t}dead
where id = :id

-- name: ended_row_finished
select queue, lane, task, priority, buckets from {t}finished where id = ?

-- name: ended_row_dead
select queue, lane, task, priority, buckets from {t}dead where id = ?

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

-- name: drop_items
delete from {t}items where job = ?

-- name: drop_marks
delete from {t}marks where job = ?

-- name: drop_follows
delete from {t}follows where job = ?

-- name: drop_key
delete from {t}uniq where job = ? returning holds, before
