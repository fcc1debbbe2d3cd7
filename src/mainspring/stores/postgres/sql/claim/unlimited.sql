-- Choosing jobs from lanes without limits.

-- pick: choose and lock up to p_n ready jobs of these lanes, the first p_oldest by seq alone, then by (priority desc,
-- seq). For limited lanes see pick_limited. Locks exactly the rows that it returns: a row that is locked and not
-- claimed would be hidden from the claims of all other workers meanwhile.
-- returns the ids in the order of the claims
create function {schema}.pick_v1(p_lanes {schema}.lane_v1[], p_n integer, p_oldest integer, p_now bigint)
returns bytea[] language plpgsql as $$
declare
    v_head record;
    v_lane {schema}.lane_v1;
    v_chosen bytea[] := '{}';
    v_contended boolean;
    v_picked bytea[] := '{}';
    v_rest bytea[] := '{}';
begin
    if p_oldest > 0 then
        for v_head in
            select * from {schema}.find_oldest_heads_v1(p_lanes, least(p_n, p_oldest), p_now)
        loop
            exit when cardinality(v_picked) >= least(p_n, p_oldest);
            v_picked := v_picked || array(
                select j.id from {schema}.jobs j where j.id = v_head.id and j.state || '' = {READY} for update skip locked
            );
        end loop;
    end if;

    if cardinality(p_lanes) > 1 and cardinality(v_picked) < p_n then
        v_chosen := array(
            select h.id from unnest(p_lanes) l cross join lateral (
                select j.id, j.priority, j.seq from {schema}.jobs j
                where j.state = {READY} and j.lane = l.lane and (j.expires is null or j.expires > p_now)
                    and j.id <> all(v_picked)
                order by j.priority desc, j.seq limit p_n
            ) h order by h.priority desc, h.seq limit p_n - cardinality(v_picked)
        );
        v_rest := array(
            select j.id from {schema}.jobs j where j.id = any(v_chosen) and j.state || '' = {READY} for update skip locked
        );
    end if;

    -- One lane only, or other turns were quicker: go lane by lane and skip the rows that they have locked.
    v_contended := cardinality(p_lanes) = 1 or cardinality(v_rest) < cardinality(v_chosen);
    foreach v_lane in array p_lanes loop
        exit when not v_contended or cardinality(v_picked) + cardinality(v_rest) >= p_n;
        v_rest := v_rest || array(
            select j.id from {schema}.jobs j
            where j.state = {READY} and j.lane = v_lane.lane and (j.expires is null or j.expires > p_now)
                and j.id <> all(v_picked || v_rest)
            order by j.priority desc, j.seq limit p_n - cardinality(v_picked) - cardinality(v_rest) for update skip locked
        );
    end loop;

    return v_picked || array(
        select j.id from {schema}.jobs j where j.id = any(v_rest) order by j.priority desc, j.seq
    );
end
$$;

-- find_oldest_heads: the oldest jobs over all lanes, from the first jobs of each (lane, priority): at most p_n of each.
create function {schema}.find_oldest_heads_v1(p_lanes {schema}.lane_v1[], p_n integer, p_now bigint)
returns table (id bytea, lane text, buckets text[], costs bigint[], priority integer, seq bigint) language plpgsql as $$
#variable_conflict use_column
begin
    return query
    with recursive levels as (
        select l.lane, n.priority from unnest(p_lanes) l cross join lateral (
            select j.priority from {schema}.jobs j where j.state = {READY} and j.lane = l.lane
            order by j.priority desc limit 1
        ) n
        union all
        select v.lane, n.priority from levels v cross join lateral (
            select j.priority from {schema}.jobs j
            where j.state = {READY} and j.lane = v.lane and j.priority < v.priority
            order by j.priority desc limit 1
        ) n
    )
    select h.* from levels v cross join lateral (
        select j.id, j.lane::text, j.buckets, j.costs, j.priority, j.seq from {schema}.jobs j
        where j.state = {READY} and j.lane = v.lane and j.priority = v.priority
            and (j.expires is null or j.expires > p_now)
        order by j.seq limit p_n
    ) h order by h.seq;
end
$$;
