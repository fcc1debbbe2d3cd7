-- find, count, attempts, logs. {where} is written by find.py from a query: names and marks only.

-- name: find_jobs
select id, state, null, task, queue, lane, priority, attempt, epoch, crashes, crash_limit, early, token, worker, seq,
    enqueued, due, expires, started, null, deps, ordered is not null,
    (select data from {t}progress where job = id), null, null, record
from {t}jobs
where {where}
order by id desc
limit ?

-- name: find_finished
select id, state, reason, task, queue, lane, priority, attempt, epoch, crashes, crash_limit, early, token, worker, seq,
    enqueued, null, expires, started, finished, 0, 0,
    (select data from {t}progress where job = id), result, error, record
from {t}finished
where {where}
order by id desc
limit ?

-- name: find_dead
select id, state, reason, task, queue, lane, priority, attempt, epoch, crashes, crash_limit, early, token, worker, seq,
    enqueued, null, expires, started, finished, 0, 0,
    (select data from {t}progress where job = id), result, error, record
from {t}dead
where {where}
order by id desc
limit ?

-- name: count_live
-- each state by its own partial index where nothing else is asked
select 'ready', count(*) from {t}jobs where state = 'ready'
union all
select 'running', count(*) from {t}jobs where state = 'running'
union all
select 'blocked', count(distinct child) from {t}edges -- a blocked job waits for somebody
union all
select state, count(*) from {t}jobs where state in ('scheduled', 'retrying') group by state

-- name: count_finished
select state, count(*) from {t}finished group by state

-- name: count_dead
select 'dead', count(*) from {t}dead

-- name: attempts
select token, epoch, attempt, worker, started, ended, outcome, error from {t}attempts where job = ? order by token

-- name: logs
select at, level, text from {t}logs where job = ? order by n
