-- Lanes that wait for capacity.
--
-- A keyed lane (see lanes.sql) has a row in keyed_lanes for each priority in which it has ready jobs. Claims read these rows in their order. A row whose first job has no capacity leaves the order:
-- waits_for names the bucket, recheck_at the moment at which the bucket may have capacity again, if that is known. "To
-- recheck" a row means to put it back into the order. A lane without keys has no row; if its unkeyed bucket is full,
-- waiting_queues notes the queue.

-- read_lane_rows: these rows. A function, so that no plan walks all rows for a condition on a few of them.
create function {schema}.read_lane_rows_v1(p_ids bigint[]) returns setof {schema}.keyed_lanes language plpgsql as $$
begin
    return query select l.* from unnest(p_ids) as i(id) join {schema}.keyed_lanes l on l.id = any(array[i.id]);
end
$$;

-- recheck_lanes: these buckets, which the caller has locked, may have capacity: of each lane set, as many lanes that
-- wait for one of them as it has places go back into the order: the first by their order keys. Lanes of a set differ
-- only in their other keys: a lane that must wait for one of these, or is empty, rechecks the next lane (see
-- settle_lane_rows). p_rates: also for rates, to which something was given back.
-- returns the rechecked rows
create function {schema}.recheck_lanes_v1(p_names text[], p_rates boolean, p_now bigint) returns bigint[] language plpgsql as $$
declare
    c_most constant integer := {RECHECKED_LANES};
    v_lanes bigint[];
begin
    if not exists (select 1 from {schema}.keyed_lanes l where l.waits_for = any(p_names)) then
        return '{}';
    end if;
    with recursive free as (
        select r.name, least(r.available, c_most) as places
        from unnest({schema}.read_capacities_v1(array(select distinct u.name from unnest(p_names) as u(name)), p_now)) r
        where r.available > 0 and (p_rates or coalesce(r.kind, {LIMIT_CONCURRENCY}) = {LIMIT_CONCURRENCY})
    ), sets as (
        select f.name, f.places, n.lane_set from free f cross join lateral (
            select l.lane_set from {schema}.keyed_lanes l where l.waits_for = f.name order by l.lane_set limit 1
        ) n
        union all
        select g.name, g.places, n.lane_set from sets g cross join lateral (
            select l.lane_set from {schema}.keyed_lanes l where l.waits_for = g.name and l.lane_set > g.lane_set
                order by l.lane_set limit 1
        ) n
    ), levels as (
        select g.*, n.priority from sets g cross join lateral (
            select l.priority from {schema}.keyed_lanes l where l.waits_for = g.name and l.lane_set = g.lane_set
                order by l.priority desc limit 1
        ) n
        union all
        select v.name, v.places, v.lane_set, n.priority from levels v cross join lateral (
            select l.priority from {schema}.keyed_lanes l where l.waits_for = v.name and l.lane_set = v.lane_set
                and l.priority < v.priority
            order by l.priority desc limit 1
        ) n
    ), first as (
        select f.id, v.places, row_number() over (
            partition by v.name, v.lane_set order by {schema}.order_key_v1(f.seq, v.priority), f.id
        ) as nth
        from levels v cross join lateral (
            select l.id, l.seq from {schema}.keyed_lanes l where l.waits_for = v.name and l.lane_set = v.lane_set
                and l.priority = v.priority
            order by l.seq limit v.places
        ) f
    )
    select coalesce(array_agg(f.id order by f.id), '{}') into v_lanes from first f
    where f.nth <= f.places;
    perform 1 from unnest(v_lanes) as i(id) join {schema}.keyed_lanes l on l.id = any(array[i.id]) for no key update of l;
    update {schema}.keyed_lanes l set waits_for = null, recheck_at = null from unnest(v_lanes) as i(id)
        where l.id = any(array[i.id]);
    return v_lanes;
end
$$;

-- recheck_due_lanes: recheck lanes whose moment has come. Rows that another transaction has locked are skipped.
-- returns the queues in which a job may start
create function {schema}.recheck_due_lanes_v1(p_limit integer, p_now bigint) returns text[] language plpgsql as $$
declare
    v_lanes bigint[] := array(
        select l.id from {schema}.keyed_lanes l where l.recheck_at <= p_now
        order by l.recheck_at limit p_limit for no key update skip locked
    );
    v_woken text[];
begin
    if cardinality(v_lanes) = 0 then
        return '{}';
    end if;
    with opened as (
        update {schema}.keyed_lanes l set waits_for = null, recheck_at = null from unnest(v_lanes) as i(id)
        where l.id = any(array[i.id]) returning l.queue
    )
    select array(select distinct o.queue from opened o) into v_woken;
    return v_woken;
end
$$;

-- recheck_left_lanes: a job left these lanes in another way than by a claim: the job behind it may not have to wait.
-- A row that a claim has locked is skipped, for that claim settles it.
create function {schema}.recheck_left_lanes_v1(p_lanes text[]) returns void language plpgsql as $$
begin
    update {schema}.keyed_lanes l set waits_for = null, recheck_at = null
    where l.id = any(array(
        select x.id from {schema}.keyed_lanes x where x.lane = any(p_lanes) and x.recheck_at is not null
        for no key update skip locked
    ));
end
$$;

-- list_wakeups: the queues to wake for the capacity that is left in these buckets, which the caller has locked: the
-- queues of lanes that were rechecked and are still in the order, and the queues noted in waiting_queues.
create function {schema}.list_wakeups_v1(p_names text[], p_rechecked bigint[], p_rates boolean, p_now bigint) returns text[]
language plpgsql as $$
declare
    v_woken text[] := '{}';
begin
    if cardinality(p_rechecked) > 0 then
        v_woken := array(
            select distinct l.queue from {schema}.read_lane_rows_v1(p_rechecked) l
            where l.waits_for is null
        );
    end if;
    if exists (select 1 from {schema}.waiting_queues w where w.bucket = any(p_names)) then
        with waiting as (
            delete from {schema}.waiting_queues w
            where w.bucket = any(array(
                select r.name from unnest({schema}.read_capacities_v1(p_names, p_now)) r
                where r.available > 0 and (p_rates or coalesce(r.kind, {LIMIT_CONCURRENCY}) in ({LIMIT_CONCURRENCY},
                    {LIMIT_BREAKER}))
            ))
            returning w.queue
        )
        select v_woken || array(select distinct t.queue from waiting t) into v_woken;
    end if;
    return v_woken;
end
$$;

-- recheck_freed: jobs or holders left these buckets, which the caller has locked. returns the queues in which a job may
-- start
create function {schema}.recheck_freed_v1(p_names text[], p_rates boolean, p_now bigint) returns text[] language plpgsql as $$
begin
    if cardinality(p_names) = 0 then
        return '{}';
    end if;
    return {schema}.list_wakeups_v1(p_names, {schema}.recheck_lanes_v1(p_names, p_rates, p_now), p_rates, p_now);
end
$$;

-- waits_for_rate: whether the lane waits for a moment at which a rate lets its first job start.
create function {schema}.waits_for_rate_v1(p_row {schema}.keyed_lanes) returns boolean language plpgsql stable as $$
begin
    return p_row.recheck_at is not null and exists (
        select 1 from {schema}.limits k
        where k.name = any(array[split_part(p_row.waits_for, '=', 1)]) and k.kind in ({LIMIT_RATE}, {LIMIT_SMOOTH})
    );
end
$$;

-- find_first_jobs: of each of these rows whose buckets are all locked, the seq of the first ready job of the lane, null
-- if the lane is empty; the bucket that this job waits for, null if it may start; the moment at which to look again, if
-- that is known; whether a rate makes it wait; whether the lane has another of these rows; and the place of the job in
-- the order. A row behind a row of the same lane that waits for a rate waits for the same.
create function {schema}.find_first_jobs_v1(
    p_examined bigint[], p_locked text[], p_capacities {schema}.capacity_v1[], p_now bigint
) returns table (
    id bigint, lane text, buckets text[], seq bigint, head bigint, name text, moment bigint, by_rate boolean, again boolean,
    place bigint
) language sql stable as $$
    select l.id, l.lane, l.buckets, l.seq, h.seq, coalesce(a.name, f.name),
        case when a.name is null then f.moment else a.moment end, a.name is not null or f.by_rate,
        row_number() over (partition by l.lane, l.priority order by l.id) > 1,
        {schema}.order_key_v1(coalesce(h.seq, l.seq), l.priority)
    from {schema}.read_lane_rows_v1(p_examined) l
    left join lateral (
        select j.seq, j.costs from {schema}.jobs j
        where j.state = {READY} and j.lane = l.lane and j.priority = l.priority order by j.seq limit 1
    ) h on true
    left join lateral (
        -- A full unkeyed bucket holds back the whole lane set: its lanes stay in the order.
        select r.name, {schema}.find_recheck_time_v1(r.name, r.kind, coalesce(h.costs[u.n], 1), p_now) as moment,
            r.unit > 0 as by_rate
        from unnest(l.buckets) with ordinality as u(name, n) join unnest(p_capacities) r on r.name = u.name
        where h.seq is not null and r.available < greatest(1, least(coalesce(h.costs[u.n], 1), r.cap))
            and (r.available > 0 or strpos(r.name, '=') > 0)
        order by 2 desc nulls first limit 1
    ) f on true
    left join lateral (
        select o.waits_for as name, o.recheck_at as moment from {schema}.keyed_lanes o
        where h.seq is not null and o.lane = l.lane and o.priority <> l.priority and {schema}.waits_for_rate_v1(o)
            and {schema}.order_key_v1(o.seq, o.priority) < {schema}.order_key_v1(h.seq, l.priority)
        order by {schema}.order_key_v1(o.seq, o.priority) limit 1
    ) a on true
    where l.buckets <@ p_locked
$$;

-- settle_lane_rows: bring rows that a claim examined up to date, if the claim has locked all their buckets: a row moves
-- to the place of its first job; waits, if that job has no capacity; is deleted, if the lane is empty. Capacity that a
-- waiting or deleted row leaves unused is passed on to other lanes.
-- returns the rows that were rechecked for that, and the first moment at which one of the waiting rows may be rechecked
create function {schema}.settle_lane_rows_v1(p_examined bigint[], p_locked text[], p_now bigint) returns {schema}.settled_v1
language plpgsql as $$
declare
    v_capacities {schema}.capacity_v1[] := {schema}.read_capacities_v1(
        array(
            select distinct b.name from {schema}.read_lane_rows_v1(p_examined) l
            cross join unnest(l.buckets) as b(name) where l.buckets <@ p_locked
        ), p_now
    );
    v_row record;
    v_id bigint[] := '{}';
    v_seq bigint[] := '{}';
    v_on text[] := '{}';
    v_until bigint[] := '{}';
    v_over bigint[] := '{}';
    v_left text[] := '{}';
    v_rate_lanes text[] := '{}';
    v_rate_buckets text[] := '{}';
    v_rate_times bigint[] := '{}';
    v_at integer;
begin
    for v_row in
        select r.* from {schema}.find_first_jobs_v1(p_examined, p_locked, v_capacities, p_now) r order by r.place
    loop
        -- A row behind a row of the same lane that waits for a rate waits with it.
        v_at := array_position(v_rate_lanes, v_row.lane::text);
        if v_at is not null then
            v_row.name := v_rate_buckets[v_at];
            v_row.moment := v_rate_times[v_at];
        elsif v_row.by_rate and v_row.moment is not null and not v_row.again then
            v_rate_lanes := array_append(v_rate_lanes, v_row.lane::text);
            v_rate_buckets := array_append(v_rate_buckets, v_row.name::text);
            v_rate_times := array_append(v_rate_times, v_row.moment);
        end if;
        if v_row.head is null or v_row.again then
            v_over := array_append(v_over, v_row.id);
            v_left := v_left || v_row.buckets;
        elsif v_row.name is not null or v_row.head <> v_row.seq then
            v_id := array_append(v_id, v_row.id);
            v_seq := array_append(v_seq, v_row.head);
            v_on := array_append(v_on, v_row.name);
            v_until := array_append(v_until, v_row.moment);
            if v_row.name is not null then
                v_left := v_left || array_remove(v_row.buckets, v_row.name);
            end if;
        end if;
    end loop;
    update {schema}.keyed_lanes l set seq = u.seq, waits_for = u.name, recheck_at = u.until
    from unnest(v_id, v_seq, v_on, v_until) as u(id, seq, name, until) where l.id = any(array[u.id]);
    if cardinality(v_over) > 0 then
        perform {schema}.delete_empty_lane_rows_v1(v_over);
    end if;
    return row(
        case when cardinality(v_left) > 0 then {schema}.recheck_lanes_v1(v_left, false, p_now) else '{}' end,
        (select min(u.until) from unnest(v_until) as u(until))
    )::{schema}.settled_v1;
end
$$;

-- delete_empty_lane_rows: delete these rows, whose lanes were found empty or have another row. A row that got a job
-- meanwhile stays.
create function {schema}.delete_empty_lane_rows_v1(p_ids bigint[]) returns void language plpgsql as $$
declare
    v_empty bigint[];
begin
    v_empty := array(
        select l.id from unnest(p_ids) as i(id) join {schema}.keyed_lanes l on l.id = any(array[i.id])
            for update of l skip locked
    );
    -- A new statement: it sees the jobs of transactions that had locked a row before.
    delete from {schema}.keyed_lanes l using unnest(v_empty) as i(id) where l.id = any(array[i.id]) and (
        not exists (select 1 from {schema}.jobs j where j.state = {READY} and j.lane = l.lane and j.priority = l.priority)
        or exists (
            select 1 from {schema}.keyed_lanes o
            where o.lane = l.lane and o.priority = l.priority and o.id < l.id and o.id <> all(p_ids)
        )
    );
    -- Rows that an enqueue has locked move to the end of the order, so that claims do not meet them first
    -- meanwhile.
    update {schema}.keyed_lanes l set seq = pg_sequence_last_value('{schema}.seq'::regclass) from unnest(p_ids) as i(id)
    where l.id = any(array[i.id]) and l.id <> all(v_empty);
end
$$;

-- next_lane_rows: the next rows in the order of these lane sets, without those in p_examined: the first of each
-- priority, merged by their order keys.
create function {schema}.next_lane_rows_v1(p_lane_sets text[], p_size integer, p_examined bigint[]) returns bigint[]
language plpgsql as $$
begin
    return array(
        select x.id from {schema}.list_levels_v1(p_lane_sets) v cross join lateral (
            select l.id, {schema}.order_key_v1(l.seq, l.priority) as key from {schema}.keyed_lanes l
            where l.waits_for is null and l.lane_set = v.lane_set and l.priority = v.priority and l.id <> all(p_examined)
            order by l.seq limit p_size
        ) x order by x.key, x.id limit p_size
    );
end
$$;

-- list_levels: the priorities of the rows that are in the order of these lane sets.
create function {schema}.list_levels_v1(p_lane_sets text[]) returns table (lane_set text, priority integer)
language plpgsql as $$
#variable_conflict use_column
begin
    return query
    with recursive levels as (
        select g.lane_set, n.priority from unnest(p_lane_sets) as g(lane_set) cross join lateral (
            select l.priority from {schema}.keyed_lanes l where l.waits_for is null and l.lane_set = g.lane_set
            order by l.priority desc limit 1
        ) n
        union all
        select v.lane_set, n.priority from levels v cross join lateral (
            select l.priority from {schema}.keyed_lanes l
            where l.waits_for is null and l.lane_set = v.lane_set and l.priority < v.priority
            order by l.priority desc limit 1
        ) n
    )
    select v.lane_set, v.priority from levels v;
end
$$;

-- recheck_waiting: recheck the first lane of each set that waits for one of these buckets, which the caller has locked,
-- and forget which queues wait for them: their turns learn when the buckets may have capacity. returns the queues
-- concerned
create function {schema}.recheck_waiting_v1(p_names text[]) returns text[] language plpgsql as $$
declare
    v_lanes bigint[];
    v_woken text[];
begin
    with recursive sets as (
        select u.name, n.* from unnest(p_names) as u(name) cross join lateral (
            select l.lane_set, l.id from {schema}.keyed_lanes l where l.waits_for = u.name
                order by l.lane_set, l.priority desc, l.seq limit 1
        ) n
        union all
        select g.name, n.* from sets g cross join lateral (
            select l.lane_set, l.id from {schema}.keyed_lanes l where l.waits_for = g.name and l.lane_set > g.lane_set
            order by l.lane_set, l.priority desc, l.seq limit 1
        ) n
    )
    select coalesce(array_agg(g.id order by g.id), '{}') into v_lanes from sets g;
    perform 1 from unnest(v_lanes) as i(id) join {schema}.keyed_lanes l on l.id = any(array[i.id]) for no key update of l;
    with opened as (
        update {schema}.keyed_lanes l set waits_for = null, recheck_at = null from unnest(v_lanes) as i(id)
        where l.id = any(array[i.id]) returning l.queue
    ), waiting as (
        delete from {schema}.waiting_queues w where w.bucket = any(p_names) returning w.queue
    )
    select array(select o.queue from opened o union select t.queue from waiting t) into v_woken;
    return v_woken;
end
$$;

-- prune_lane_rows: settle rows of empty lanes that no claim comes upon. Looks at a part of all rows, another part each
-- time.
create function {schema}.prune_lane_rows_v1(p_now bigint) returns void language plpgsql as $$
declare
    c_most constant integer := {SETTLED_LANES};
    v_empty bigint[] := array(
        select l.id from (
            select o.* from {schema}.keyed_lanes o
            where o.id >= (select min(x.id) + ((max(x.id) - min(x.id)) * random())::bigint - c_most / 2
                from {schema}.keyed_lanes x)
            order by o.id limit c_most
        ) l
        -- Not "not exists": with stale statistics that reads all ready jobs for each lane (see
        -- docs/internals/postgres-plans.md).
        left join lateral (
            select true as there from {schema}.jobs j
            where j.state = {READY} and j.lane = l.lane and j.priority = l.priority limit 1
        ) h on true
        where h.there is null
    );
begin
    if cardinality(v_empty) > 0 then
        perform {schema}.settle_lane_rows_v1(
            v_empty, {schema}.try_lock_buckets_v1(
                array(
                    select distinct b.name from {schema}.read_lane_rows_v1(v_empty) l
                    cross join unnest(l.buckets) as b(name)
                )
            ), p_now
        );
    end if;
end
$$;

-- prune_buckets: delete starts whose window is over, and buckets that have nothing to remember. A start inserts its
-- bucket again.
create function {schema}.prune_buckets_v1(p_now bigint) returns void language plpgsql as $$
declare
    c_most constant integer := {PRUNED_ROWS};
    v_idle text[];
begin
    if not exists (select 1 from {schema}.buckets) then
        return;
    end if;
    delete from {schema}.rate_starts s where s.ctid = any(array(
        select o.ctid from {schema}.rate_starts o
        left join {schema}.limits l on l.name = any(array[split_part(o.bucket, '=', 1)]) and l.kind = {LIMIT_RATE}
        where o.last <= p_now - coalesce(l.per, 0) limit c_most for update of o skip locked
    ));
    v_idle := array(
        select b.name from {schema}.buckets b
        where b.tat <= p_now and b.blocked_until <= p_now
            and not exists (select 1 from {schema}.bucket_uses u where u.bucket = b.name)
            and not exists (select 1 from {schema}.rate_starts s where s.bucket = b.name)
            and not exists (select 1 from {schema}.holders g where g.bucket = b.name)
        limit c_most for update skip locked
    );
    -- A new statement: a bucket may have been used before it was locked.
    delete from {schema}.buckets b
    where b.name = any(v_idle) and b.tat <= p_now and b.blocked_until <= p_now
        and not exists (select 1 from {schema}.bucket_uses u where u.bucket = b.name)
        and not exists (select 1 from {schema}.rate_starts s where s.bucket = b.name)
        and not exists (select 1 from {schema}.holders g where g.bucket = b.name);
end
$$;
