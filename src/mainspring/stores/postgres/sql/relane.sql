-- unspent: what an attempt that never began has cost of the limits of these buckets
create function {schema}.unspent_v1(p_names text[]) returns jsonb language sql immutable as $$
    select jsonb_object_agg(split_part(b.name, '=', 1), 0) from unnest(p_names) as b(name)
$$;

-- widen: of these jobs, which their acks have made ready, those that were handed back with buckets [name, cost, label] name
-- them too, and stand in the lane for it; of a limit that one names already nothing changes. returns them
create function {schema}.widen_v1(p_acks {schema}.ack_v1[], p_ids bytea[]) returns bytea[] language plpgsql as $$
declare
    v_wide bytea[];
begin
    with more as (
        select o.id, o.home, o.queue, m.pair ->> 0 as name, (m.pair ->> 1)::bigint as cost, m.pair ->> 2 as label
        from unnest(p_acks) a join {schema}.jobs o on o.id = any(array[a.id]) cross join jsonb_array_elements(a.buckets) as m(pair)
        where a.id = any(p_ids) and a."to" = 'ready' and not exists (
            select 1 from unnest(o.buckets) as b(name) where split_part(b.name, '=', 1) = split_part(m.pair ->> 0, '=', 1)
        )
    ), named as (
        select s.id, bool_or(s.cost <> 1) as dear, array_agg(s.name order by s.name collate "C") as names,
            array_agg(s.cost order by s.name collate "C") as costs
        from (
            select n.id, n.name, n.cost from more n
            union all
            select o.id, b.name, coalesce(b.cost, 1) from {schema}.jobs o cross join unnest(o.buckets, o.costs) as b(name, cost)
            where o.id = any(array(select n.id from more n))
        ) s group by s.id
    ), placed as (
        select n.id, {schema}.gated_v1(n.home, n.queue, jsonb_agg(n.label)) as home from more n group by n.id, n.home, n.queue
    ), moved as (
        update {schema}.jobs j
        set home = p.home, lane = {schema}.lane_of_v1(p.home, j.task, j.crashes, j.crash_limit, j.parked),
            buckets = n.names, costs = case when n.dear then n.costs end
        from placed p join named n on n.id = p.id
        where j.id = any(array[p.id])
        returning j.id
    )
    select coalesce(array_agg(m.id), '{}') into v_wide from moved m;
    return v_wide;
end
$$;
