-- enqueue: (new) -> ready | scheduled | blocked
-- The statement enqueue inserts jobs that wait for no other job: one row of parameters for each job.

-- name: next_seq
update {t}counters
set value = value + ?
where name = 'seq'
returning value

-- name: enqueue
insert or ignore into {t}jobs
    (id, state, queue, lane, task, priority, seq, due, expires, crash_limit, early, enqueued, flags, buckets, record)
values {rows:15}

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
-- no row: the parent exists nowhere
select {PARENT_LIVE} from {t}jobs where id = :id
union all
select case when state = {SUCCEEDED} then {PARENT_SUCCEEDED} else {PARENT_FAILED} end from {t}finished where id = :id
union all
select {PARENT_FAILED} from {t}dead where id = :id

-- name: add_edge
insert or ignore into {t}edges (parent, child, policy) values (:parent, :child, :policy)

-- name: flag_parent
update {t}jobs set flags = flags | {FLAG_HAS_CHILDREN} where id = ?
