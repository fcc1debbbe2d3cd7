-- dependencies: names that wait for the success of other names. Jobs belong to a name by their mark. See dependencies.py

-- name: has_dependencies
select 1 from {t}dependents where name = ?

-- name: has_dependency_mark
select exists (select 1 from {t}marks where job = ? and mark >= {PART} and mark < {PART_END})

-- name: dependents_of_job
-- the names that wait for the name of a job
select d.dependent, d.after
from {t}marks as m cross join {t}dependencies as d
where m.job = ? and d.after = m.mark

-- name: note_success
-- dependent, after, now. A success is not noted while the job that was released last has not started yet
update {t}dependencies
set noted = 1
where dependent = ?1 and after = ?2 and noted = 0 and not exists (
    select 1
    from {t}dependents as p
    cross join {t}jobs as j
    where p.name = ?1 and j.id = p.released and j.token = p.token and (j.expires is null or j.expires > ?3)
)

-- name: flag_dependency
update {t}jobs set flags = flags | {FLAG_DEPENDENCY} where id = ?

-- name: unblock_one
-- the job waits for one parent or name less
update {t}jobs set deps = deps - 1 where id = ?

-- name: unblock
-- blocked -> ready | scheduled
update {t}jobs set state = ?1, deps = 0, due = ?2, seq = case when seq < 0 then -?3 else ?3 end where id = ?4

-- name: add_waiting_job
insert into {t}edges (parent, child, policy, place) values (?, ?, {EDGE_IGNORE}, ?)

-- name: first_waiting_job
-- edge parent, dependent, now: the job to release, if every success is noted
select e.child, j.seq, j.deps, j.due, j.queue, j.lane, j.task, j.priority, j.crashes, j.buckets
from {t}edges as e
cross join {t}jobs as j
where e.parent = ?1 and e.place is not null and j.id = e.child and (j.expires is null or j.expires > ?3)
    and not exists (select 1 from {t}dependencies where dependent = ?2 and noted = 0)
order by e.place
limit 1

-- name: job_waits
-- a row if the job waits for dependencies
select j.seq, j.deps, j.due, j.queue, j.lane, j.task, j.priority, j.crashes, j.buckets
from {t}edges as e
cross join {t}jobs as j
where e.child = ? and e.place is not null and j.id = e.child

-- name: drop_waiting_job
delete from {t}edges where child = ? and place is not null

-- name: clear_notes
update {t}dependencies set noted = 0 where dependent = ? and noted = 1

-- name: set_released
update {t}dependents set released = ?1, token = (select token from {t}jobs where id = ?1) where name = ?2

-- name: dependents
select name from {t}dependents order by name

-- name: dependencies_of
select after, noted from {t}dependencies where dependent = ? order by after

-- name: waiting_jobs
select child from {t}edges where parent = ? and place is not null order by place limit {DEPENDENTS_SHOWN}

-- name: add_dependent
insert or ignore into {t}dependents (name) values (?)

-- name: drop_dependent
delete from {t}dependents where name = ?

-- name: add_dependency
insert or ignore into {t}dependencies (dependent, after) values (?, ?)

-- name: drop_dependency
delete from {t}dependencies where dependent = ? and after = ?
