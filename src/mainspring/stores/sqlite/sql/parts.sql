-- parts: who waits for whose success. They are named by the marks of their jobs

-- name: is_part
select 1 from {t}parts where name = ?

-- name: is_of_part
-- the marks that begin with ^@
select exists (select 1 from {t}marks where job = ? and mark >= '^@' and mark < '^A')

-- name: heard_by
-- who waits for the part of a job
select l.part, l.after from {t}marks as m cross join {t}links as l where m.job = ? and l.after = m.mark

-- name: note
-- not while the job that was released last is still to start
update {t}links
set noted = 1
where part = ?1 and after = ?2 and noted = 0 and not exists (
    select 1
    from {t}parts as p
    cross join {t}jobs as j
    where p.name = ?1 and j.id = p.released and j.token = p.token and (j.expires is null or j.expires > ?3)
)

-- name: join_part
update {t}jobs set flags = flags | 64 where id = ?

-- name: enter_line
insert into {t}edges (parent, child, policy, place) values (?, ?, 'ignore', ?)

-- name: first_in_line
-- if all is noted
select e.child, j.seq, j.deps, j.due, j.queue, j.lane, j.task, j.priority, j.crashes, j.buckets
from {t}edges as e
cross join {t}jobs as j
where e.parent = ?1 and e.place is not null and j.id = e.child and (j.expires is null or j.expires > ?3)
    and not exists (select 1 from {t}links where part = ?2 and noted = 0)
order by e.place
limit 1

-- name: in_line
select j.seq, j.deps, j.due, j.queue, j.lane, j.task, j.priority, j.crashes, j.buckets
from {t}edges as e
cross join {t}jobs as j
where e.child = ? and e.place is not null and j.id = e.child

-- name: leave_line
delete from {t}edges where child = ? and place is not null

-- name: take_notes
update {t}links set noted = 0 where part = ? and noted = 1

-- name: set_released
update {t}parts set released = ?1, token = (select token from {t}jobs where id = ?1) where name = ?2

-- name: parts
select name from {t}parts order by name

-- name: links_of
select after, noted from {t}links where part = ? order by after

-- name: line_of
select child from {t}edges where parent = ? and place is not null order by place limit 100

-- name: add_part
insert or ignore into {t}parts (name) values (?)

-- name: drop_part
delete from {t}parts where name = ?

-- name: add_link
insert or ignore into {t}links (part, after) values (?, ?)

-- name: drop_link
delete from {t}links where part = ? and after = ?
