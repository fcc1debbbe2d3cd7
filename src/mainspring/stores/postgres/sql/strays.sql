-- strays: claims that do not walk over the dead. A row that leaves ready leaves a dead entry at the head of the index, and
-- while somebody holds an old snapshot no vacuum takes it away: a claim then walks over all of them. A client that meets
-- this keeps a mark for each base lane and priority, the first seq of its last claim, and asks only for what lies above.
-- What lies below and is alive (its transaction committed late) is a stray, and is looked for at a slow pace.

-- walked: how far this transaction has walked in the index of what is ready. Entries known to be dead are stepped over
-- without being counted, and yet their pages are read, until a vacuum: a page counts as twenty entries.
create function {schema}.walked_v1() returns bigint language sql as $$
    select pg_stat_get_xact_tuples_returned('{schema}.jobs_ready'::regclass)
        + 20 * pg_stat_get_xact_blocks_fetched('{schema}.jobs_ready'::regclass)
$$;

-- claim_above: ready -> running in these base lanes, priority by priority, above the marks; between known priorities all is new
create function {schema}.claim_above_v1(
    p_lanes text[], p_n integer, p_worker text, p_number bigint, p_now bigint,
    p_low_lane text[], p_low_priority integer[], p_low_seq bigint[], p_inline integer, p_room bigint
) returns table (
    kind text, id bytea, token bigint, task text, queue text, lane text, priority integer, attempt integer, epoch integer,
    crashes integer, early boolean, enqueued bigint, expires bigint, record bytea, turn bigint, note text
) language plpgsql as $$
#variable_conflict use_column
declare
    v_part record;
    v_got integer;
    v_left integer := p_n;
    v_room bigint;
begin
    for v_part in
        -- For each lane: (above the first known], then each known one, and [between it and the next).
        with known as (
            select l.lane, l.priority, l.seq from unnest(p_low_lane, p_low_priority, p_low_seq) as l(lane, priority, seq)
            where l.lane = any(p_lanes)
        )
        select k.lane, k.priority as top, k.priority as bottom, k.seq from known k
        union all
        select k.lane, k.priority - 1, coalesce(
            (select max(o.priority) + 1 from known o where o.lane = k.lane and o.priority < k.priority), -2147483648
        ), null from known k
        union all
        select k.lane, 2147483647, max(k.priority) + 1, null from known k group by k.lane
        order by top desc, lane
    loop
        exit when v_left <= 0;
        v_room := p_room - {schema}.carried_v1(p_worker, p_number);
        exit when v_room <= 0;
        return query select t.* from {schema}.claim_line_v1(
            v_part.lane, v_part.top, v_part.bottom, v_part.seq, v_left, p_worker, p_number, p_now, p_inline, v_room
        ) t;
        get diagnostics v_got = row_count;
        v_left := v_left - v_got;
    end loop;
end
$$;

-- lows: where the jobs begin that are left in these base lanes after a turn: where its claims began, or, where it looked at
-- all (p_n is how many it wanted; 0 if it stopped before) and found none, after the last that had a place in any line when it began
create function {schema}.lows_v1(
    p_worker text, p_number bigint, p_lanes text[], p_low_lane text[], p_low_priority integer[], p_last bigint, p_n bigint
) returns table (lane text, priority integer, seq bigint)
language plpgsql as $$
#variable_conflict use_column
declare
    v_got bigint;
begin
    select count(*) into v_got from {schema}.jobs j where j.state = 'running' and j.worker = p_worker and j.turn = p_number;
    return query
    select k.lane, k.priority, coalesce(c.seq, p_last + 1) from (
        select l.lane, 0 as priority from unnest(p_lanes) as l(lane)
        union
        select l.lane, l.priority from unnest(p_low_lane, p_low_priority) as l(lane, priority) where l.lane = any(p_lanes)
        union
        select j.lane::text, j.priority from {schema}.jobs j
        where j.state = 'running' and j.worker = p_worker and j.turn = p_number and j.lane = any(p_lanes)
    ) k left join lateral (
        select min(j.seq) as seq from {schema}.jobs j
        where j.state = 'running' and j.worker = p_worker and j.turn = p_number and j.lane = k.lane and j.priority = k.priority
    ) c on true
    where (c.seq is not null or v_got < p_n)
        -- Of a stack the newest lie below every mark.
        and coalesce(c.seq, 0) >= 0 and not exists (
            select 1 from {schema}.queues q where q.name = split_part(k.lane, '/', 1) and q.settings ->> 'order' = 'lifo'
        );
end
$$;

-- heads: the first job of each of these lanes, for who could not get there in the time of a call
create function {schema}.heads_v1(p_lanes text[]) returns table (lane text, priority integer, seq bigint)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off as $$
#variable_conflict use_column
declare
    v_last bigint := coalesce(pg_sequence_last_value('{schema}.seq'::regclass), 0);
begin
    return query
    select l.lane, coalesce(h.priority, 0), coalesce(h.seq, v_last + 1) from unnest(p_lanes) as l(lane)
    left join lateral (
        select j.priority, j.seq from {schema}.jobs j where j.state = 'ready' and j.lane = l.lane
        order by j.priority desc, j.seq limit 1
    ) h on true;
end
$$;

-- strays: where ready jobs begin that lie below a mark, of each lane and priority the first; looks at 100 of them
-- the last row has no lane: how far that was
create function {schema}.strays_v1(p_lane text[], p_priority integer[], p_seq bigint[])
returns table (lane text, priority integer, seq bigint)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off as $$
#variable_conflict use_column
declare
    v_walked bigint := {schema}.walked_v1();
begin
    return query
    select l.lane, l.priority, min(s.seq) from unnest(p_lane, p_priority, p_seq) as l(lane, priority, seq)
    cross join lateral (
        select j.seq from {schema}.jobs j
        where j.state = 'ready' and j.lane = l.lane and j.priority = l.priority and j.seq < l.seq
        order by j.seq limit 100
    ) s
    group by l.lane, l.priority;
    return query select null, null::integer, {schema}.walked_v1() - v_walked;
end
$$;

-- oldest_snapshot: who holds the oldest snapshot here, and for how many seconds; of other roles it is seen by pg_monitor only
create function {schema}.oldest_snapshot_v1() returns table (pid integer, seconds double precision)
language sql stable as $$
    select a.pid, extract(epoch from clock_timestamp() - a.xact_start)::double precision from pg_stat_activity a
    where a.datname = current_database() and a.backend_xmin is not null and a.xact_start is not null and a.pid <> pg_backend_pid()
    order by age(a.backend_xmin) desc limit 1
$$;
