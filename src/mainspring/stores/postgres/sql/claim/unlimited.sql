-- Choosing jobs from lanes without limits.

-- pick: choose and lock up to p_n ready jobs of these lanes, by their order keys. For limited lanes see pick_limited.
-- Locks exactly the rows that it returns: a row that is locked and not claimed would be hidden from the claims of all
-- other workers meanwhile.
-- returns the ids in the order of the claims
create function {schema}.pick_v1(p_lanes {schema}.lane_v1[], p_n integer, p_now bigint) returns bytea[]
language plpgsql as $$
declare
    v_lane {schema}.lane_v1;
    v_chosen bytea[] := array(select h.id from {schema}.find_lane_heads_v1(p_lanes, p_n, p_now) h limit p_n);
    v_picked bytea[] := array(
        select j.id from {schema}.jobs j where j.id = any(v_chosen) and j.state || '' = {READY} for update skip locked
    );
begin
    if cardinality(v_picked) < cardinality(v_chosen) then
        -- Other turns were quicker: go lane by lane and skip the rows that they have locked.
        foreach v_lane in array p_lanes loop
            exit when cardinality(v_picked) >= p_n;
            v_picked := v_picked || array(
                select j.id from {schema}.jobs j
                where j.state = {READY} and j.lane = v_lane.lane and (j.expires is null or j.expires > p_now)
                    and j.id <> all(v_picked)
                order by j.priority desc, j.seq limit p_n - cardinality(v_picked) for update skip locked
            );
        end loop;
    end if;
    return array(
        select j.id from {schema}.jobs j where j.id = any(v_picked)
        order by {schema}.order_key_v1(j.seq, j.priority), j.seq
    );
end
$$;

-- find_lane_heads: the first jobs over all lanes, from the first jobs of each lane and priority: at most p_n of each.
create function {schema}.find_lane_heads_v1(p_lanes {schema}.lane_v1[], p_n integer, p_now bigint)
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
    ) h order by {schema}.order_key_v1(h.seq, h.priority), h.seq;
end
$$;
