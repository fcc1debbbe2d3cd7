-- lanes: the base lanes and the lanes beside them that have ready jobs and that a worker knowing p_tasks may take from
-- Hops from lane to lane through the index (all lanes beside a base begin with it, then ! # or ?), so the cost is
-- the number of lanes, not of jobs. Jobs inside a lane are alike: its head tells its buckets, and where a claim has to
-- begin: dead entries that lie before it are walked over once a turn. Base lanes in p_known are
-- left out: the caller goes there by itself.
create function {schema}.lanes_v1(p_bases text[], p_tasks text[], p_known text[])
returns {schema}.lane_v1[] language plpgsql as $$
declare
    v_lanes {schema}.lane_v1[];
begin
    with recursive hops as (
        select b.base, n.* from (
            select distinct u.base, u.base || case when u.base = any(p_known) then chr(1) else '' end as start
            from unnest(p_bases) as u(base)
        ) b cross join lateral (
            select j.lane, j.crashes > 0 and j.crashes >= j.crash_limit - 1 as suspect, j.buckets, j.sizes, j.parked, j.task,
                j.priority, j.seq
            from {schema}.jobs j
            where j.state = 'ready' and j.lane >= b.start and j.lane < b.base || '@'
            order by j.lane, j.priority desc, j.seq limit 1
        ) n
        union all
        select h.base, n.* from hops h cross join lateral (
            select j.lane, j.crashes > 0 and j.crashes >= j.crash_limit - 1 as suspect, j.buckets, j.sizes, j.parked, j.task,
                j.priority, j.seq
            from {schema}.jobs j
            where j.state = 'ready' and j.lane > h.lane and j.lane < h.base || '@'
            order by j.lane, j.priority desc, j.seq limit 1
        ) n
    )
    select array_agg(row(h.lane, h.suspect, h.buckets, h.sizes, h.priority, h.seq)::{schema}.lane_v1) into v_lanes
    from hops h where not h.parked or h.task = any(p_tasks);
    return coalesce(v_lanes, '{}');
end
$$;

-- gates: lock the buckets that claims of this turn may need, in the order of their names, before any job row
-- Those that look full are left out unless this turn's acks free or unblock something: a lane is taken only if all its
-- buckets are locked. A bucket that was pruned while nobody needed it is made anew.
create function {schema}.gates_v1(p_lanes {schema}.lane_v1[], p_acked bytea[]) returns text[] language plpgsql as $$
declare
    v_lanes {schema}.lane_v1[] := array(select l from unnest(p_lanes) l where l.buckets is not null);
    v_names text[];
begin
    insert into {schema}.buckets (name, size)
    select u.name, max(u.size) from unnest(v_lanes) l cross join unnest(l.buckets, l.sizes) as u(name, size)
    where not exists (select 1 from {schema}.buckets b where b.name = any(array[u.name]))
    group by u.name order by u.name collate "C"
    on conflict (name) do nothing;
    v_names := array(
        select b.name from unnest(v_lanes) l cross join unnest(l.buckets) as asked(name)
        join {schema}.buckets b on b.name = any(array[asked.name])
        where b.size > (select count(*) from {schema}.holds h where h.bucket = b.name)
        union
        select unnest(j.buckets) from {schema}.jobs j where j.id = any(p_acked)
        union
        select unnest(c.buckets) from {schema}.edges e join {schema}.jobs c on c.id = any(array[e.child]) where e.parent = any(p_acked)
    );
    perform 1 from {schema}.buckets b where b.name = any(v_names) order by b.name for update;
    return v_names;
end
$$;

-- room: how many more may run through each of these buckets, whose rows the caller has locked
create function {schema}.room_v1(p_gates text[]) returns integer[] language plpgsql as $$
begin
    return array(
        select coalesce(b.size, 0) - (select count(*)::integer from {schema}.holds h where h.bucket = g.name)
        from unnest(p_gates) with ordinality as g(name, n) left join {schema}.buckets b on b.name = any(array[g.name])
        order by g.n
    );
end
$$;

-- fit: the least room over these buckets; none where one of them is not locked, no bound without buckets
create function {schema}.fit_v1(p_buckets text[], p_gates text[], p_room integer[]) returns integer
language plpgsql immutable as $$
declare
    v_fit integer := 2147483647;
    v_name text;
begin
    if p_buckets is null then
        return v_fit;
    end if;
    foreach v_name in array p_buckets loop
        v_fit := least(v_fit, coalesce(p_room[array_position(p_gates, v_name)], 0));
    end loop;
    return v_fit;
end
$$;

-- use: the room that is left when n more run through these buckets
create function {schema}.use_v1(p_buckets text[], p_n integer, p_gates text[], p_room integer[]) returns integer[]
language plpgsql immutable as $$
declare
    v_room integer[] := p_room;
    v_name text;
begin
    if p_buckets is not null then
        foreach v_name in array p_buckets loop
            v_room[array_position(p_gates, v_name)] := v_room[array_position(p_gates, v_name)] - p_n;
        end loop;
    end if;
    return v_room;
end
$$;
