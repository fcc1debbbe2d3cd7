-- what queues do, unique keys, follow-up jobs, marks

-- name: draining
select name from {t}queues where mode = 'draining'

-- name: paused
select name from {t}queues where mode = 'paused'

-- name: set_mode
insert into {t}queues (name, mode, since) values (?, ?, ?)
on conflict (name) do update set mode = excluded.mode, since = excluded.since
where mode <> excluded.mode

-- name: open_queue
delete from {t}queues where name = ?

-- name: modes
select name, mode, since from {t}queues order by name

-- name: last_holder
-- 0: not live, 1: live, 2: waits and has expired; then the mode, how long it counts after that, the job before
select u.job, u.until, coalesce(
    (select case when j.state <> 'running' and j.expires <= ?2 then 2 else 1 end from {t}jobs as j where j.id = u.job), 0
), u.mode, u.span, u.before
from {t}uniq as u
where u.hash = ?1 and u.holds = 1

-- name: lose_key
-- whoever took it last: also its window is over
update {t}uniq set holds = 0, until = 0 where hash = ? and holds = 1

-- name: take_key
insert or replace into {t}uniq (job, hash, until, holds) values (?, ?, ?, 1)

-- name: key_of
select hash, mode, holds from {t}uniq where job = ?

-- name: add_mark
insert or ignore into {t}marks (mark, job) values (?, ?)

-- name: add_follow
insert or ignore into {t}follows (job, state, n, data) values (?, ?, ?, ?)

-- name: follows_of
select f.data, j.epoch
from {t}follows as f
cross join {t}jobs as j
where f.job = ? and f.state = ? and j.id = f.job
order by f.n

-- name: followed
select distinct state from {t}follows where job = ?
