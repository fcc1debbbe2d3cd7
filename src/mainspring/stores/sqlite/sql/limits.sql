-- limits and buckets: see rooms.py, limits.py

-- name: limit
select kind, coalesce(override, size), per, burst, share, span from {t}limits where name = ?

-- name: limits
select name, kind, size, per, burst, share, span, override from {t}limits order by name

-- name: add_limit
insert or ignore into {t}limits (name, kind, size, per, burst, share, span) values (?, ?, ?, ?, ?, ?, ?)

-- name: set_limit
insert into {t}limits (name, kind, size, per, burst, share, span) values (?, ?, ?, ?, ?, ?, ?)
on conflict (name) do update set
    kind = excluded.kind, size = excluded.size, per = excluded.per, burst = excluded.burst, share = excluded.share,
    span = excluded.span
where kind <> excluded.kind or size <> excluded.size or per <> excluded.per or burst <> excluded.burst
    or share <> excluded.share or span <> excluded.span

-- name: override
update {t}limits set override = ? where name = ?

-- name: forget_limit
delete from {t}limits where name = ?

-- name: gated
-- how many run that name gates only
select lane, count(*)
from {t}jobs indexed by {t}jobs_gated
where state = 'running' and flags & 32
group by lane

-- name: places_used
-- bucket, now: who runs and has keys, and guests whose time is not over, with when the first of them ends
select (select count(*) from {t}holds where bucket = ?1), count(*), min(until)
from {t}guests
where bucket = ?1 and until > ?2

-- name: window_used
-- bucket, the moment that the window reaches back to
select
    coalesce((select sum(n) from {t}starts where bucket = ?1 and last > ?2), 0),
    coalesce((select slow from {t}rates where bucket = ?1), 0)

-- name: starts
select last, n from {t}starts where bucket = ? and last > ?

-- name: newest_start
select first, last, n from {t}starts where bucket = ? order by first desc limit 1

-- name: newest_starts
select first, n from {t}starts where bucket = ? and last > ? order by first desc

-- name: put_start
insert or replace into {t}starts (bucket, first, last, n) values (?, ?, ?, ?)

-- name: less_start
update {t}starts set n = n - ? where bucket = ? and first = ?

-- name: drop_starts
-- bucket, the moment that the window reaches back to
delete from {t}starts where bucket = ?1 and first <= ?2 and last <= ?2

-- name: pace
select tat, slow from {t}rates where bucket = ?

-- name: set_tat
insert into {t}rates (bucket, tat) values (?, ?)
on conflict (bucket) do update set tat = excluded.tat

-- name: slow
insert into {t}rates (bucket, slow) values (?, ?)
on conflict (bucket) do update set slow = max(slow, excluded.slow)

-- name: holders
-- bucket, the lanes without keys that name it
select job, token from {t}holds where bucket = ?1
union all
select {t}jobs.id, token
from json_each(?2) cross join {t}jobs indexed by {t}jobs_gated on lane = value
where state = 'running' and flags & 32
order by token, job
limit 10

-- name: hold
insert or replace into {t}holds (bucket, job, token) values (?, ?, ?)

-- name: free_hold
delete from {t}holds where bucket = ? and job = ?

-- name: note_wait
insert or ignore into {t}waits (bucket, queue) values (?, ?)

-- name: waits
delete from {t}waits where bucket = ? returning queue
