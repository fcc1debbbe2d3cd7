-- Fair keys: lanes of one queue and priority are served by virtual time.
--
-- A claim puts its lane back by one over its weight. fair_clocks has the virtual time that a queue and priority has
-- reached; it is changed under the lock of the bucket "*" followed by the queue's name.

-- first_vtime: the virtual time of a lane that appears: one step behind the last claim. null for a lane without a fair
-- key
create function {schema}.first_vtime_v1(p_queue text, p_priority integer, p_step double precision) returns double precision
language plpgsql as $$
begin
    return case when p_step is not null then p_step
        + coalesce((select c.vtime from {schema}.fair_clocks c where c.queue = p_queue and c.priority = p_priority), 0) end;
end
$$;

-- next_fair_rows: the next rows in the order of these lane sets of one queue, without those in p_examined: the first of
-- each priority by virtual time, merged by the order keys of the jobs whose turn it is.
create function {schema}.next_fair_rows_v1(p_lane_sets text[], p_size integer, p_examined bigint[]) returns bigint[]
language plpgsql as $$
begin
    return array(
        select x.id from {schema}.list_levels_v1(p_lane_sets) v cross join lateral (
            select l.id, l.priority, l.vtime, l.seq from {schema}.keyed_lanes l
            where l.waits_for is null and l.vtime is not null and l.lane_set = v.lane_set and l.priority = v.priority
                and l.id <> all(p_examined)
            order by l.vtime, l.seq limit p_size
        ) x
        order by max({schema}.order_key_v1(x.seq, x.priority)) over (partition by x.priority order by x.vtime, x.seq),
            x.vtime, x.seq
        limit p_size
    );
end
$$;

-- find_fair_heads: the first jobs of these rows by virtual time: of each row as many as its share of p_n can be, or
-- with p_all as many as it has capacity for. seq is the place among other jobs: that of the job whose turn it is.
create function {schema}.find_fair_heads_v1(
    p_rows bigint[], p_n integer, p_all boolean, p_names text[], p_available bigint[], p_now bigint
) returns table (id bytea, lane text, buckets text[], costs bigint[], priority integer, seq bigint, keyed boolean, nth bigint)
language plpgsql as $$
begin
    if cardinality(p_rows) = 0 then
        return;
    end if;
    return query
    with rows as (
        select l.lane, l.priority, l.queue, l.vtime, l.step, greatest(l.vtime, c.vtime) as behind, least(p_n, (
            select greatest(coalesce(min(p_available[array_position(p_names, b.name)]), p_n), 0) from unnest(l.buckets) as b(name)
        )) as most
        from {schema}.read_lane_rows_v1(p_rows) l
        left join {schema}.fair_clocks c on c.queue = l.queue and c.priority = l.priority
    ), cuts as (
        select r.queue, r.priority, max(r.vtime) + case when count(*) >= p_n then 0 else p_n / sum(1 / r.step) end as cut
        from rows r group by r.queue, r.priority
    ), heads as (
        select x.*, r.queue, case when x.n = 1 then r.vtime else r.behind + (x.n - 1) * r.step end as vtime
        from rows r join cuts c on c.queue = r.queue and c.priority = r.priority
        cross join lateral (
            select j.id, j.lane::text, j.buckets, j.costs, j.priority, j.seq, row_number() over (order by j.seq) as n
            from (
                select * from {schema}.jobs j
                where j.state = {READY} and j.lane = r.lane and j.priority = r.priority
                    and (j.expires is null or j.expires > p_now)
                order by j.seq
                limit case when p_all then r.most else least(r.most, 1 + floor((c.cut - r.vtime) / r.step)) end
            ) j
        ) x
    )
    select h.id, h.lane, h.buckets, h.costs, h.priority,
        max(h.seq) over w, true, row_number() over w
    from heads h window w as (partition by h.queue, h.priority order by h.vtime, h.seq);
end
$$;

-- charge_fair_lanes: these jobs are claimed: put back the lanes with fair keys that have more jobs, and move the clocks
-- to where these lanes were. The caller has locked the buckets of the queues.
create function {schema}.charge_fair_lanes_v1(p_ids bytea[]) returns void language plpgsql as $$
begin
    with took as (
        select j.lane, j.priority, j.queue, count(*) as n, max(j.seq) as last
        from {schema}.jobs j where j.id = any(p_ids) and j.buckets is not null
        group by j.lane, j.priority, j.queue
    ), behind as (
        select l.id, t.*, l.step, m.seq as more,
            greatest(l.vtime, c.vtime) + (t.n - 1) * l.step as at
        from took t
        join {schema}.keyed_lanes l on l.lane = any(array[t.lane]) and l.priority = t.priority and l.step is not null
        left join {schema}.fair_clocks c on c.queue = any(array[t.queue]) and c.priority = t.priority
        left join lateral (
            select j.seq from {schema}.jobs j
            where j.state = {READY} and j.lane = t.lane and j.priority = t.priority and j.seq > t.last order by j.seq limit 1
        ) m on true
    ), put_back as (
        update {schema}.keyed_lanes l set vtime = b.at + b.step from behind b where l.id = any(array[b.id]) and b.more is not null
    )
    insert into {schema}.fair_clocks (queue, priority, vtime)
    select b.queue, b.priority, max(b.at) from behind b group by b.queue, b.priority
    on conflict (queue, priority) do update set vtime = greatest(fair_clocks.vtime, excluded.vtime);
end
$$;

-- prune_fair_clocks: delete the clocks of queues that have no lanes with fair keys.
create function {schema}.prune_fair_clocks_v1() returns void language plpgsql as $$
begin
    delete from {schema}.fair_clocks c where not exists (
        select 1 from {schema}.keyed_lanes l where l.lane >= c.queue || '/' and l.lane < c.queue || '0' and l.vtime is not null
    );
end
$$;
