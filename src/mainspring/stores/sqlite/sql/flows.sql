-- flows: joins with the counts of their members, and flows that are cancelled, deleted or retried

-- name: add_join
insert or replace into {t}joins (job, open, lenient) values (?, ?, ?)

-- name: add_members
update {t}joins set total = total + ? where job = ?

-- name: count_members
-- members of a join have ended. Returns whether one of them is the first that is dead
update {t}joins
set succeeded = succeeded + :succeeded, dead = dead + :dead, cancelled = cancelled + :cancelled,
    bypassed = bypassed + :bypassed
where job = :job
returning dead > 0 and dead = :dead

-- name: join_to_end
-- a live join, and how it ends when all of its members have ended
select j.flags, j.crashes, g.dead > 0, g.lenient = 0 and (g.dead > 0 or g.cancelled > 0)
from {t}jobs as j
cross join {t}joins as g
where j.id = ? and g.job = j.id and j.state = {BLOCKED} and j.deps = 0 and g.open = 0

-- name: join_died
select dead > 0 from {t}joins where job = ?

-- name: close_join
update {t}joins set open = 0 where job = ? and open = 1

-- name: drop_join
delete from {t}joins where job = ?

-- name: joins
select job, open, total, succeeded, dead, cancelled, bypassed from {t}joins where job in ({marks})

-- name: waits_for
-- a job, how many
select parent, case when policy = {EDGE_MEMBER} then {EDGE_FAIL} else policy end
from {t}edges
where child = ?
order by parent
limit ?

-- name: has_children
select 1 from {t}edges where parent = ? limit 1

-- name: release_children
-- an ended join whose other children a promotion resolves
insert or ignore into {t}releasing (job, state, reason, died) values (?, ?, ?, ?)

-- name: all_released
delete from {t}releasing where job = ?

-- name: sweep_flow
-- a promotion cancels or deletes the jobs of this flow, if it has any
insert into {t}swept (root, deleted, at)
select :root, :deleted, :now where exists (select 1 from {t}marks where mark = :mark and job <> :root)
on conflict (root) do update
set deleted = max(deleted, excluded.deleted), at = excluded.at, last = x'', found = 0

-- name: reopen_join
-- a retry of the flow: the join forgets the members that ended badly. It is not open
update {t}joins
set open = 0, total = succeeded + bypassed, dead = 0, cancelled = 0, pruning = 0
where job = ?
