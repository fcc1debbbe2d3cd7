-- breakers: a closed breaker without failures has no row

-- name: breaker
select failures, calls, until, opened, half, tripped, error, counts from {t}breakers where name = ?

-- name: put_breaker
insert or replace into {t}breakers (name, failures, calls, until, opened, half, tripped, error, counts)
values (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: drop_breaker
delete from {t}breakers where name = ?

-- name: probes_used
-- breaker, now, since when the breaker is half open, the lanes without keys that name the breaker. Returns the number of
-- jobs that probe, the number of holders, and when the first of these holders expires
select
    (
        select count(*)
        from {t}job_holds cross join {t}jobs on {t}jobs.id = {t}job_holds.job
        where {t}job_holds.bucket = ?1 and {t}jobs.started >= ?3
    ) + (
        select count(*)
        from json_each(?4) cross join {t}jobs indexed by {t}jobs_unkeyed on lane = value
        where state = {RUNNING} and flags & {FLAG_UNKEYED_ONLY} and started >= ?3
    ),
    count(*),
    min(until)
from {t}holders
where bucket = ?1 and until > ?2
