-- groups of lanes beside a base lane, and lanes with keys: see places.py, parking.py, keyed.py

-- name: groups_beside
select name, suspect, task, gates, keyed from {t}groups where base in ({marks})

-- name: add_group
insert or ignore into {t}groups (name, base, suspect, task, gates, keyed) values (?, ?, ?, ?, ?, ?)

-- name: line_up
-- a job comes to a lane with keys: a row is made or, if it stood behind, moved forward. Of a stack it stands before all
insert into {t}lanes (lane, rank, team, seq, buckets)
select ?1, ?2, ?3, min(?4, coalesce(
    (select seq from {t}jobs where state = 'ready' and {t}jobs.lane = ?1 and {t}jobs.priority = -?2 order by seq limit 1), ?4
)), ?5
where true
on conflict (lane, rank) do update set seq = excluded.seq where seq > excluded.seq

-- name: line_up_fair
-- the same in a lane of a fair key: a new one stands behind the claim before it
insert into {t}lanes (lane, rank, team, seq, buckets, vtime)
values (?1, ?2, ?3, ?4, ?5, coalesce((select vtime from {t}clocks where queue = ?6 and rank = ?2), 0) + ?7)
on conflict (lane, rank) do update set seq = excluded.seq where seq > excluded.seq

-- name: fair_lanes
-- those of a group of fair keys that stand in line: group, the last that was read, how many
select lane, rank, seq, buckets, vtime
from {t}lanes
where parked_on = '' and vtime is not null and team = ?1 and (rank, vtime, seq, lane) > (?2, ?3, ?4, ?5)
order by rank, vtime, seq, lane
limit ?6

-- name: clock
select vtime from {t}clocks where queue = ? and rank = ?

-- name: set_clock
insert into {t}clocks (queue, rank, vtime) values (?, ?, ?)
on conflict (queue, rank) do update set vtime = excluded.vtime

-- name: set_fair_lane
update {t}lanes set seq = ?, parked_on = ?, until = ?, vtime = ? where lane = ? and rank = ?

-- name: open_lanes
-- those of a group that stand in line: group, the last that was read, how many
select lane, rank, seq, buckets, vtime
from {t}lanes
where parked_on = '' and team = ?1 and (rank, seq, lane) > (?2, ?3, ?4)
order by rank, seq, lane
limit ?5

-- name: open_at_rank
select lane, rank, seq, buckets, vtime
from {t}lanes
where parked_on = '' and team = ?1 and rank = ?2 and (seq, lane) > (?3, ?4)
order by seq, lane
limit ?5

-- name: open_rank
-- the next rank in use in a group
select rank from {t}lanes where parked_on = '' and team = ?1 and rank > ?2 order by rank limit 1

-- name: parked_above
-- whether a lane waits for a moment at a higher priority
select parked_on, until from {t}lanes where lane = ? and rank < ? and until is not null and parked_on <> ? limit 1

-- name: set_lane
update {t}lanes set seq = ?, parked_on = ?, until = ? where lane = ? and rank = ?

-- name: drop_lane
delete from {t}lanes
where lane = ?1
    and rank = ?2
    and not exists (select 1 from {t}jobs where state = 'ready' and {t}jobs.lane = ?1 and {t}jobs.priority = -?2)

-- name: open_waiting
-- a job leaves its lane by another door than a claim: what waits behind it may not have to wait for its moment
update {t}lanes set parked_on = '', until = null
where until is not null and lane = (select lane from {t}jobs where id = ? and state = 'ready')

-- name: open_lane
update {t}lanes set parked_on = '', until = null where lane = ? and rank = ?

-- name: waited_for
-- of these buckets, those on which lanes are parked
select value from json_each(?) where exists (select 1 from {t}lanes where parked_on = value)

-- name: parked
-- on one bucket, by group
select team, rank, seq, lane, buckets, vtime from {t}lanes where parked_on = ?1 order by team, rank, seq limit ?2

-- name: parked_group
-- the next group that has lanes parked on a bucket
select team from {t}lanes where parked_on = ?1 and team > ?2 order by team limit 1

-- name: parked_rank
select rank from {t}lanes where parked_on = ?1 and team = ?2 and rank > ?3 order by rank limit 1

-- name: parked_at_rank
select team, rank, seq, lane, buckets, vtime
from {t}lanes
where parked_on = ?1 and team = ?2 and rank = ?3
order by seq
limit ?4

-- name: due_lanes
select lane, rank from {t}lanes where team = ?1 and until <= ?2 order by until limit ?3

-- name: first_until
select min(until) from {t}lanes where team = ?1 and until is not null

-- name: keyed_groups
select name from {t}groups where keyed = 1

-- name: stir
insert or ignore into {t}stirs (name) values (?)

-- name: stirred
select name from {t}stirs

-- name: stilled
delete from {t}stirs where name = ?

-- name: parked_on_limit
-- the names of its buckets lie between these two
select lane, rank from {t}lanes where parked_on >= ?1 and parked_on < ?2 limit ?3
