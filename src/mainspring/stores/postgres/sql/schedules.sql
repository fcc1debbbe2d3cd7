-- swap: exchange the row of a schedule if it has the number that was seen; p_rev 0: if there is none
-- Two who make the same schedule wait for one another at its row; so do all who exchange it. The caller enqueues what
-- belongs to it in the same statement, and only if this says ok: so this row is locked before all that an enqueue locks.
create function {schema}.swap_v1(
    p_name text, p_rev bigint, p_doc bytea, p_look bigint, p_at bigint[], p_job bytea[], p_run bytea[], p_keep bigint, p_now bigint
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
    -- New statements: they see what the last holder of the row wrote.
    v_now := {schema}.now_v1(p_now);
    v_rev := case when v_row.doc is null then 0 else v_row.rev end;
    v_taken := (
        select u.at from unnest(p_at, p_job) with ordinality as u(at, job, n)
        join {schema}.runs r on r.schedule = p_name and r.at = u.at
        where r.job <> u.job order by u.n limit 1
    );
    if v_rev <> p_rev or v_taken is not null then
        return query select false, v_now, v_rev, case when v_rev = p_rev then v_taken end;
        return;
    end if;
    v_rev := greatest(v_row.rev + 1, v_now);
    update {schema}.schedules s set rev = v_rev, look = p_look, doc = p_doc where s.name = p_name;
    if p_doc is null then
        delete from {schema}.runs r where r.schedule = p_name;
        return query select true, v_now, 0::bigint, null::bigint;
        return;
    end if;
    insert into {schema}.runs (schedule, at, job, doc)
    select p_name, u.at, u.job, u.doc from unnest(p_at, p_job, p_run) as u(at, job, doc)
    on conflict (schedule, at) do update set job = excluded.job, doc = excluded.doc;
    delete from {schema}.runs r where r.schedule = p_name and r.at <= (
        select o.at from {schema}.runs o where o.schedule = p_name order by o.at desc offset p_keep limit 1
    );
    return query select true, v_now, v_rev, null::bigint;
end
$$;

-- look: the schedules that are to be looked at now, the first first, one more than p_limit; before them a row without
-- name: when the next of the others is
create function {schema}.look_v1(p_limit bigint, p_now bigint)
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

-- tidy_schedules: what was left of schedules that went a day ago. Their numbers are moments, or above those
create function {schema}.tidy_schedules_v1(p_now bigint) returns void language plpgsql as $$
begin
    delete from {schema}.schedules s where s.name = any(array(
        select o.name from {schema}.schedules o where o.doc is null and o.rev < p_now - 86400000000 limit 1000
        for update skip locked
    ));
end
$$;
