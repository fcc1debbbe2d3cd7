-- enqueue: (new) -> ready | scheduled | blocked
-- The plain statement serves jobs that wait for nobody: one row of parameters per job.

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

-- name: enqueue_blocked
update {t}jobs
set state = 'blocked', deps = :deps, due = :due
where id = :id

-- name: live
select exists (select 1 from {t}jobs where id = :id)

-- name: known
select exists (select 1 from {t}jobs where id = :id)
    or exists (select 1 from {t}finished where id = :id)
    or exists (select 1 from {t}dead where id = :id)

-- name: retried
select 1 from {t}retried where batch = ?

-- name: remember_retry
insert or ignore into {t}retried (batch, at) values (?, ?)

-- name: parent_state
-- 0: live, 1: succeeded, 2: ended otherwise, no row: nowhere
select 0 from {t}jobs where id = :id
union all
select case when state = 'succeeded' then 1 else 2 end from {t}finished where id = :id
union all
select 2 from {t}dead where id = :id

-- name: add_edge
insert or ignore into {t}edges (parent, child, policy) values (:parent, :child, :policy)

-- name: mark_parent
update {t}jobs set flags = flags | 1 where id = ?
