-- Claims that do not walk over dead index entries.
--
-- A row that leaves ready leaves a dead entry at the head of the index jobs_ready. While a transaction holds an old
-- snapshot, no vacuum removes these entries, and every claim walks over all of them. A client that meets this keeps a
-- mark for each base lane and priority, the first seq of its last claim, and asks only for jobs above the mark. A live
-- job below a mark (its transaction committed late) is a stray, and is searched for at a slow pace. See
-- claim/low_water.py.

-- count_walked: how far this transaction has walked in the index of ready jobs. Entries known to be dead are skipped
-- without being counted, and yet their pages are read until a vacuum: a page counts as {WALKED_PAGE} entries.
create function {schema}.count_walked_v1() returns bigint language sql as $$
    select pg_stat_get_xact_tuples_returned('{schema}.jobs_ready'::regclass)
        + {WALKED_PAGE} * pg_stat_get_xact_blocks_fetched('{schema}.jobs_ready'::regclass)
$$;

-- find_levels_above: the first job above the marks of each priority in use in these base lanes. A priority without a
-- mark is read whole.
create function {schema}.find_levels_above_v1(
    p_lanes text[], p_low_lane text[], p_low_priority integer[], p_low_seq bigint[], p_now bigint
) returns table (lane text, priority integer, seq bigint) language plpgsql as $$
#variable_conflict use_column
begin
    return query
    with recursive known as (
        select l.lane, l.priority, l.seq from unnest(p_low_lane, p_low_priority, p_low_seq) as l(lane, priority, seq)
        where l.lane = any(p_lanes)
    ), gaps as (  -- the priorities between a mark and the next, and those above the first mark
        select k.lane, k.priority - 1 as top, coalesce(
            (select max(o.priority) + 1 from known o where o.lane = k.lane and o.priority < k.priority), {LOWEST_INTEGER}
        ) as bottom from known k
        union all
        select k.lane, {HIGHEST_INTEGER}, max(k.priority) + 1 from known k group by k.lane
    ), levels as (
        select g.lane, g.bottom, n.priority, n.seq from gaps g cross join lateral (
            select j.priority, j.seq from {schema}.jobs j
            where j.state = {READY} and j.lane = g.lane and j.priority <= g.top and j.priority >= g.bottom
                and (j.expires is null or j.expires > p_now)
            order by j.priority desc, j.seq limit 1
        ) n
        union all
        select v.lane, v.bottom, n.priority, n.seq from levels v cross join lateral (
            select j.priority, j.seq from {schema}.jobs j
            where j.state = {READY} and j.lane = v.lane and j.priority < v.priority and j.priority >= v.bottom
                and (j.expires is null or j.expires > p_now)
            order by j.priority desc, j.seq limit 1
        ) n
    )
    select v.lane, v.priority, v.seq from levels v
    union all
    select k.lane, k.priority, n.seq from known k cross join lateral (
        select j.seq from {schema}.jobs j
        where j.state = {READY} and j.lane = k.lane and j.priority = k.priority and j.seq >= k.seq
            and (j.expires is null or j.expires > p_now)
        order by j.seq limit 1
    ) n;
end
$$;

-- claim_above: ready -> running in these base lanes, above the marks: from the priority whose first job has the lowest
-- order key, up to the first job of the next priority, and so on. When other turns have locked these jobs, what is left
-- of each priority.
create function {schema}.claim_above_v1(
    p_lanes text[], p_n integer, p_worker text, p_number bigint, p_now bigint,
    p_low_lane text[], p_low_priority integer[], p_low_seq bigint[], p_inline integer, p_max_bytes bigint
) returns table (
    kind text, id bytea, token bigint, task text, queue text, lane text, priority integer, attempt integer, epoch integer,
    crashes integer, early boolean, enqueued bigint, expires bigint, record bytea, turn bigint, note text
) language plpgsql as $$
#variable_conflict use_column
declare
    v_level record;
    v_got integer;
    v_left integer := p_n;
    v_bytes_left bigint := p_max_bytes;
    v_contended boolean := false;
begin
    <<again>>
    loop
        for v_level in
            select l.*, lead({schema}.order_key_v1(l.seq, l.priority)) over w as following
            from {schema}.find_levels_above_v1(p_lanes, p_low_lane, p_low_priority, p_low_seq, {schema}.now_v1(p_now)) l
            window w as (order by {schema}.order_key_v1(l.seq, l.priority), l.lane, l.priority)
            order by {schema}.order_key_v1(l.seq, l.priority), l.lane, l.priority
        loop
            exit again when v_left <= 0;
            v_bytes_left := p_max_bytes - {schema}.count_claimed_bytes_v1(p_worker, p_number);
            exit again when v_bytes_left <= 0;
            -- Two first jobs with the same key: + 1, so that a step takes at least one job.
            return query select t.* from {schema}.claim_lane_v1(
                v_level.lane, v_level.priority, v_level.seq, case when not v_contended then v_level.following + 1 end,
                v_left, p_worker, p_number, p_now, p_inline, v_bytes_left
            ) t;
            get diagnostics v_got = row_count;
            v_left := v_left - v_got;
            v_contended := v_contended or v_got = 0;
            exit when not v_contended;
        end loop;
        exit when v_contended or not found;
    end loop;
end
$$;

-- find_low_marks: where the jobs begin that are left in these base lanes after a turn: where its claims began; or, if
-- it looked at all jobs (p_n is how many it wanted; 0 if it stopped before) and found none, behind the last seq given
-- when it began.
create function {schema}.find_low_marks_v1(
    p_worker text, p_number bigint, p_lanes text[], p_low_lane text[], p_low_priority integer[], p_last bigint, p_n bigint
) returns table (lane text, priority integer, seq bigint)
language plpgsql as $$
#variable_conflict use_column
declare
    v_got bigint;
begin
    select count(*) into v_got from {schema}.jobs j where j.state = {RUNNING} and j.worker = p_worker and j.turn = p_number;
    return query
    select k.lane, k.priority, coalesce(c.seq, p_last + 1) from (
        select l.lane, 0 as priority from unnest(p_lanes) as l(lane)
        union
        select l.lane, l.priority from unnest(p_low_lane, p_low_priority) as l(lane, priority) where l.lane = any(p_lanes)
        union
        select j.lane::text, j.priority from {schema}.jobs j
        where j.state = {RUNNING} and j.worker = p_worker and j.turn = p_number and j.lane = any(p_lanes)
    ) k left join lateral (
        select min(j.seq) as seq from {schema}.jobs j
        where j.state = {RUNNING} and j.worker = p_worker and j.turn = p_number and j.lane = k.lane and j.priority = k.priority
    ) c on true
    where (c.seq is not null or v_got < p_n)
        -- In a lifo queue the newest jobs lie below every mark.
        and coalesce(c.seq, 0) >= 0 and not exists (
            select 1 from {schema}.queues q where q.name = split_part(k.lane, '/', 1) and q.settings ->> 'order' = {ORDER_LIFO}
        );
end
$$;

-- find_first_jobs: the first job of each of these lanes, for a client that could not find it in the time of a call.
create function {schema}.find_first_jobs_v1(p_lanes text[]) returns table (lane text, priority integer, seq bigint)
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
        select j.priority, j.seq from {schema}.jobs j where j.state = {READY} and j.lane = l.lane
        order by j.priority desc, j.seq limit 1
    ) h on true;
end
$$;

-- find_strays: the first ready job below each mark; looks at {STRAYS_SEARCHED} jobs per mark.
-- The last row has no lane: its seq is how far the search walked
create function {schema}.find_strays_v1(p_lane text[], p_priority integer[], p_seq bigint[])
returns table (lane text, priority integer, seq bigint)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off as $$
#variable_conflict use_column
declare
    v_walked bigint := {schema}.count_walked_v1();
begin
    return query
    select l.lane, l.priority, min(s.seq) from unnest(p_lane, p_priority, p_seq) as l(lane, priority, seq)
    cross join lateral (
        select j.seq from {schema}.jobs j
        where j.state = {READY} and j.lane = l.lane and j.priority = l.priority and j.seq < l.seq
        order by j.seq limit {STRAYS_SEARCHED}
    ) s
    group by l.lane, l.priority;
    return query select null, null::integer, {schema}.count_walked_v1() - v_walked;
end
$$;

-- find_oldest_snapshot: the process that holds the oldest snapshot here, and for how many seconds. A role without
-- pg_monitor sees only its own processes.
create function {schema}.find_oldest_snapshot_v1() returns table (pid integer, seconds double precision)
language sql stable as $$
    select a.pid, extract(epoch from clock_timestamp() - a.xact_start)::double precision from pg_stat_activity a
    where a.datname = current_database() and a.backend_xmin is not null and a.xact_start is not null and a.pid <> pg_backend_pid()
    order by age(a.backend_xmin) desc limit 1
$$;
