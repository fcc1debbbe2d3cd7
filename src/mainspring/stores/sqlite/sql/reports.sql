-- reports: progress, log lines and items of running attempts; ended attempts

-- name: lease_is_good
select 1
from {t}jobs as j
cross join {t}workers as w
where j.id = ? and j.token = ? and j.worker = ? and j.state = {RUNNING} and w.id = j.worker and w.lost = 0

-- name: set_progress
insert into {t}progress (job, data) values (?, ?)
on conflict (job) do update set data = excluded.data

-- name: last_line
select coalesce(max(n), 0) from {t}logs where job = ?

-- name: add_line
insert into {t}logs (job, n, at, level, text) values (?, ?, ?, ?, ?)

-- name: drop_lines
delete from {t}logs where job = ? and n <= ?

-- name: add_item
-- replaces the item of an earlier attempt at the same place
insert or replace into {t}items (job, n, data) values (?, ?, ?)

-- name: attempts
select token, epoch, attempt, worker, started, ended, ran, outcome, error from {t}attempts where job = ? order by token

-- name: logs
select at, level, text, n from {t}logs where job = ? and n > ? order by n

-- name: items
select n, data from {t}items where job = ? and n > ? order by n limit ?
