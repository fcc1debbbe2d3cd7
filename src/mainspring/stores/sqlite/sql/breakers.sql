-- breakers: see breakers.py. One that is closed and has nothing to forget has no row

-- name: breaker
select failures, calls, until, opened, half, tripped, error, counts from {t}breakers where name = ?

-- name: put_breaker
insert or replace into {t}breakers (name, failures, calls, until, opened, half, tripped, error, counts)
values (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: drop_breaker
delete from {t}breakers where name = ?

-- name: probes_used
-- breaker, now, the moment since which it is half open, the lanes without keys that name it: who probes, and guests
-- with when the first of them ends
select
    (
        select count(*)
        from {t}holds cross join {t}jobs on {t}jobs.id = {t}holds.job
        where {t}holds.bucket = ?1 and {t}jobs.started >= ?3
    ) + (
        select count(*)
        from json_each(?4) cross join {t}jobs indexed by {t}jobs_gated on lane = value
        where state = 'running' and flags & 32 and started >= ?3
    ),
    count(*),
    min(until)
from {t}guests
where bucket = ?1 and until > ?2
