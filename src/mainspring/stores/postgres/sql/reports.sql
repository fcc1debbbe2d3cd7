-- Reports of running attempts.

-- report: store progress, log lines and stream items of running attempts; _at is the position of the report that they
-- belong to. Guarded by a lock on the running row: a rescue that commits meanwhile wins. Of the log lines of a job the
-- newest p_lines are kept.
-- returns for each report whether its lease was good
create function {schema}.report_v1(
    p_worker text, p_id bytea[], p_token bigint[], p_progress bytea[],
    p_line_at integer[], p_when bigint[], p_level text[], p_text bytea[],
    p_item_at integer[], p_place bigint[], p_item bytea[], p_lines integer
) returns setof boolean
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    v_last bigint;
begin
    perform {schema}.guard_v1();
    -- Two reports of one job wait for each other; a child that is enqueued under the job does not wait.
    perform 1 from {schema}.jobs j where j.id = any(p_id) order by j.id for no key update;
    for v_at in 1 .. cardinality(p_id) loop
        if not exists (
            select 1 from {schema}.jobs j join {schema}.workers w on w.id = j.worker
            where j.id = p_id[v_at] and j.token = p_token[v_at] and j.worker || '' = p_worker and j.state || '' = {RUNNING}
                and not w.lost
        ) then
            return next false;
            continue;
        end if;
        if p_progress[v_at] is not null then
            insert into {schema}.progress (job, data) values (p_id[v_at], p_progress[v_at])
            on conflict (job) do update set data = excluded.data;
        end if;
        if v_at = any(p_line_at) then
            select coalesce(max(l.n), 0) into v_last from {schema}.logs l where l.job = p_id[v_at];
            insert into {schema}.logs (job, n, at, level, text)
            select p_id[v_at], v_last + u.n, u.at, u.level, u.text
            from (
                select row_number() over (order by x.n) as n, count(*) over () as total, x.at, x.level, x.text
                from unnest(p_line_at, p_when, p_level, p_text) with ordinality as x(report, at, level, text, n)
                where x.report = v_at
            ) u
            where u.n > u.total - p_lines;
            delete from {schema}.logs l where l.job = p_id[v_at] and l.n <= (
                select max(o.n) from {schema}.logs o where o.job = p_id[v_at]
            ) - p_lines;
        end if;
        insert into {schema}.items (job, n, data)
        select p_id[v_at], x.place, x.data from unnest(p_item_at, p_place, p_item) as x(report, place, data)
        where x.report = v_at
        on conflict (job, n) do update set data = excluded.data;
        return next true;
    end loop;
end
$$;
