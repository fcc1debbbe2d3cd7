-- finish: any live state -> succeeded | cancelled | dead

-- name: to_finished
insert or replace into {t}finished
    (id, state, reason, task, queue, lane, priority, attempt, epoch, crashes, crash_limit, early, token, worker,
     seq, enqueued, expires, started, finished, drop_at, keep, buckets, note, result, error, record)
select
    id, :state, :reason, task, queue, lane, priority, :attempt, epoch, :crashes, crash_limit, early, token, :worker,
    seq, enqueued, expires, started, :now, :now + keep, keep, buckets, :note, :result, :error, record
from {t}jobs
where id = :id

-- name: to_dead
insert or replace into {t}dead
    (id, state, reason, task, queue, lane, priority, attempt, epoch, crashes, crash_limit, early, token, worker,
     seq, enqueued, expires, started, finished, label, keep, buckets, note, result, error, record)
select
    id, :state, :reason, task, queue, lane, priority, :attempt, epoch, :crashes, crash_limit, early, token, :worker,
    seq, enqueued, expires, started, :now, :label, keep, buckets, :note, :result, :error, record
from {t}jobs
where id = :id

-- name: children
select e.child, e.policy, j.deps, j.due, j.queue, j.flags, j.lane, j.task, j.priority, j.crashes, j.buckets
from {t}edges as e
cross join {t}jobs as j
where e.parent = ? and j.id = e.child and j.state = {BLOCKED}
order by e.child

-- name: drop_edges_of_parent
delete from {t}edges where parent = ?

-- name: drop_edges_of_child
delete from {t}edges where child = ?

-- name: waiting_job
select worker, attempt, crashes, flags from {t}jobs where id = ? and state <> {RUNNING}
