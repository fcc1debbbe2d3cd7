-- fair keys: lanes by virtual time. See fair.py

-- name: add_fair_lane
-- lane, rank, lane set, seq, buckets, queue, step: a job enters the lane of a fair key. A new lane is put one step behind the
-- virtual time of its queue
insert into {t}lanes (lane, rank, lane_set, seq, buckets, queue, step, vtime)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, coalesce((select vtime from {t}virtual_times where queue = ?6 and rank = ?2), 0) + ?7)
on conflict (lane, rank) do update set seq = excluded.seq, parked_on = '', recheck_at = null where seq > excluded.seq

-- name: open_fair_lanes
-- lane set, rank, the last lane that was read (vtime, seq, lane), how many
select lane, rank, seq, buckets, vtime, step
from {t}lanes
where parked_on = '' and vtime is not null and lane_set = ?1 and rank = ?2 and (vtime, seq, lane) > (?3, ?4, ?5)
order by vtime, seq, lane
limit ?6

-- name: set_fair_lane
update {t}lanes set seq = ?, parked_on = ?, recheck_at = ?, vtime = ? where lane = ? and rank = ?

-- name: virtual_time
select vtime from {t}virtual_times where queue = ? and rank = ?

-- name: set_virtual_time
insert into {t}virtual_times (queue, rank, vtime) values (?, ?, ?)
on conflict (queue, rank) do update set vtime = excluded.vtime
