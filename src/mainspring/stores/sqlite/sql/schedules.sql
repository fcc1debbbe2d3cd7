-- schedules: rows that are exchanged by their number, and the runs of each schedule

-- name: schedule_rev
-- also of a deleted schedule, whose number is remembered for a day
select rev, doc is null from {t}schedules where name = ?

-- name: put_schedule
insert or replace into {t}schedules (name, rev, look, doc) values (?, ?, ?, ?)

-- name: delete_schedule
update {t}schedules set look = null, doc = null, deleted_at = ?1 where name = ?2

-- name: drop_deleted_schedules
delete from {t}schedules where doc is null and deleted_at < ?

-- name: due_schedules
select name, rev, look, doc from {t}schedules where look <= ? order by look, name limit ?

-- name: next_look
select min(look) from {t}schedules where look > ?

-- name: schedules
select name, rev, look, doc from {t}schedules where doc is not null order by name

-- name: schedule
select name, rev, look, doc from {t}schedules where name = ? and doc is not null

-- name: runs
select at, job, doc from {t}schedule_runs where schedule = ? and at <= ? order by at desc limit ?

-- name: job_of_run
select job from {t}schedule_runs where schedule = ? and at = ?

-- name: put_run
insert or replace into {t}schedule_runs (schedule, at, job, doc) values (?, ?, ?, ?)

-- name: trim_runs
-- schedule, how many to keep: the latest runs
delete from {t}schedule_runs
where schedule = ?1 and at <= (select at from {t}schedule_runs where schedule = ?1 order by at desc limit 1 offset ?2)

-- name: drop_runs
delete from {t}schedule_runs where schedule = ?
