-- turn: apply a worker's acks, hand out work for its free slots; one transaction
-- Locks in this order: worker, modes, buckets, job rows by id, dependents. Each statement sees what was committed before it began.
-- p_done are successes, p_acks everything else.
-- What is claimed may have become ready after this turn began: `started` is read when the row is taken, not before.
-- The reply is sent before the commit, with all locks held, and to a client that does not read it is sent for ever: so it
-- is small. Records above p_inline bytes stay behind (null), to be read afterwards; and claims end where their records
-- together pass p_room bytes, so that a slow wire can carry them in the time of a call.
-- p_low_ are marks below which a base lane and priority has no jobs (see strays), empty in ordinary times.
-- returns rows of several kinds: one 'turn' (token = now, early = lost), then already, stale, gone, woken, claim, more, order, low
create function {schema}.turn_v1(
    p_worker text, p_number bigint, p_seen bigint, p_now bigint, p_suspects integer,
    p_done bytea[], p_token bigint[], p_result bytea[], p_error bytea[], p_acks {schema}.ack_v1[],
    p_want integer[], p_lane text[], p_n integer[], p_oldest integer[], p_held bytea[], p_held_token bigint[],
    p_inline integer, p_room bigint,
    p_low_lane text[] default '{}', p_low_priority integer[] default '{}', p_low_seq bigint[] default '{}'
) returns table (
    kind text, id bytea, token bigint, task text, queue text, lane text, priority integer, attempt integer, epoch integer,
    crashes integer, early boolean, enqueued bigint, expires bigint, record bytea, turn bigint, note text
)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off as $$
#variable_conflict use_column
declare
    v_worker {schema}.workers;
    v_now bigint;
    v_repeat boolean;
    v_open boolean[];
    v_gates text[] := '{}';
    v_moved {schema}.moved_v1;
    v_acks {schema}.ack_v1[] := p_acks;
    v_suspects integer := p_suspects;
    v_lanes {schema}.lane_v1[] := '{}';
    v_left integer;
    v_taken integer;
    v_room bigint := p_room;
    v_low integer;
    v_last bigint := coalesce(pg_sequence_last_value('{schema}.seq'::regclass), 0);
    v_walked bigint := {schema}.walked_v1();
    v_got bytea[];
begin
    perform {schema}.guard_v1();
    select * into v_worker from {schema}.workers w where w.id = p_worker for update;
    v_now := {schema}.now_v1(p_now);
    kind := 'turn';
    token := v_now;
    early := v_worker.id is null or v_worker.lost;
    return next;
    if early then
        return;
    end if;
    if p_number < v_worker.turn then
        raise exception 'turn % of worker % comes after turn %', p_number, p_worker, v_worker.turn using errcode = 'MS001';
    end if;
    v_repeat := p_number = v_worker.turn;

    if not v_repeat and cardinality(p_lane) > 0 then
        -- Whoever pauses a queue waits for the turns that have looked already: none claims after that was confirmed.
        perform pg_advisory_xact_lock_shared({schema}.modes_lock_v1());
        v_open := array(
            select not exists (select 1 from {schema}.queues q where q.name = split_part(u.lane, '/', 1) and q.mode = 'paused')
            from unnest(p_lane) with ordinality as u(lane, n) order by u.n
        );
        v_lanes := {schema}.lanes_v1(
            array(select u.lane from unnest(p_lane, v_open) as u(lane, free) where u.free), v_worker.tasks, p_low_lane
        );
        if exists (select 1 from unnest(v_lanes) l where l.buckets is not null) or exists (select 1 from {schema}.buckets) then
            v_gates := {schema}.gates_v1(v_lanes, p_done || array(select a.id from unnest(p_acks) a));
        end if;
    end if;
    v_walked := {schema}.walked_v1() - v_walked;
    if cardinality(p_done) > 0 then
        v_moved := {schema}.succeed_v1(p_worker, p_done, p_token, p_result, p_error, v_now);
        if cardinality(v_moved.woken) > 0 then
            return query select 'woken', null::bytea, null::bigint, null, w.queue, null, null::integer, null::integer,
                null::integer, null::integer, null::boolean, null::bigint, null::bigint, null::bytea, null::bigint, null
            from unnest(v_moved.woken) as w(queue);
        end if;
        if cardinality(v_moved.done) < cardinality(p_done) then
            v_acks := p_acks || array(
                select row(
                    -u.n, u.id, u.token, 'succeeded', 'succeeded', null, 0, null, u.result, u.error, null, false, false
                )::{schema}.ack_v1
                from unnest(p_done, p_token, p_result, p_error) with ordinality as u(id, token, result, error, n)
                where not exists (
                    select 1 from unnest(v_moved.done, v_moved.token) as d(id, token) where d.id = u.id and d.token = u.token
                )
            );
        end if;
    end if;
    if cardinality(v_acks) > 0 then
        return query select a.kind, a.id, a.token, null, a.queue, null, null::integer, null::integer, null::integer,
            null::integer, null::boolean, null::bigint, null::bigint, null::bytea, null::bigint, null
        from {schema}.ack_v1(p_worker, v_acks, v_now) a;
    end if;
    if p_held is not null then
        return query select 'gone', h.id, h.token, null, null, null, null::integer, null::integer, null::integer,
            null::integer, null::boolean, null::bigint, null::bigint, null::bytea, null::bigint, null
        from unnest(p_held, p_held_token) as h(id, token)
        where not exists (
            select 1 from {schema}.jobs j
            where j.id = any(array[h.id]) and j.token = h.token and j.state || '' = 'running' and j.worker || '' = p_worker
        ) and not exists (select 1 from unnest(p_acks) a where a.id = h.id and a.token = h.token)
            and not exists (select 1 from unnest(p_done, p_token) as d(id, token) where d.id = h.id and d.token = h.token);
    end if;

    if v_repeat or p_seen < v_worker.turn then
        return query select 'claim', j.id, j.token, j.task, j.queue, j.lane::text, j.priority, j.attempt, j.epoch,
            j.crashes, j.early, j.enqueued, j.expires, case when octet_length(j.record) <= p_inline then j.record end, j.turn, null
        from {schema}.jobs j
        where j.state = 'running' and j.worker = p_worker and j.turn > least(p_seen, p_number - 1)
            and (p_held is null or not exists (
                select 1 from unnest(p_held, p_held_token) as h(id, token) where h.id = j.id and h.token = j.token
            ))
        order by j.turn, j.priority desc, j.seq;
    end if;
    v_walked := {schema}.walked_v1() - v_walked; -- what the acks did there is no walk
    if v_repeat then
        v_room := p_room - {schema}.carried_v1(p_worker, p_number);
    else
        for v_want in 1 .. cardinality(p_n) loop
            v_left := p_n[v_want];
            continue when v_left <= 0;
            if v_want > 1 then
                v_room := p_room - {schema}.carried_v1(p_worker, p_number);
                exit when v_room <= 0;
            end if;
            if cardinality(p_n) > 1 or cardinality(v_acks) > 0 or cardinality(v_moved.woken) > 0 then
                v_lanes := {schema}.lanes_v1(
                    array(
                        select u.lane from unnest(p_want, p_lane, v_open) as u(want, lane, free)
                        where u.want = v_want and u.free
                    ), v_worker.tasks, p_low_lane
                );
            end if;
            if cardinality(p_low_lane) > 0 then
                v_low := case when cardinality(v_lanes) = 0 then v_left else (v_left + p_number % 2) / 2 end;
                return query select t.* from {schema}.claim_above_v1(
                    array(
                        select distinct u.lane from unnest(p_want, p_lane, v_open) as u(want, lane, free)
                        where u.want = v_want and u.free and u.lane = any(p_low_lane)
                    ), v_low, p_worker, p_number, p_now, p_low_lane, p_low_priority, p_low_seq, p_inline, p_room
                ) t;
                get diagnostics v_low = row_count;
                v_left := v_left - v_low;
                continue when v_left <= 0;
                v_room := p_room - {schema}.carried_v1(p_worker, p_number);
                exit when v_room <= 0;
            end if;
            continue when cardinality(v_lanes) = 0;
            if cardinality(v_lanes) = 1 and p_oldest[v_want] = 0 and v_lanes[1].buckets is null and not v_lanes[1].suspect then
                return query select t.* from {schema}.claim_line_v1(
                    v_lanes[1].lane, v_lanes[1].priority, v_lanes[1].priority, v_lanes[1].seq, v_left, p_worker, p_number, p_now,
                    p_inline, v_room
                ) t;
                get diagnostics v_taken = row_count;
                v_left := v_left - v_taken;
                continue when v_left = 0;
                v_room := p_room - {schema}.carried_v1(p_worker, p_number);
                exit when v_room <= 0;
                return query select t.* from {schema}.claim_line_v1(
                    v_lanes[1].lane, v_lanes[1].priority - 1, -2147483648, null, v_left, p_worker, p_number, p_now, p_inline, v_room
                ) t;
                get diagnostics v_taken = row_count;
                if v_taken > 0 and v_taken < v_left then
                    v_room := p_room - {schema}.carried_v1(p_worker, p_number);
                    exit when v_room <= 0;
                end if;
                continue;
            end if;
            if v_suspects > 0 and exists (select 1 from unnest(v_lanes) l where l.suspect) then
                v_got := {schema}.pick_v1(
                    array(select l from unnest(v_lanes) l where l.suspect), least(v_left, v_suspects), 0, v_gates, v_now
                );
                return query select t.* from {schema}.take_v1(v_got, p_worker, p_number, p_now, p_inline, v_room) t;
                v_suspects := v_suspects - cardinality(v_got);
                v_left := v_left - cardinality(v_got);
                v_room := p_room - {schema}.carried_v1(p_worker, p_number);
                exit when v_room <= 0;
            end if;
            v_got := {schema}.pick_v1(
                array(select l from unnest(v_lanes) l where not l.suspect), v_left, p_oldest[v_want], v_gates, v_now
            );
            return query select t.* from {schema}.take_v1(v_got, p_worker, p_number, p_now, p_inline, v_room) t;
            get diagnostics v_taken = row_count;
            if v_taken < cardinality(v_got) then
                v_room := 0;
                exit;
            end if;
        end loop;
        update {schema}.workers w set turn = p_number, seen = v_now where w.id = p_worker;
        if cardinality(p_low_lane) > 0 or {schema}.walked_v1() - v_walked > 2000 + 10 * p_n[1] then
            return query select 'low', null::bytea, l.seq, null, null, l.lane, l.priority, null::integer, null::integer,
                null::integer, null::boolean, null::bigint, null::bigint, null::bytea, null::bigint, null
            from {schema}.lows_v1(
                p_worker, p_number, array(select u.lane from unnest(p_lane, v_open) as u(lane, free) where u.free),
                p_low_lane, p_low_priority, v_last, case when v_room > 0 then (select sum(n) from unnest(p_n) n) else 0 end
            ) l;
        end if;
    end if;
    if v_room <= 0 then
        kind := 'more';
        return next;
    end if;
    return query select 'order', j.id, j.token, null, null, null, null::integer, null::integer, null::integer,
        null::integer, null::boolean, null::bigint, null::bigint, null::bytea, null::bigint, j.ordered
    from {schema}.jobs j where j.worker = p_worker and j.ordered is not null and j.state || '' = 'running';
end
$$;

-- carried: the bytes of the records that a turn has handed out so far
create function {schema}.carried_v1(p_worker text, p_number bigint) returns bigint language plpgsql as $$
begin
    return (
        select coalesce(sum(octet_length(j.record)), 0) from {schema}.jobs j
        where j.state = 'running' and j.worker = p_worker and j.turn = p_number
    );
end
$$;

-- claim_line: ready -> running for the first p_n jobs of a lane that nothing limits, of the priorities from p_top down to
-- p_bottom; with p_from of the one priority p_top, from that seq on. Those behind the one whose record passes p_room stay.
-- One statement, and rows found by where they lie: this is the way of nearly every claim.
create function {schema}.claim_line_v1(
    p_lane text, p_top integer, p_bottom integer, p_from bigint, p_n integer, p_worker text, p_number bigint, p_now bigint,
    p_inline integer, p_room bigint
) returns table (
    kind text, id bytea, token bigint, task text, queue text, lane text, priority integer, attempt integer, epoch integer,
    crashes integer, early boolean, enqueued bigint, expires bigint, record bytea, turn bigint, note text
) language plpgsql as $$
#variable_conflict use_column
declare
    v_now bigint := {schema}.now_v1(p_now);
begin
    return query
    with one as (
        select j.ctid as at, j.priority, j.seq, octet_length(j.record) as bytes from {schema}.jobs j
        where p_from is not null and j.state = 'ready' and j.lane = p_lane and j.priority = p_top and j.seq >= p_from
            and (j.expires is null or j.expires > v_now)
        order by j.seq limit p_n for update skip locked
    ), several as (
        select j.ctid as at, j.priority, j.seq, octet_length(j.record) as bytes from {schema}.jobs j
        where p_from is null and j.state = 'ready' and j.lane = p_lane and j.priority <= p_top and j.priority >= p_bottom
            and (j.expires is null or j.expires > v_now)
        order by j.priority desc, j.seq limit p_n for update skip locked
    ), locked as (
        select * from one union all select * from several
    ), picked as (
        select l.at, sum(l.bytes) over (order by l.priority desc, l.seq) - l.bytes as before from locked l
    ), taken as (
        update {schema}.jobs j
        set state = 'running', token = greatest(j.token + 1, v_now), worker = p_worker, turn = p_number,
            attempt = j.attempt + 1, started = greatest((select {schema}.now_v1(p_now)), j.enqueued)
        from picked p where j.ctid = p.at and p.before < p_room
        returning j.*
    )
    select 'claim', t.id, t.token, t.task, t.queue, t.lane::text, t.priority, t.attempt, t.epoch,
        t.crashes, t.early, t.enqueued, t.expires, case when octet_length(t.record) <= p_inline then t.record end, t.turn, null
    from taken t order by t.priority desc, t.seq;
end
$$;

-- take: ready -> running for rows that the caller has locked; each gets a token that grows for ever
-- Those behind the one whose record passes p_room stay ready: locked, so hidden, until the end of this turn; then come again.
-- returns the claims in the order of the ids
create function {schema}.take_v1(
    p_ids bytea[], p_worker text, p_number bigint, p_now bigint, p_inline integer, p_room bigint
) returns table (
    kind text, id bytea, token bigint, task text, queue text, lane text, priority integer, attempt integer, epoch integer,
    crashes integer, early boolean, enqueued bigint, expires bigint, record bytea, turn bigint, note text
) language plpgsql as $$
#variable_conflict use_column
declare
    v_ids bytea[];
    v_now bigint := {schema}.now_v1(p_now);
begin
    if cardinality(p_ids) = 0 then
        return;
    end if;
    v_ids := array(
        select s.id from (
            select p.id, p.n, sum(octet_length(j.record)) over (order by p.n) - octet_length(j.record) as before
            from unnest(p_ids) with ordinality as p(id, n) join {schema}.jobs j on j.id = any(array[p.id])
        ) s where s.before < p_room order by s.n
    );
    update {schema}.jobs j
    set state = 'running', token = greatest(j.token + 1, v_now), worker = p_worker, turn = p_number,
        attempt = j.attempt + 1, started = greatest(v_now, j.enqueued)
    where j.id = any(v_ids);
    insert into {schema}.holds (bucket, job)
    select unnest(j.buckets), j.id from {schema}.jobs j where j.id = any(v_ids) and j.buckets is not null;
    return query select 'claim', j.id, j.token, j.task, j.queue, j.lane::text, j.priority, j.attempt, j.epoch,
        j.crashes, j.early, j.enqueued, j.expires, case when octet_length(j.record) <= p_inline then j.record end, j.turn, null
    from unnest(v_ids) with ordinality as p(id, n) join {schema}.jobs j on j.id = any(array[p.id]) order by p.n;
end
$$;
