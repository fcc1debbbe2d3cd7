-- lanes: the base lanes and the lanes beside them that have ready jobs and that a worker knowing p_tasks may take from
-- Hops from lane to lane through the index (all lanes beside a base begin with it, then ! # or ?), so the cost is
-- the number of lanes, not of jobs. Jobs inside a lane are alike: its head tells its buckets, and where a claim has to
-- begin: dead entries that lie before it are walked over once a turn. Base lanes in p_known are
-- left out: the caller goes there by itself. Lanes with keys are passed with one hop, and stand here as their groups.
create function {schema}.lanes_v1(p_bases text[], p_tasks text[], p_known text[])
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
            cross join lateral (select case when j.buckets is null then 0 else {schema}.keyed_at_v1(j.home, j.queue) end as at) k
            where j.state = 'ready' and j.lane >= b.start and j.lane < b.base || '@'
            order by j.lane, j.priority desc, j.seq limit 1
        ) n
        union all
        select h.base, n.* from hops h cross join lateral (
            select j.lane, j.crashes > 0 and j.crashes >= j.crash_limit - 1 as suspect, j.buckets, j.costs, j.parked, j.task,
                j.priority, j.seq, k.at,
                (case when k.at > 0 then left(j.home, k.at - 1) || '>' else j.lane end) collate "C" as behind
            from {schema}.jobs j
            cross join lateral (select case when j.buckets is null then 0 else {schema}.keyed_at_v1(j.home, j.queue) end as at) k
            where j.state = 'ready' and j.lane > h.behind and j.lane < h.base || '@'
            order by j.lane, j.priority desc, j.seq limit 1
        ) n
    )
    select array_agg(row(h.lane, h.suspect, h.buckets, h.costs, h.priority, h.seq, false)::{schema}.lane_v1)
            filter (where h.at = 0 and (not h.parked or h.task = any(p_tasks))),
        array_agg(row(left(h.behind, h.at - 1), null, h.buckets, null, null, null, true)::{schema}.lane_v1) filter (where h.at > 0)
    into v_lanes, v_keyed from hops h;
    if v_keyed is null then
        return coalesce(v_lanes, '{}');
    end if;
    return coalesce(v_lanes, '{}') || {schema}.groups_v1(v_keyed, p_tasks);
end
$$;

-- groups: the groups of these lanes with keys that have one in their order; in their buckets are the gates alone
create function {schema}.groups_v1(p_keyed {schema}.lane_v1[], p_tasks text[]) returns {schema}.lane_v1[]
language plpgsql as $$
begin
    return array(
        with recursive hops as (
            select k.lane as start, k.buckets, n.grp from unnest(p_keyed) k cross join lateral (
                select l.grp from {schema}.lanes l where l.parked_on is null and l.grp >= k.lane || '=' and l.grp < k.lane || '>'
                order by l.grp limit 1
            ) n
            union all
            select h.start, h.buckets, n.grp from hops h cross join lateral (
                select l.grp from {schema}.lanes l where l.parked_on is null and l.grp > h.grp and l.grp < h.start || '>'
                order by l.grp limit 1
            ) n
        )
        select row(
            h.grp, starts_with(m.marks, '!'),
            -- Who claims from lanes of fair keys holds the lock of their queue.
            array(select b.name from unnest(h.buckets) as b(name) where strpos(b.name, '=') = 0) || case
                when {schema}.is_fair_v1(h.start, split_part(h.start, '/', 1)) then array['*' || split_part(h.start, '/', 1)]
            end,
            null, null, null, true
        )::{schema}.lane_v1
        from hops h cross join lateral (select substr(h.grp, length(h.start) + 2) as marks) m
        where strpos(m.marks, '?') = 0 or substr(m.marks, strpos(m.marks, '?') + 1) = any(p_tasks)
    );
end
$$;

-- note: a turn did not get all that it wanted from these lanes: that their gates are full is noted for who frees a place
-- there, if something is left that waits for one. returns the queues of such lanes, and the first moment at which one of
-- them lets something through
create function {schema}.note_v1(p_lanes {schema}.lane_v1[], p_locked text[], p_now bigint) returns {schema}.noted_v1
language plpgsql as $$
declare
    v_rooms {schema}.room_v1[] := {schema}.rooms_v1(
        array(select distinct g.name from unnest(p_lanes) l cross join unnest(l.buckets) as g(name)), p_now
    );
    v_lane {schema}.lane_v1;
    v_base text;
    v_head record;
    v_full text[];
    v_at bigint[];
    v_held text[] := '{}';
    v_first bigint;
begin
    foreach v_lane in array p_lanes loop
        continue when coalesce(cardinality(v_lane.buckets), 0) = 0;
        v_base := case when v_lane.keyed
            then left(v_lane.lane, {schema}.keyed_at_v1(v_lane.lane, split_part(v_lane.lane, '/', 1)) - 1) else v_lane.lane end;
        select j.buckets, j.costs into v_head from {schema}.jobs j
        where j.state = 'ready' and j.lane >= case when v_lane.keyed then v_base || '=' else v_base end
            and j.lane < case when v_lane.keyed then v_base || '>' else v_base || chr(1) end
        order by j.lane, j.priority desc, j.seq limit 1;
        continue when not found;
        select array_agg(g.name), array_agg({schema}.moment_v1(g.name, r.kind, coalesce(v_head.costs[g.n], 1), p_now))
        into v_full, v_at
        from unnest(v_head.buckets) with ordinality as g(name, n) join unnest(v_rooms) r on r.name = g.name
        where r.room < greatest(1, least(case when v_lane.keyed then 1 else coalesce(v_head.costs[g.n], 1) end, r.cap));
        continue when v_full is null;
        v_held := v_held || split_part(v_lane.lane, '/', 1);
        insert into {schema}.waits (bucket, queue)
        select g.name, split_part(v_lane.lane, '/', 1) from unnest(v_full) as g(name) where g.name = any(p_locked)
        on conflict do nothing;
        if array_position(v_at, null) is null then  -- else nobody knows
            v_first := least(v_first, (select max(m.at) from unnest(v_at) as m(at)));
        end if;
    end loop;
    return row(v_held, v_first);
end
$$;
