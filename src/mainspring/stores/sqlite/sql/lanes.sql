-- lanes: the lane sets beside a base lane, and the lanes with keys. See lanes.py and limits/waiting.py
-- rank is the negative priority. The statements read the lanes of one rank; see order_key() in mainspring/jobs/records.py
-- for the order between ranks.

-- name: lane_sets_beside
select name, suspect, task, unkeyed_limits, keyed from {t}lane_sets where base in ({marks})

-- name: add_lane_set
insert or ignore into {t}lane_sets (name, base, suspect, task, unkeyed_limits, keyed) values (?, ?, ?, ?, ?, ?)

-- name: keyed_lane_sets
select name from {t}lane_sets where keyed = 1

-- name: add_keyed_lane
-- lane, rank, lane set, seq, buckets, queue: a job enters a lane with keys. Makes the row, or moves it forward if the job
-- is the first of its lane. In a lifo queue the job is before all others. A row that moves forward is opened: it may come
-- before an open row of the same lane
insert into {t}lanes (lane, rank, lane_set, seq, buckets, queue)
select ?1, ?2, ?3, min(?4, coalesce(
    (select seq from {t}jobs where state = {READY} and {t}jobs.lane = ?1 and {t}jobs.priority = -?2 order by seq limit 1), ?4
)), ?5, ?6
where true
on conflict (lane, rank) do update set seq = excluded.seq, parked_on = '', recheck_at = null where seq > excluded.seq

-- name: open_lanes
-- lane set, rank, the last lane that was read (seq, lane), how many: lanes that are not parked
select lane, rank, seq, buckets, vtime
from {t}lanes
where parked_on = '' and lane_set = ?1 and rank = ?2 and (seq, lane) > (?3, ?4)
order by seq, lane
limit ?5

-- name: next_open_rank
select rank from {t}lanes where parked_on = '' and lane_set = ?1 and rank > ?2 order by rank limit 1

-- name: set_lane
update {t}lanes set seq = ?, parked_on = ?, recheck_at = ? where lane = ? and rank = ?

-- name: drop_empty_lane
delete from {t}lanes
where lane = ?1
    and rank = ?2
    and not exists (select 1 from {t}jobs where state = {READY} and {t}jobs.lane = ?1 and {t}jobs.priority = -?2)

-- name: open_lane
update {t}lanes set parked_on = '', recheck_at = null where lane = ? and rank = ?

-- name: open_lane_of_job
-- a ready job is about to leave its lane without a claim: the jobs behind it may not have to wait for its moment
update {t}lanes set parked_on = '', recheck_at = null
where recheck_at is not null and lane = (select lane from {t}jobs where id = ? and state = {READY})

-- name: parked_before
-- lane, order key, a name to leave out: whether a job of this lane that is first waits for a moment
select parked_on, recheck_at from {t}lanes
where lane = ? and seq + rank * {PRIORITY_STEP} < ? and recheck_at is not null and parked_on <> ?
limit 1

-- name: buckets_with_parked_lanes
-- a list of buckets as JSON: returns the buckets on which lanes are parked
select value from json_each(?) where exists (select 1 from {t}lanes where parked_on = value)

-- name: parked_lanes
-- bucket, how many
select lane_set, rank, seq, lane, queue, buckets, vtime, step from {t}lanes
where parked_on = ?1
order by lane_set, rank, seq
limit ?2

-- name: next_parked_set
-- bucket, lane set: the next lane set that has lanes parked on this bucket
select lane_set from {t}lanes where parked_on = ?1 and lane_set > ?2 order by lane_set limit 1

-- name: next_parked_rank
select rank from {t}lanes where parked_on = ?1 and lane_set = ?2 and rank > ?3 order by rank limit 1

-- name: parked_lanes_at_rank
select lane_set, rank, seq, lane, queue, buckets, vtime, step
from {t}lanes
where parked_on = ?1 and lane_set = ?2 and rank = ?3
order by seq
limit ?4

-- name: parked_lanes_of_limit
-- the names of the limit's keyed buckets are between the first two parameters
select lane, rank, queue from {t}lanes where parked_on >= ?1 and parked_on < ?2 limit ?3

-- name: lanes_to_recheck
-- lane set, now, how many
select lane, rank, queue from {t}lanes where lane_set = ?1 and recheck_at <= ?2 order by recheck_at limit ?3

-- name: next_recheck
select min(recheck_at) from {t}lanes where lane_set = ?1 and recheck_at is not null
