-- pick: choose and lock up to p_n ready jobs of these lanes, the first p_oldest by seq alone, then by (priority desc, seq)
-- Locks exactly what it returns: a row locked and not taken would be hidden from everybody else's claim meanwhile.
-- returns the ids in the order of the claims
create function {schema}.pick_v1(p_lanes {schema}.lane_v1[], p_n integer, p_oldest integer, p_gates text[], p_now bigint)
returns bytea[] language plpgsql as $$
declare
    v_limited boolean := exists (select 1 from unnest(p_lanes) l where l.buckets is not null);
    v_room integer[] := case when cardinality(p_gates) > 0 then {schema}.room_v1(p_gates) end;
    v_head record;
    v_lane {schema}.lane_v1;
    v_chosen bytea[] := '{}';
    v_fit integer;
    v_contended boolean;
    v_got bytea[];
    v_picked bytea[] := '{}';
    v_rest bytea[] := '{}';
begin
    if p_oldest > 0 then
        for v_head in
            select * from {schema}.heads_by_age_v1(p_lanes, least(p_n, p_oldest), p_now)
        loop
            exit when cardinality(v_picked) >= least(p_n, p_oldest);
            if {schema}.fit_v1(v_head.buckets, p_gates, v_room) > 0 then
                v_got := array(
                    select j.id from {schema}.jobs j where j.id = v_head.id and j.state || '' = 'ready' for update skip locked
                );
                v_picked := v_picked || v_got;
                v_room := {schema}.use_v1(v_head.buckets, cardinality(v_got), p_gates, v_room);
            end if;
        end loop;
    end if;

    if cardinality(p_lanes) > 1 and cardinality(v_picked) < p_n then
        if v_limited then
            for v_head in
                select h.* from unnest(p_lanes) l cross join lateral (
                    select j.id, j.buckets, j.priority, j.seq from {schema}.jobs j
                    where j.state = 'ready' and j.lane = l.lane and (j.expires is null or j.expires > p_now)
                    order by j.priority desc, j.seq limit p_n
                ) h order by h.priority desc, h.seq
            loop
                exit when cardinality(v_picked) + cardinality(v_chosen) >= p_n;
                continue when v_head.id = any(v_picked);
                if {schema}.fit_v1(v_head.buckets, p_gates, v_room) > 0 then
                    v_chosen := v_chosen || v_head.id;
                    v_room := {schema}.use_v1(v_head.buckets, 1, p_gates, v_room);
                end if;
            end loop;
        else
            v_chosen := array(
                select h.id from unnest(p_lanes) l cross join lateral (
                    select j.id, j.priority, j.seq from {schema}.jobs j
                    where j.state = 'ready' and j.lane = l.lane and (j.expires is null or j.expires > p_now)
                        and j.id <> all(v_picked)
                    order by j.priority desc, j.seq limit p_n
                ) h order by h.priority desc, h.seq limit p_n - cardinality(v_picked)
            );
        end if;
        v_rest := array(
            select j.id from {schema}.jobs j where j.id = any(v_chosen) and j.state || '' = 'ready' for update skip locked
        );
    end if;

    -- One lane only, or others were quicker: go lane by lane past what they have locked. The room taken by a head
    -- that was lost to them is not given back here; the next turn sees it.
    v_contended := cardinality(p_lanes) = 1 or cardinality(v_rest) < cardinality(v_chosen);
    foreach v_lane in array p_lanes loop
        v_fit := least(p_n - cardinality(v_picked) - cardinality(v_rest), {schema}.fit_v1(v_lane.buckets, p_gates, v_room));
        exit when not v_contended;
        continue when v_fit <= 0;
        v_got := array(
            select j.id from {schema}.jobs j
            where j.state = 'ready' and j.lane = v_lane.lane and (j.expires is null or j.expires > p_now)
                and j.id <> all(v_picked || v_rest)
            order by j.priority desc, j.seq limit v_fit for update skip locked
        );
        v_rest := v_rest || v_got;
        v_room := {schema}.use_v1(v_lane.buckets, cardinality(v_got), p_gates, v_room);
    end loop;

    return v_picked || array(
        select j.id from {schema}.jobs j where j.id = any(v_rest) order by j.priority desc, j.seq
    );
end
$$;

-- heads_by_age: the oldest jobs over all lanes, from the heads of each (lane, priority); bounded per group
create function {schema}.heads_by_age_v1(p_lanes {schema}.lane_v1[], p_n integer, p_now bigint)
returns table (id bytea, buckets text[]) language plpgsql as $$
begin
    return query
    with recursive levels as (
        select l.lane, n.priority from unnest(p_lanes) l cross join lateral (
            select j.priority from {schema}.jobs j where j.state = 'ready' and j.lane = l.lane
            order by j.priority desc limit 1
        ) n
        union all
        select v.lane, n.priority from levels v cross join lateral (
            select j.priority from {schema}.jobs j
            where j.state = 'ready' and j.lane = v.lane and j.priority < v.priority
            order by j.priority desc limit 1
        ) n
    )
    select h.id, h.buckets from levels v cross join lateral (
        select j.id, j.buckets, j.seq from {schema}.jobs j
        where j.state = 'ready' and j.lane = v.lane and j.priority = v.priority
            and (j.expires is null or j.expires > p_now)
        order by j.seq limit p_n
    ) h order by h.seq;
end
$$;
