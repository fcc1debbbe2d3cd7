-- finish: any live state -> succeeded | cancelled | dead

-- name: to_finished
insert or replace into {t}finished
    (id, state, reason, task, queue, lane, priority, attempt, epoch, crashes, crash_limit, early, token, worker,
     seq, enqueued, expires, started, finished, ran, drop_at, keep, buckets, note, result, error, record)
select
    id, :state, :reason, task, queue, lane, priority, :attempt, epoch, :crashes, crash_limit, early, token, :worker,
    seq, enqueued, expires, started, :now, :ran, :now + keep, keep, buckets, :note, :result, :error, record
from {t}jobs
where id = :id

-- name: to_dead
insert or replace into {t}dead
    (id, state, reason, task, queue, lane, priority, attempt, epoch, crashes, crash_limit, early, token, worker,
     seq, enqueued, expires, started, finished, ran, label, keep, buckets, note, result, error, record)
select
    id, :state, :reason, task, queue, lane, priority, :attempt, epoch, :crashes, crash_limit, early, token, :worker,
    seq, enqueued, expires, started, :now, :ran, :label, keep, buckets, :note, :result, :error, record
from {t}jobs
where id = :id

-- name: children
-- parents: by parent, then by child
select e.parent, e.child, e.policy, j.deps, j.due, j.queue, j.flags, j.lane, j.task, j.priority, j.crashes, j.buckets
from {t}edges as e
cross join {t}jobs as j
where e.parent in ({marks}) and j.id = e.child and j.state = {BLOCKED}

-- name: first_children
-- parent, how many
select e.parent, e.child, e.policy, j.deps, j.due, j.queue, j.flags, j.lane, j.task, j.priority, j.crashes, j.buckets
from {t}edges as e
cross join {t}jobs as j
where e.parent = ? and j.id = e.child and j.state = {BLOCKED}
order by e.child
limit ?

-- name: children_of_death
-- parent: the children that wait for a death among the members
select e.parent, e.child, e.policy, j.deps, j.due, j.queue, j.flags, j.lane, j.task, j.priority, j.crashes, j.buckets
from {t}edges as e
cross join {t}jobs as j
where e.parent = ? and e.policy = {EDGE_DEAD} and j.id = e.child and j.state = {BLOCKED}

-- name: wait_for_fewer
-- the blocked job waits for fewer parents than before
update {t}jobs set deps = deps - ? where id = ?

-- name: unblock
-- blocked -> ready | scheduled
update {t}jobs set state = ?1, deps = 0, due = ?2, seq = case when seq < 0 then -?3 else ?3 end where id = ?4

-- name: drop_edges_of_parents
delete from {t}edges where parent in ({marks})

-- name: drop_edges_of_dead_parent
-- its other children wait for a retry by hand
delete from {t}edges where parent = ? and policy <> {EDGE_WAIT}

-- name: drop_first_edges
-- parent, the last child
delete from {t}edges where parent = ? and child <= ?

-- name: drop_edges_of_death
delete from {t}edges where parent = ? and policy = {EDGE_DEAD}

-- name: drop_edges_of_child
delete from {t}edges where child = ?

-- name: waiting_job
select worker, attempt, crashes, flags from {t}jobs where id = ? and state <> {RUNNING}
