-- Which lane a job is in, and the rows of keyed lanes. The grammar of lane names is in mainspring/jobs/lanes.py. Only this
-- file reads the name of a lane: where a job enters a lane it writes what the name says into the columns of keyed_lanes.
--
-- home is the lane by queue, kind of slot, limits and keys. lane is home with the marks for suspects ("!") and for jobs
-- whose task the worker did not know ("?task").

-- job_lane: the lane of a job: its home, as a suspect, parked for workers that know its task.
create function {schema}.job_lane_v1(p_home text, p_task text, p_crashes integer, p_limit integer, p_parked boolean)
returns text language sql immutable as $$
    select p_home || case when p_crashes > 0 and p_crashes >= p_limit - 1 then '!' else '' end
        || case when p_parked then '?' || p_task else '' end
$$;

-- key_position: where the keys begin in the home of a limited job, counted from 1; 0 if it has no keys.
create function {schema}.key_position_v1(p_home text, p_queue text) returns integer language sql immutable as $$
    select case when strpos(substr(p_home, length(p_queue) + 2), '=') = 0 then 0
        else strpos(substr(p_home, length(p_queue) + 2), '=') + length(p_queue) + 1 end
$$;

-- is_fair_lane: whether a lane, or a lane set, of this queue has fair keys.
create function {schema}.is_fair_lane_v1(p_lane text, p_queue text) returns boolean language sql immutable as $$
    select strpos(split_part(substr(p_lane, length(p_queue) + 2), '=', 1), '#*') > 0
$$;

-- is_unlimited_fair_set: whether this is a set of lanes with fair keys whose jobs name no limit.
create function {schema}.is_unlimited_fair_set_v1(p_lane_set text) returns boolean language sql immutable as $$
    select strpos(split_part(substr(p_lane_set, strpos(p_lane_set, '/')), '?', 1), '#*=') > 0
$$;

-- fair_step: how far one claim puts back the lane of a fair key: one over its weight. null for a lane without a fair key
create function {schema}.fair_step_v1(p_lane text, p_queue text) returns double precision language sql immutable as $$
    select case when {schema}.is_fair_lane_v1(p_lane, p_queue)
        then 1 / split_part(substr(p_lane, {schema}.key_position_v1(p_lane, p_queue) + 1), '*', 1)::double precision end
$$;

-- add_lane_rows: these jobs may have become ready, or may have a new priority: give each keyed lane a row in its place.
-- A row that exists is locked, so that a claim which finds its lane empty does not delete it. If a claim has deleted
-- the row first, this function waits for the claim and inserts a new row. p_open: a caller's transaction that may stay
-- open for long: nothing is locked, and a row is inserted in any case.
create function {schema}.add_lane_rows_v1(p_ids bytea[], p_open boolean) returns void language plpgsql as $$
declare
    v_heads {schema}.lane_head_v1[] := array(
        select row(
            j.lane, j.priority, min(j.seq), left(j.home, k.at) || substr(j.lane, length(j.home) + 1), j.queue, j.buckets
        )::{schema}.lane_head_v1
        from {schema}.jobs j cross join lateral (select {schema}.key_position_v1(j.home, j.queue) as at) k
        where j.id = any(p_ids) and j.buckets is not null and k.at > 0 and j.state || '' = {READY}
        group by j.lane, j.priority, j.home, k.at, j.queue, j.buckets
    );
    v_present {schema}.lane_head_v1[] := '{}';
begin
    if cardinality(v_heads) = 0 then
        return;
    end if;
    if not p_open and current_setting('transaction_isolation') = 'read committed' then
        v_present := array(
            select row(l.lane, l.priority, 0, null, null, null)::{schema}.lane_head_v1
                from unnest(v_heads) n join {schema}.keyed_lanes l
                on l.lane = any(array[n.lane]) and l.priority = n.priority and l.seq <= n.seq
            for key share of l
        );
    end if;
    -- Grouped: to search a list for each lane of a large batch takes longer than a call may.
    insert into {schema}.keyed_lanes (lane, priority, seq, lane_set, queue, buckets, step, vtime)
    select a.*, f.step, {schema}.first_vtime_v1(a.queue, a.priority, f.step)
    from (
        select s.lane, s.priority, max(s.seq) as seq, max(s.lane_set) as lane_set, max(s.queue) as queue,
            max(s.buckets) as buckets
        from (
            select n.*, false as there from unnest(v_heads) n union all select t.*, true from unnest(v_present) t
        ) s
        group by s.lane, s.priority having not bool_or(s.there)
    ) a cross join lateral (select {schema}.fair_step_v1(a.lane, a.queue) as step offset 0) f;
end
$$;

-- lane_with_limits: the home of a job with more limits: base lane, "#", labels of unkeyed limits in order, and labels
-- of keys if there are any. The fair key stands before the other keys, and is written "**" among the unkeyed labels if
-- the jobs are limited.
create function {schema}.lane_with_limits_v1(p_home text, p_queue text, p_labels jsonb) returns text
language plpgsql immutable as $$
declare
    v_rest text := substr(p_home, length(p_queue) + 1);
    v_at integer := strpos(v_rest, '#');
    v_base text := p_queue || case when v_at = 0 then v_rest else left(v_rest, v_at - 1) end;
    v_unkeyed text := case when v_at = 0 then '' else substr(v_rest, v_at + 1) end;
    v_keys text := case when strpos(v_unkeyed, '=') = 0 then '' else substr(v_unkeyed, strpos(v_unkeyed, '=')) end;
begin
    v_unkeyed := left(v_unkeyed, length(v_unkeyed) - length(v_keys));
    return (
        select v_base || '#' || coalesce(string_agg(g.label, ',' order by g.label collate "C") filter (where not g.keyed), '')
            || coalesce('=' || string_agg(g.label, ',' order by strpos(g.label, '*') = 0,
                g.label collate "C") filter (where g.keyed), '')
        from (
            select u.label, u.keyed from (
                select case x.label when '*' then '**' else x.label end as label, false as keyed
                from unnest(string_to_array(v_unkeyed, ',')) as x(label)
                union all
                select x.label, true from unnest(string_to_array(substr(v_keys, 2), ',')) as x(label)
            ) u where u.label <> ''
            union
            select l.label, strpos(l.label, '=') > 0 from jsonb_array_elements_text(p_labels) as l(label)
        ) g
    );
end
$$;

-- add_buckets_to_jobs: of these jobs, which their acks have made ready, those that were handed back with buckets [name,
-- cost, label] name these buckets too and move to the lane for them. A limit that the job names already is left as it
-- is.
-- returns the changed jobs
create function {schema}.add_buckets_to_jobs_v1(p_acks {schema}.ack_v1[], p_ids bytea[]) returns bytea[] language plpgsql as $$
declare
    v_changed bytea[];
begin
    with more as (
        select o.id, o.home, o.queue, m.pair ->> 0 as name, (m.pair ->> 1)::bigint as cost, m.pair ->> 2 as label
        from unnest(p_acks) a join {schema}.jobs o on o.id = any(array[a.id])
            cross join jsonb_array_elements(a.buckets) as m(pair)
        where a.id = any(p_ids) and a."to" = {READY} and not exists (
            select 1 from unnest(o.buckets) as b(name) where split_part(b.name, '=', 1) = split_part(m.pair ->> 0, '=', 1)
        )
    ), named as (
        select s.id, bool_or(s.cost <> 1) as costly, array_agg(s.name order by s.name collate "C") as names,
            array_agg(s.cost order by s.name collate "C") as costs
        from (
            select n.id, n.name, n.cost from more n
            union all
            select o.id, b.name, coalesce(b.cost, 1) from {schema}.jobs o cross join unnest(o.buckets, o.costs) as b(name, cost)
            where o.id = any(array(select n.id from more n))
        ) s group by s.id
    ), placed as (
        select n.id, {schema}.lane_with_limits_v1(n.home, n.queue, jsonb_agg(n.label)) as home
            from more n group by n.id, n.home, n.queue
    ), moved as (
        update {schema}.jobs j
        set home = p.home, lane = {schema}.job_lane_v1(p.home, j.task, j.crashes, j.crash_limit, j.parked),
            buckets = n.names, costs = case when n.costly then n.costs end
        from placed p join named n on n.id = p.id
        where j.id = any(array[p.id])
        returning j.id
    )
    select coalesce(array_agg(m.id), '{}') into v_changed from moved m;
    return v_changed;
end
$$;
