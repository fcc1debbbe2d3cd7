-- unique keys: the job that holds a key, and keys under which the newest enqueue replaces the waiting job. See keys.py

-- name: key_holder
-- hash, now: the job that took the key last, the end of its window, whether it is live, the mode, how long the key counts
-- after that, and the job before it
select u.job, u.window_end, coalesce(
    (
        select case when j.state <> {RUNNING} and j.expires <= ?2 then {HOLDER_EXPIRED} else {HOLDER_LIVE} end
        from {t}jobs as j where j.id = u.job
    ), {HOLDER_ENDED}
), u.mode, u.span, u.previous
from {t}unique_keys as u
where u.hash = ?1 and u.holds = 1

-- name: release_key
-- the job that took the key last holds it no more, and its window is over
update {t}unique_keys set holds = 0, window_end = 0 where hash = ? and holds = 1

-- name: take_key
insert or replace into {t}unique_keys (job, hash, window_end, holds) values (?, ?, ?, 1)

-- name: key_of_job
select hash, mode, holds from {t}unique_keys where job = ?

-- name: drop_key
delete from {t}unique_keys where job = ? returning holds, previous

-- name: restore_key
update {t}unique_keys set holds = 1 where job = ?

-- name: retake_key
insert or replace into {t}unique_keys (job, hash, window_end, holds, mode) values (?, ?, 0, 1, ?)

-- name: print_of_key
select print from {t}unique_keys where hash = ? and holds = 1

-- name: succeeded_after
-- job, moment
select 1 from {t}finished where id = ? and state = {SUCCEEDED} and finished > ?

-- name: latest_job
-- hash, now: the job that took the key last, and its row if it is live
select
    u.job, u.previous, u.replaced_by, coalesce(j.token = 0 and j.state <> {RUNNING}, 0), coalesce(j.token > 0, 0), j.state,
    j.enqueued, j.due, j.seq, j.flags, coalesce(j.expires <= ?2 and j.state <> {RUNNING}, 0), j.queue
from {t}unique_keys as u
left join {t}jobs as j on j.id = u.job
where u.hash = ?1 and u.holds = 1

-- name: take_key_with_mode
insert or replace into {t}unique_keys (job, hash, window_end, holds, mode, span, print, previous)
values (?, ?, 0, 1, ?, ?, ?, ?)

-- name: set_replaced_by
update {t}unique_keys set replaced_by = ?, span = ? where job = ?

-- name: started_at
-- the last start of a job that was claimed, live or ended; null if it was retried since
select started from {t}jobs where id = :id and token > 0
union all
select started from {t}finished where id = :id and token > 0
union all
select started from {t}dead where id = :id and token > 0

-- name: replace_job
-- every field of a waiting job that an enqueue gives. Its id, the moment of its enqueue and its children stay
update {t}jobs
set state = :state, queue = :queue, lane = :lane, task = :task, priority = :priority, seq = :seq, due = :due,
    expires = :expires, crash_limit = :crash_limit, early = :early, flags = :flags, buckets = :buckets,
    record = :record, keep = :keep, counted = counted and queue = :queue
where id = :id
