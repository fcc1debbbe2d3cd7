-- Which lanes a turn may claim from, and what is noted if they had too little capacity.

-- find_lanes: the base lanes and the lanes beside them that have ready jobs and that a worker which knows p_tasks may
-- claim from. Hops from lane to lane through the index (the name of a lane beside a base lane begins with the base
-- lane, then "!", "#" or "?"), so the cost is the number of lanes, not of jobs. Jobs of a lane are alike: the first one
-- has the lane's buckets, and the place where a claim has to begin: dead index entries before it are walked over once
-- per turn. Base lanes in p_known are left out: the caller goes there itself. Keyed lanes are passed with one hop, and
-- are returned as their lane sets.
create function {schema}.find_lanes_v1(p_bases text[], p_tasks text[], p_known text[])
returns {schema}.lane_v1[] language plpgsql as $$
declare
    v_lanes {schema}.lane_v1[];
    v_keyed {schema}.lane_v1[];
begin
    with recursive hops as (
        select b.base, n.* from (
            select distinct u.base, u.base || case when u.base = any(p_known) then chr(1) else '' end as start
            from unnest(p_bases) as u(base)
        ) b cross join lateral (
            select j.lane, j.crashes > 0 and j.crashes >= j.crash_limit - 1 as suspect, j.buckets, j.costs, j.parked, j.task,
                j.priority, j.seq, k.at,
                (case when k.at > 0 then left(j.home, k.at - 1) || '>' else j.lane end) collate "C" as behind
            from {schema}.jobs j
            cross join lateral (select case when j.buckets is null
                then 0 else {schema}.key_position_v1(j.home, j.queue) end as at) k
            where j.state = {READY} and j.lane >= b.start and j.lane < b.base || '@'
            order by j.lane, j.priority desc, j.seq limit 1
        ) n
        union all
        select h.base, n.* from hops h cross join lateral (
            select j.lane, j.crashes > 0 and j.crashes >= j.crash_limit - 1 as suspect, j.buckets, j.costs, j.parked, j.task,
                j.priority, j.seq, k.at,
                (case when k.at > 0 then left(j.home, k.at - 1) || '>' else j.lane end) collate "C" as behind
            from {schema}.jobs j
            cross join lateral (select case when j.buckets is null
                then 0 else {schema}.key_position_v1(j.home, j.queue) end as at) k
            where j.state = {READY} and j.lane > h.behind and j.lane < h.base || '@'
            order by j.lane, j.priority desc, j.seq limit 1
        ) n
    )
    select array_agg(row(h.lane, h.suspect, h.buckets, h.costs, h.priority, h.seq, false)::{schema}.lane_v1)
            filter (where h.at = 0 and (not h.parked or h.task = any(p_tasks))),
        array_agg(row(left(h.behind, h.at - 1), null, h.buckets, null, null, null,
            true)::{schema}.lane_v1) filter (where h.at > 0)
    into v_lanes, v_keyed from hops h;
    if v_keyed is null then
        return coalesce(v_lanes, '{}');
    end if;
    return coalesce(v_lanes, '{}') || {schema}.find_lane_sets_v1(v_keyed, p_tasks);
end
$$;

-- find_lane_sets: the sets of these keyed lanes that have a lane in the order; buckets has the unkeyed buckets only.
create function {schema}.find_lane_sets_v1(p_keyed {schema}.lane_v1[], p_tasks text[]) returns {schema}.lane_v1[]
language plpgsql as $$
begin
    return array(
        with recursive hops as (
            select k.lane as start, k.buckets, n.lane_set from unnest(p_keyed) k cross join lateral (
                select l.lane_set from {schema}.keyed_lanes l
                    where l.waits_for is null and l.lane_set >= k.lane || '=' and l.lane_set < k.lane || '>'
                order by l.lane_set limit 1
            ) n
            union all
            select h.start, h.buckets, n.lane_set from hops h cross join lateral (
                select l.lane_set from {schema}.keyed_lanes l
                    where l.waits_for is null and l.lane_set > h.lane_set and l.lane_set < h.start || '>'
                order by l.lane_set limit 1
            ) n
        )
        select row(
            h.lane_set, starts_with(m.marks, '!'),
            -- A claim from lanes with fair keys holds the lock of their queue.
            array(select b.name from unnest(h.buckets) as b(name) where strpos(b.name, '=') = 0) || case
                when {schema}.is_fair_lane_v1(h.start, split_part(h.start, '/', 1)) then array['*' || split_part(h.start, '/', 1)]
            end,
            null, null, null, true
        )::{schema}.lane_v1
        from hops h cross join lateral (select substr(h.lane_set, length(h.start) + 2) as marks) m
        where strpos(m.marks, '?') = 0 or substr(m.marks, strpos(m.marks, '?') + 1) = any(p_tasks)
    );
end
$$;

-- note_held_back: a turn did not get all that it wanted from these lanes: if a job is left that waits for a full
-- unkeyed bucket, note the queue, so that the transaction that frees the bucket wakes it.
-- returns the queues of such lanes, and the first moment at which one of the buckets lets a job start
create function {schema}.note_held_back_v1(p_lanes {schema}.lane_v1[], p_locked text[], p_now bigint)
returns {schema}.held_back_v1
language plpgsql as $$
declare
    v_capacities {schema}.capacity_v1[] := {schema}.read_capacities_v1(
        array(select distinct g.name from unnest(p_lanes) l cross join unnest(l.buckets) as g(name)), p_now
    );
    v_lane {schema}.lane_v1;
    v_base text;
    v_head record;
    v_full text[];
    v_at bigint[];
    v_queues text[] := '{}';
    v_first bigint;
begin
    foreach v_lane in array p_lanes loop
        continue when coalesce(cardinality(v_lane.buckets), 0) = 0;
        v_base := case when v_lane.keyed
            then left(v_lane.lane, {schema}.key_position_v1(v_lane.lane, split_part(v_lane.lane, '/', 1)) - 1)
                else v_lane.lane end;
        select j.buckets, j.costs into v_head from {schema}.jobs j
        where j.state = {READY} and j.lane >= case when v_lane.keyed then v_base || '=' else v_base end
            and j.lane < case when v_lane.keyed then v_base || '>' else v_base || chr(1) end
        order by j.lane, j.priority desc, j.seq limit 1;
        continue when not found;
        select array_agg(g.name), array_agg({schema}.find_recheck_time_v1(g.name, r.kind, coalesce(v_head.costs[g.n], 1), p_now))
        into v_full, v_at
        from unnest(v_head.buckets) with ordinality as g(name, n) join unnest(v_capacities) r on r.name = g.name
        where r.available < greatest(1, least(case when v_lane.keyed then 1 else coalesce(v_head.costs[g.n], 1) end, r.cap));
        continue when v_full is null;
        v_queues := v_queues || split_part(v_lane.lane, '/', 1);
        insert into {schema}.waiting_queues (bucket, queue)
        select g.name, split_part(v_lane.lane, '/', 1) from unnest(v_full) as g(name) where g.name = any(p_locked)
        on conflict do nothing;
        if array_position(v_at, null) is null then  -- else the moment is not known
            v_first := least(v_first, (select max(m.at) from unnest(v_at) as m(at)));
        end if;
    end loop;
    return row(v_queues, v_first);
end
$$;
