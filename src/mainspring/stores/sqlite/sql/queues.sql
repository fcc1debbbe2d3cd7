-- what queues do, unique keys, follow-up jobs, marks

-- name: queues
select name, mode, since, disabled, disabled_at, disabled_by, declared, given from {t}queues order by name

-- name: set_mode
insert into {t}queues (name, mode, since) values (?, ?, ?)
on conflict (name) do update set mode = excluded.mode, since = excluded.since
where mode <> excluded.mode

-- name: open_queue
update {t}queues set mode = 'open', since = 0 where name = ?

-- name: add_queue
insert or ignore into {t}queues (name, mode, since) values (?, 'open', 0)

-- name: forget_queue
-- one of which nothing is left to tell
delete from {t}queues
where name = ? and mode = 'open' and disabled is null and declared is null and given is null

-- name: declare_queue
update {t}queues set declared = ? where name = ?

-- name: give_queue
update {t}queues set given = ? where name = ?

-- name: disable_queue
update {t}queues set disabled = ?1, disabled_at = ?2, disabled_by = ?3 where name = ?4 and disabled is not ?1

-- name: enable_queue
update {t}queues set disabled = null, disabled_at = 0, disabled_by = '' where name = ?

-- name: bind
update {t}jobs set bound = 1 where id = ?

-- name: unbound
select id from {t}jobs where queue = ? and bound = 0 and id > ? order by id limit ?

-- name: depth
-- how many wait in a queue that is bound, and since when the first of them
select count(*), min(enqueued) from {t}jobs where bound = 1 and state <> 'running' and queue = ?

-- name: oldest_in
select id
from {t}jobs
where bound = 1 and state <> 'running' and queue = ?
order by enqueued, id
limit ?

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
