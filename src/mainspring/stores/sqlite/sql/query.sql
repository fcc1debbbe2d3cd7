-- find, count, tally. {lead}, {where}, {key}, {value}, {at} and {table} are filled in by query.py: names of columns and
-- question marks only.

-- name: find_jobs
select id, state, null, task, queue, lane, priority, attempt, epoch, crashes, crash_limit, early, token, worker, seq,
    enqueued, due, expires, started, null, null, deps, cancel_order is not null,
    (select data from {t}progress where job = id), null, null, null, record, buckets
from {lead}{t}jobs
where {where}
order by {key} desc
limit ?

-- name: find_finished
select id, state, reason, task, queue, lane, priority, attempt, epoch, crashes, crash_limit, early, token, worker, seq,
    enqueued, null, expires, started, finished, ran, 0, 0,
    (select data from {t}progress where job = id), result, error, note, record, buckets
from {lead}{t}finished
where {where}
order by {key} desc
limit ?

-- name: find_dead
select id, state, reason, task, queue, lane, priority, attempt, epoch, crashes, crash_limit, early, token, worker, seq,
    enqueued, null, expires, started, finished, ran, 0, 0,
    (select data from {t}progress where job = id), result, error, note, record, buckets
from {lead}{t}dead
where {where}
order by {key} desc
limit ?

-- name: jobs_with_mark
-- mark, id, how many: the jobs with a mark before an id, newest first
select job from {t}marks where mark = ? and job < ? order by job desc limit ?

-- name: count_ready
-- this and the next statements: each state by its own partial index, for a query that asks for states only
select {READY}, count(*) from {t}jobs where state = {READY}

-- name: count_running
select {RUNNING}, count(*) from {t}jobs where state = {RUNNING}

-- name: count_blocked
-- a blocked job is the child of at least one edge, or an open join
select {BLOCKED}, (select count(distinct child) from {t}edges) + (
    select count(*) from {t}joins where open = 1 and not exists (select 1 from {t}edges where child = job)
)

-- name: count_later
-- "indexed by": with old statistics, or none, the planner would walk every job
select state, count(*)
from {t}jobs indexed by {t}jobs_later
where state in ({SCHEDULED}, {RETRYING})
group by state

-- name: count_finished
select state, count(*) from {t}finished group by state

-- name: count_dead
select {DEAD}, count(*) from {t}dead

-- name: tally
-- exact numbers by a value and state, with the first and the last moment
select {value}, state, count(*), min({at}), max({at})
from {t}{table}
where {where}
group by 1, 2

-- name: live_jobs
select count(*) from {t}jobs
