-- Schedules: rows with a revision number, and the runs of each schedule.

-- swap_schedule: replace the row of a schedule if it has revision p_rev; 0: if there is no row. Transactions that
-- create or replace the same schedule wait for each other at its row. The caller enqueues the jobs of the swap in the
-- same statement, and only if this says ok: so the row is locked before all that an enqueue locks.
-- returns whether it was replaced, now, the revision, and the occurrence that another job has taken
create function {schema}.swap_schedule_v1(
    p_name text, p_rev bigint, p_doc bytea, p_look bigint, p_at bigint[], p_job bytea[], p_run bytea[], p_keep bigint,
        p_now bigint
) returns table (ok boolean, now bigint, rev bigint, taken bigint)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off as $$
#variable_conflict use_column
declare
    v_row {schema}.schedules;
    v_now bigint;
    v_rev bigint;
    v_taken bigint;
begin
    perform {schema}.guard_v1();
    loop
        select * into v_row from {schema}.schedules s where s.name = p_name for update;
        exit when found or p_rev <> 0 or p_doc is null;
        insert into {schema}.schedules (name, rev) values (p_name, 0) on conflict (name) do nothing;
    end loop;
    -- New statements: they see what the last transaction wrote that locked the row.
    v_now := {schema}.now_v1(p_now);
    v_rev := case when v_row.doc is null then 0 else v_row.rev end;
    v_taken := (
        select u.at from unnest(p_at, p_job) with ordinality as u(at, job, n)
        join {schema}.schedule_runs r on r.schedule = p_name and r.at = u.at
        where r.job <> u.job order by u.n limit 1
    );
    if v_rev <> p_rev or v_taken is not null then
        return query select false, v_now, v_rev, case when v_rev = p_rev then v_taken end;
        return;
    end if;
    v_rev := greatest(v_row.rev + 1, v_now);
    update {schema}.schedules s set rev = v_rev, look = p_look, doc = p_doc where s.name = p_name;
    if p_doc is null then
        delete from {schema}.schedule_runs r where r.schedule = p_name;
        return query select true, v_now, 0::bigint, null::bigint;
        return;
    end if;
    insert into {schema}.schedule_runs (schedule, at, job, doc)
    select p_name, u.at, u.job, u.doc from unnest(p_at, p_job, p_run) as u(at, job, doc)
    on conflict (schedule, at) do update set job = excluded.job, doc = excluded.doc;
    delete from {schema}.schedule_runs r where r.schedule = p_name and r.at <= (
        select o.at from {schema}.schedule_runs o where o.schedule = p_name order by o.at desc offset p_keep limit 1
    );
    return query select true, v_now, v_rev, null::bigint;
end
$$;

-- due_schedules: the schedules that are due for a look, the earliest first, at most one more than p_limit. Before them
-- one row without
-- name: its look is the next later one
create function {schema}.due_schedules_v1(p_limit bigint, p_now bigint)
returns table (now bigint, name text, rev bigint, look bigint, doc bytea)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off as $$
#variable_conflict use_column
declare
    v_now bigint := {schema}.now_v1(p_now);
begin
    return query select v_now, null::text, null::bigint, (
        select s.look from {schema}.schedules s where s.look > v_now order by s.look, s.name limit 1
    ), null::bytea;
    return query select v_now, s.name::text, s.rev, s.look, s.doc from {schema}.schedules s where s.look <= v_now
    order by s.look, s.name limit p_limit + 1;
end
$$;

-- prune_schedules: delete what was left of schedules that were deleted a day ago. Their revisions are moments, or above
-- these.
create function {schema}.prune_schedules_v1(p_now bigint) returns void language plpgsql as $$
begin
    delete from {schema}.schedules s where s.name = any(array(
        select o.name from {schema}.schedules o where o.doc is null and o.rev < p_now - {DAY} limit {PRUNED_SCHEDULES}
        for update skip locked
    ));
end
$$;
