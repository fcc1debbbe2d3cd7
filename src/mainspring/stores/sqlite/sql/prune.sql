-- prune: deletes what retention does not keep. A job with a keep of its own has drop_at and is not counted.

-- name: last_kept_finished
select finished from {t}finished where drop_at is null order by finished desc limit 1 offset ?

-- name: last_kept_dead
select finished from {t}dead where keep is not {FLOW_KEEP} order by finished desc limit 1 offset ?

-- name: prunable_by_keep
-- is_join: whether other jobs may have to be deleted before. The root of a flow with a live job stays
select id, finished, exists (select 1 from {t}joins where job = id) as is_join
from {t}finished
where drop_at <= :before
    and not exists (
        select 1
        from {t}unique_keys as u
        where u.job = {t}finished.id and u.holds = 1 and (
            u.window_end > :now
            or u.mode = {KEY_KEEP} and {t}finished.state = {SUCCEEDED} and {t}finished.finished + u.span > :now
            or u.mode = {KEY_THROTTLE} and {t}finished.started + u.span > :now
        )
    )
    and not exists (
        select 1
        from {t}joins as g
        where g.job = {t}finished.id and g.pruning = 0 and exists (
            select 1
            from {t}marks as m
            cross join {t}jobs as j
            where m.mark = {FLOW_MARK} || lower(hex({t}finished.id)) and j.id = m.job
        )
    )
order by drop_at
limit :limit

-- name: prunable_finished
select id, finished, exists (select 1 from {t}joins where job = id) as is_join
from {t}finished
where finished < :before
    and drop_at is null
    and not exists (
        select 1
        from {t}unique_keys as u
        where u.job = {t}finished.id and u.holds = 1 and (
            u.window_end > :now
            or u.mode = {KEY_KEEP} and {t}finished.state = {SUCCEEDED} and {t}finished.finished + u.span > :now
            or u.mode = {KEY_THROTTLE} and {t}finished.started + u.span > :now
        )
    )
    and not exists (
        select 1
        from {t}joins as g
        where g.job = {t}finished.id and g.pruning = 0 and exists (
            select 1
            from {t}marks as m
            cross join {t}jobs as j
            where m.mark = {FLOW_MARK} || lower(hex({t}finished.id)) and j.id = m.job
        )
    )
order by finished
limit :limit

-- name: prunable_dead
select id, finished, 0 as is_join
from {t}dead
where finished < :before
    and keep is not {FLOW_KEEP}
    and not exists (
        select 1
        from {t}unique_keys as u
        where u.job = {t}dead.id and u.holds = 1 and (
            u.window_end > :now
            or u.mode = {KEY_KEEP} and {t}dead.state = {SUCCEEDED} and {t}dead.finished + u.span > :now
            or u.mode = {KEY_THROTTLE} and {t}dead.started + u.span > :now
        )
    )
order by finished
limit :limit

-- name: prunable_of_flow
-- the ended jobs of a flow that hold no unique key any more, except its root, and whether each is dead
select m.job, coalesce(f.finished, d.finished), d.id is not null
from {t}marks as m
left join {t}finished as f on f.id = m.job
left join {t}dead as d on d.id = m.job
where m.mark = :mark
    and m.job <> :root
    and coalesce(f.id, d.id) is not null
    and not exists (
        select 1
        from {t}unique_keys as u
        where u.job = m.job and u.holds = 1 and (
            u.window_end > :now
            or u.mode = {KEY_KEEP} and f.state = {SUCCEEDED} and f.finished + u.span > :now
            or u.mode = {KEY_THROTTLE} and coalesce(f.started, d.started) + u.span > :now
        )
    )
order by m.job
limit :limit

-- name: set_pruning
update {t}joins set pruning = 1 where job = ? and pruning = 0

-- name: ended_then_finished
select 1 from {t}finished where id = ? and finished = ?

-- name: ended_then_dead
select 1 from {t}dead where id = ? and finished = ?

-- name: drop_lost_workers
delete from {t}workers where lost = 1 and seen < ?

-- name: drop_retried_batches
delete from {t}retried_batches where at < ?

-- name: drop_lane_sets
-- a lane set with keys goes after its lanes
delete from {t}lane_sets
where keyed = 0 and not exists (select 1 from {t}jobs where state = {READY} and {t}jobs.lane = {t}lane_sets.name)
    or keyed = 1 and not exists (select 1 from {t}lanes where lane_set = {t}lane_sets.name)

-- name: drop_virtual_times
-- of queues without lanes of fair keys. The names of a queue's lanes begin with the queue and '/', and '0' follows '/'
delete from {t}virtual_times
where not exists (
    select 1 from {t}lanes
    where lane > {t}virtual_times.queue || '/' and lane < {t}virtual_times.queue || '0' and vtime is not null
)

-- name: empty_lanes
select lane, rank, buckets
from {t}lanes
where not exists (
    select 1
    from {t}jobs
    where state = {READY} and {t}jobs.lane = {t}lanes.lane and {t}jobs.priority = -{t}lanes.rank
)
limit ?

-- name: idle_starts
-- now, how many: buckets of rates whose last window is over
select bucket, max(last)
from {t}starts
group by bucket
having max(last) <= ?1 - coalesce(
    (select per from {t}limits where name = substr(bucket, 1, instr(bucket || '=', '=') - 1)), 0
)
limit ?2

-- name: drop_idle_starts
-- bucket, the last start that was seen: a newer start keeps all rows
delete from {t}starts
where bucket = ?1 and not exists (select 1 from {t}starts as s where s.bucket = ?1 and s.last > ?2)

-- name: drop_idle_rates
-- rates that hold nothing back any more
delete from {t}rates where tat <= ?1 and blocked_until <= ?1
