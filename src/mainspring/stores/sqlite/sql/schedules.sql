-- schedules: rows that are exchanged by their number, and what became of their occurrences

-- name: schedule
-- also of one that went
select rev, doc is null from {t}schedules where name = ?

-- name: put_schedule
insert or replace into {t}schedules (name, rev, look, doc) values (?, ?, ?, ?)

-- name: end_schedule
update {t}schedules set look = null, doc = null, went = ?1 where name = ?2

-- name: drop_schedules
delete from {t}schedules where doc is null and went < ?

-- name: due_schedules
select name, rev, look, doc from {t}schedules where look <= ? order by look, name limit ?

-- name: next_look
select min(look) from {t}schedules where look > ?

-- name: all_schedules
select name, rev, look, doc from {t}schedules where doc is not null order by name

-- name: one_schedule
select name, rev, look, doc from {t}schedules where name = ? and doc is not null

-- name: runs
select at, job, doc from {t}runs where schedule = ? and at <= ? order by at desc limit ?

-- name: job_of_run
select job from {t}runs where schedule = ? and at = ?

-- name: put_run
insert or replace into {t}runs (schedule, at, job, doc) values (?, ?, ?, ?)

-- name: trim_runs
-- all but the latest
delete from {t}runs
where schedule = ?1 and at <= (select at from {t}runs where schedule = ?1 order by at desc limit 1 offset ?2)

-- name: drop_runs
delete from {t}runs where schedule = ?
