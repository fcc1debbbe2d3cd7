-- prune: what retention lets go. A job with a keep of its own has drop_at and is not counted.

-- name: last_kept_finished
select finished from {t}finished where drop_at is null order by finished desc limit 1 offset ?

-- name: last_kept_dead
select finished from {t}dead order by finished desc limit 1 offset ?

-- name: old_by_keep
select id, finished
from {t}finished
where drop_at <= :before
    and not exists (select 1 from {t}uniq as u where u.job = {t}finished.id and u.holds = 1 and u.until > :now)
order by drop_at
limit :limit

-- name: old_finished
select id, finished
from {t}finished
where finished < :before
    and drop_at is null
    and not exists (select 1 from {t}uniq as u where u.job = {t}finished.id and u.holds = 1 and u.until > :now)
order by finished
limit :limit

-- name: old_dead
select id, finished
from {t}dead
where finished < :before
    and not exists (select 1 from {t}uniq as u where u.job = {t}dead.id and u.holds = 1 and u.until > :now)
order by finished
limit :limit

-- name: still_finished
select 1 from {t}finished where id = ? and finished = ?

-- name: still_dead
select 1 from {t}dead where id = ? and finished = ?

-- name: drop_workers
delete from {t}workers where lost = 1 and seen < ?

-- name: drop_retried
delete from {t}retried where at < ?

-- name: drop_lanes
delete from {t}lanes
where not exists (select 1 from {t}jobs where state = 'ready' and {t}jobs.lane = {t}lanes.lane)

-- name: drop_buckets
-- a bucket is written again with each job of its lane that becomes ready
delete from {t}buckets
where name not in (select bucket from {t}holds)
    and name not in (select json_extract(b.value, '$[0]') from {t}lanes as l, json_each(l.buckets) as b)
