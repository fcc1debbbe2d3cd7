-- act: cancel, retry, run_now, reprioritise and delete, as a user orders them

-- name: order_cancel
-- a running job: the order reaches its owner with the next turn
update {t}jobs set cancel_order = coalesce(cancel_order, ?), flags = flags | {FLAG_CANCEL_ORDERED} where id = ?

-- name: due_job
select queue, lane, task, priority, crashes, buckets from {t}jobs where id = ?

-- name: reprioritise
update {t}jobs set priority = ? where id = ?
returning state = {READY}, seq, lane, task, priority, crashes, buckets

-- name: delete_job
delete from {t}jobs where id = ?

-- name: key_is_free
-- a condition, not a statement: no other job holds the unique key of the ended job `id`. Two parameters, both now
not exists (
    select 1
    from {t}unique_keys as own
    cross join {t}unique_keys as held
    where own.job = id and held.hash = own.hash and held.holds = 1 and (
        held.job <> own.job and (
            held.window_end > ?
            or exists (select 1 from {t}jobs as live where live.id = held.job)
            or held.mode = {KEY_KEEP} and exists (
                select 1 from {t}finished as good
                where good.id = held.job and good.state = {SUCCEEDED} and good.finished + held.span > ?
            )
        )
        or held.mode = {KEY_KEEP_LAST} and held.previous <> own.job
            and exists (select 1 from {t}jobs as live where live.id = held.previous)
    )
)

-- name: is_no_join
-- a condition, not a statement: the job `id` is no join
not exists (select 1 from {t}joins where job = id)

-- name: revive_finished
-- succeeded | cancelled -> ready, in a new epoch that cannot expire
insert into {t}jobs
    (id, state, queue, lane, task, priority, seq, token, worker, epoch, crash_limit, early, enqueued, flags, buckets,
     keep, record, counted)
select id, {READY}, queue, :lane, task, priority, case when seq < 0 then -:seq else :seq end, token, worker, epoch + 1,
    crash_limit, early, enqueued, :flags, buckets, keep, record, :counted
from {t}finished
where id = :id

-- name: revive_dead
-- dead -> ready, in a new epoch that cannot expire
insert into {t}jobs
    (id, state, queue, lane, task, priority, seq, token, worker, epoch, crash_limit, early, enqueued, flags, buckets,
     keep, record, counted)
select id, {READY}, queue, :lane, task, priority, case when seq < 0 then -:seq else :seq end, token, worker, epoch + 1,
    crash_limit, early, enqueued, :flags, buckets, keep, record, :counted
from {t}dead
where id = :id

-- name: ended_job_finished
select queue, lane, task, priority, buckets from {t}finished where id = ?

-- name: ended_job_dead
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

-- name: drop_follow_ups
delete from {t}follow_ups where job = ?
