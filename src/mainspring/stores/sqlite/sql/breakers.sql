-- breakers: a breaker that has counted nothing yet has no row

-- name: breaker
select l.name, coalesce(l.override, l.size), l.per, l.burst, l.share, l.span,
    coalesce(b.rev, 0), coalesce(b.until, 0), coalesce(b.opened, 0), coalesce(b.doc, '')
from {t}limits as l left join {t}breakers as b on b.name = l.name
where l.name = ? and l.kind = {LIMIT_BREAKER}

-- name: add_breaker
insert into {t}breakers (name, rev, until, opened, doc)
select :name, :rev, coalesce(:until, 0), case when :until > 0 then :now else 0 end, :doc
where exists (select 1 from {t}limits where name = :name and kind = {LIMIT_BREAKER})
on conflict do nothing

-- until: null leaves the state as it is
-- name: swap_breaker
update {t}breakers
set rev = :rev, until = coalesce(:until, until), doc = :doc,
    opened = case when :until > 0 then :now when :until = 0 then 0 else opened end
where name = :name and rev = :expected

-- name: drop_breaker
delete from {t}breakers where name = ?

-- name: breaker_is_half_open
select 1 from {t}breakers where name = ? and until > 0 and until <= ?

-- name: probes_used
-- breaker, now, since when the breaker is half open, the lanes without keys that name the breaker. Returns the number of
-- jobs that probe, the number of holders, and when the first of these holders expires
select
    (
        select count(*)
        from {t}job_holds cross join {t}jobs on {t}jobs.id = {t}job_holds.job
        where {t}job_holds.bucket = ?1 and {t}jobs.started >= ?3
    ) + (
        select count(*)
        from json_each(?4) cross join {t}jobs indexed by {t}jobs_unkeyed on lane = value
        where state = {RUNNING} and flags & {FLAG_UNKEYED_ONLY} and started >= ?3
    ),
    count(*),
    min(until)
from {t}holders
where bucket = ?1 and until > ?2
