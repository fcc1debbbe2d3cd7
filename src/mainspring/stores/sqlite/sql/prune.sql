-- prune: what retention lets go. A job with a keep of its own has drop_at and is not counted.

-- name: last_kept_finished
select finished from {t}finished where drop_at is null order by finished desc limit 1 offset ?

-- name: last_kept_dead
select finished from {t}dead order by finished desc limit 1 offset ?

-- name: old_by_keep
select id, finished
from {t}finished
where drop_at <= :before
    and not exists (
        select 1
        from {t}uniq as u
        where u.job = {t}finished.id and u.holds = 1 and (
            u.until > :now
            or u.mode = 'keep' and {t}finished.state = 'succeeded' and {t}finished.finished + u.span > :now
            or u.mode = 'throttle' and {t}finished.started + u.span > :now
        )
    )
order by drop_at
limit :limit

-- name: old_finished
select id, finished
from {t}finished
where finished < :before
    and drop_at is null
    and not exists (
        select 1
        from {t}uniq as u
        where u.job = {t}finished.id and u.holds = 1 and (
            u.until > :now
            or u.mode = 'keep' and {t}finished.state = 'succeeded' and {t}finished.finished + u.span > :now
            or u.mode = 'throttle' and {t}finished.started + u.span > :now
        )
    )
order by finished
limit :limit

-- name: old_dead
select id, finished
from {t}dead
where finished < :before
    and not exists (
        select 1
        from {t}uniq as u
        where u.job = {t}dead.id and u.holds = 1 and (
            u.until > :now
            or u.mode = 'keep' and {t}dead.state = 'succeeded' and {t}dead.finished + u.span > :now
            or u.mode = 'throttle' and {t}dead.started + u.span > :now
        )
    )
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

-- name: drop_groups
-- one that lanes are left of goes after them
delete from {t}groups
where keyed = 0 and not exists (select 1 from {t}jobs where state = 'ready' and {t}jobs.lane = {t}groups.name)
    or keyed = 1 and not exists (select 1 from {t}lanes where team = {t}groups.name)

-- name: drop_clocks
-- of queues without lanes of fair keys: the range is that of the names that begin with the queue's
delete from {t}clocks
where not exists (
    select 1 from {t}lanes where lane > {t}clocks.queue || '/' and lane < {t}clocks.queue || '0' and vtime is not null
)

-- name: empty_lanes
select lane, rank, buckets
from {t}lanes
where not exists (
    select 1
    from {t}jobs
    where state = 'ready' and {t}jobs.lane = {t}lanes.lane and {t}jobs.priority = -{t}lanes.rank
)
limit ?

-- name: old_starts
select bucket, max(last)
from {t}starts
group by bucket
having max(last) <= ?1 - coalesce(
    (select per from {t}limits where name = substr(bucket, 1, instr(bucket || '=', '=') - 1)), 0
)
limit ?2

-- name: forget_starts
delete from {t}starts
where bucket = ?1 and not exists (select 1 from {t}starts as s where s.bucket = ?1 and s.last > ?2)

-- name: drop_rates
-- what they hold back lies behind us
delete from {t}rates where tat <= ?1 * 1000 and slow <= ?1
