-- find, count. {lead}, {where} and {key} are written by find.py from a query: names and question marks only.

-- name: find_jobs
select id, state, null, task, queue, lane, priority, attempt, epoch, crashes, crash_limit, early, token, worker, seq,
    enqueued, due, expires, started, null, deps, ordered is not null,
    (select data from {t}progress where job = id), null, null, null, record, buckets
from {lead}{t}jobs
where {where}
order by {key} desc
limit ?

-- name: find_finished
select id, state, reason, task, queue, lane, priority, attempt, epoch, crashes, crash_limit, early, token, worker, seq,
    enqueued, null, expires, started, finished, 0, 0,
    (select data from {t}progress where job = id), result, error, note, record, null
from {lead}{t}finished
where {where}
order by {key} desc
limit ?

-- name: find_dead
select id, state, reason, task, queue, lane, priority, attempt, epoch, crashes, crash_limit, early, token, worker, seq,
    enqueued, null, expires, started, finished, 0, 0,
    (select data from {t}progress where job = id), result, error, note, record, null
from {lead}{t}dead
where {where}
order by {key} desc
limit ?

-- name: marked
-- the jobs with a mark, newest first
select job from {t}marks where mark = ? and job < ? order by job desc limit ?

-- name: count_ready
-- this and the next: each state by its own partial index where nothing else is asked
select 'ready', count(*) from {t}jobs where state = 'ready'

-- name: count_running
select 'running', count(*) from {t}jobs where state = 'running'

-- name: count_blocked
-- a blocked job waits for somebody
select 'blocked', count(distinct child) from {t}edges

-- name: count_later
-- with old statistics, or none, the planner would rather walk every job
select state, count(*)
from {t}jobs indexed by {t}jobs_later
where state in ('scheduled', 'retrying')
group by state

-- name: count_finished
select state, count(*) from {t}finished group by state

-- name: count_dead
select 'dead', count(*) from {t}dead
