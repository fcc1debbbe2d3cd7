-- enqueue: (new) -> ready | scheduled | blocked
-- The statement enqueue inserts jobs that wait for no other job: one row of parameters for each job.

-- name: next_seq
-- now, how many: the counter follows the clock, and never goes back
update {t}counters
set value = max(value, ?) + ?
where name = 'seq'
returning value

-- name: enqueue
insert or ignore into {t}jobs
    (id, state, queue, lane, task, priority, seq, due, expires, crash_limit, early, enqueued, flags, buckets, record)
values {rows:15}

-- name: enqueue_alike
-- jobs that differ only in id, seq and record: the other values are sent once
insert or ignore into {t}jobs
    (state, queue, lane, task, priority, due, expires, crash_limit, early, enqueued, flags, buckets, id, seq, record)
select ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, column1, column2, column3 from (values {rows:3})

-- name: set_keep
update {t}jobs set keep = ? where id = ?

-- name: add_mark
insert or ignore into {t}marks (mark, job) values (?, ?)

-- name: block_job
update {t}jobs
set state = {BLOCKED}, deps = :deps, due = :due
where id = :id

-- name: job_is_live
select exists (select 1 from {t}jobs where id = :id)

-- name: job_is_known
select exists (select 1 from {t}jobs where id = :id)
    or exists (select 1 from {t}finished where id = :id)
    or exists (select 1 from {t}dead where id = :id)

-- name: batch_was_retried
select 1 from {t}retried_batches where batch = ?

-- name: add_retried_batch
insert or ignore into {t}retried_batches (batch, at) values (?, ?)

-- name: parent_state
-- the state and the reason, and whether it or one of its members is dead. No row: the parent exists nowhere
select state, null, flags & {FLAG_JOIN} and exists (select 1 from {t}joins where job = :id and dead > 0)
from {t}jobs
where id = :id
union all
select state, reason, exists (select 1 from {t}joins where job = :id and dead > 0) from {t}finished where id = :id
union all
select state, reason, 1 from {t}dead where id = :id

-- name: waiting_child
-- a blocked job: its flags, and whether it is an open join
select flags, coalesce((select open from {t}joins where job = :id), 0) from {t}jobs where id = :id and state = {BLOCKED}

-- name: wait_for_more
-- the blocked job waits for more parents
update {t}jobs set deps = deps + ? where id = ?

-- name: add_edge
insert or ignore into {t}edges (parent, child, policy) values (:parent, :child, :policy)

-- name: flag_parent
update {t}jobs set flags = flags | {FLAG_HAS_CHILDREN} where id = ?
