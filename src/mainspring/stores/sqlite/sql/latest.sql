-- latest: keys under which the newest enqueue replaces the job that waits; and keys that are kept after a success

-- name: latest
-- the job that took the key last, and how it stands if it is live
select
    u.job, u.before, u.said, coalesce(j.token = 0 and j.state <> 'running', 0), coalesce(j.token > 0, 0), j.state,
    j.enqueued, j.due, j.seq, j.flags, coalesce(j.expires <= ?2 and j.state <> 'running', 0), j.queue
from {t}uniq as u
left join {t}jobs as j on j.id = u.job
where u.hash = ?1 and u.holds = 1

-- name: take_latest
insert or replace into {t}uniq (job, hash, until, holds, mode, span, print, before) values (?, ?, 0, 1, ?, ?, ?, ?)

-- name: said_last
update {t}uniq set said = ?, span = ? where job = ?

-- name: retake_key
insert or replace into {t}uniq (job, hash, until, holds, mode) values (?, ?, 0, 1, ?)

-- name: hold_again
update {t}uniq set holds = 1 where job = ?

-- name: started_at
-- the last start of a job that was claimed, live or ended; null if it was retried since
select started from {t}jobs where id = :id and token > 0
union all
select started from {t}finished where id = :id and token > 0
union all
select started from {t}dead where id = :id and token > 0

-- name: is_kept
-- the key of a job that succeeded after a moment
select 1 from {t}finished where id = ? and state = 'succeeded' and finished > ?

-- name: print_of
select print from {t}uniq where hash = ? and holds = 1

-- name: replace_job
update {t}jobs
set state = :state, queue = :queue, lane = :lane, task = :task, priority = :priority, seq = :seq, due = :due,
    expires = :expires, crash_limit = :crash_limit, early = :early, flags = :flags, buckets = :buckets,
    record = :record, keep = :keep, bound = bound and queue = :queue
where id = :id
