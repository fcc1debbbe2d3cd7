-- queues: modes, settings, depth

-- name: queues
select name, mode, since, disabled, disabled_at, disabled_by, declared, given from {t}queues order by name

-- name: set_mode
insert into {t}queues (name, mode, since) values (?, ?, ?)
on conflict (name) do update set mode = excluded.mode, since = excluded.since
where mode <> excluded.mode

-- name: open_queue
update {t}queues set mode = {QUEUE_OPEN}, since = 0 where name = ?

-- name: add_queue
insert or ignore into {t}queues (name, mode, since) values (?, {QUEUE_OPEN}, 0)

-- name: drop_plain_queue
-- deletes a row that says no more than no row
delete from {t}queues
where name = ? and mode = {QUEUE_OPEN} and disabled is null and declared is null and given is null

-- name: declare_queue
update {t}queues set declared = ? where name = ?

-- name: give_queue
update {t}queues set given = ? where name = ?

-- name: disable_queue
update {t}queues set disabled = ?1, disabled_at = ?2, disabled_by = ?3 where name = ?4 and disabled is not ?1

-- name: enable_queue
update {t}queues set disabled = null, disabled_at = 0, disabled_by = '' where name = ?

-- name: count_job
-- the job counts for the depth of its queue
update {t}jobs set counted = 1 where id = ?

-- name: uncounted_jobs
select id from {t}jobs where queue = ? and counted = 0 and flags & {FLAG_JOIN} = 0 and id > ? order by id limit ?

-- name: depth
-- how many counted jobs of a queue wait, and when the first of them was enqueued
select count(*), min(enqueued) from {t}jobs where counted = 1 and state <> {RUNNING} and queue = ?

-- name: oldest_in_queue
select id
from {t}jobs
where counted = 1 and state <> {RUNNING} and queue = ?
order by enqueued, id
limit ?
