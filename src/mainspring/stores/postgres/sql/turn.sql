-- turn: apply a worker's acks, hand out work for its free slots; one transaction
-- Locks in this order: worker, buckets, job rows by id, dependents. Each statement sees what was committed before it began.
-- returns rows of several kinds: one 'turn' (token = now, early = lost), then already, stale, gone, claim, order
create function {schema}.turn_v1(
    p_worker text, p_number bigint, p_seen bigint, p_now bigint, p_suspects integer,
    p_acks {schema}.ack_v1[], p_want integer[], p_lane text[], p_n integer[], p_oldest integer[],
    p_held bytea[], p_held_token bigint[]
) returns table (
    kind text, id bytea, token bigint, task text, queue text, lane text, priority integer, attempt integer, epoch integer,
    crashes integer, early boolean, enqueued bigint, expires bigint, record bytea, turn bigint, note text
)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
    v_worker {schema}.workers;
    v_now bigint;
    v_repeat boolean;
    v_gates text[] := '{}';
    v_picked bytea[] := '{}';
begin
    perform {schema}.guard_v1();
    select * into v_worker from {schema}.workers w where w.id = p_worker for update;
    v_now := {schema}.now_v1(p_now);
    return query select 'turn', null::bytea, v_now, null, null, null, null::integer, null::integer, null::integer,
        null::integer, v_worker.id is null or v_worker.lost, null::bigint, null::bigint, null::bytea, null::bigint, null;
    if v_worker.id is null or v_worker.lost then
        return;
    end if;
    if p_number < v_worker.turn then
        raise exception 'turn % of worker % comes after turn %', p_number, p_worker, v_worker.turn using errcode = 'MS001';
    end if;
    v_repeat := p_number = v_worker.turn;

    if not v_repeat then
        v_gates := {schema}.gates_v1(p_lane, v_worker.tasks, array(select a.id from unnest(p_acks) a));
    end if;
    if cardinality(p_acks) > 0 then
        return query select a.verdict, a.id, a.token, null, null, null, null::integer, null::integer, null::integer,
            null::integer, null::boolean, null::bigint, null::bigint, null::bytea, null::bigint, null
        from {schema}.ack_v1(p_worker, p_acks, v_now) a;
    end if;
    if p_held is not null then
        return query select 'gone', h.id, h.token, null, null, null, null::integer, null::integer, null::integer,
            null::integer, null::boolean, null::bigint, null::bigint, null::bytea, null::bigint, null
        from unnest(p_held, p_held_token) as h(id, token)
        where not exists (
            select 1 from {schema}.jobs j
            where j.id = h.id and j.token = h.token and j.state || '' = 'running' and j.worker || '' = p_worker
        ) and not exists (select 1 from unnest(p_acks) a where a.id = h.id and a.token = h.token);
    end if;
    if not v_repeat then
        v_picked := {schema}.claim_v1(
            p_worker, p_number, v_worker.tasks, p_suspects, p_want, p_lane, p_n, p_oldest, v_gates, v_now
        );
        update {schema}.workers w set turn = p_number where w.id = p_worker;
    end if;

    return query select 'claim', j.id, j.token, j.task, j.queue, j.lane::text, j.priority, j.attempt, j.epoch,
        j.crashes, j.early, j.enqueued, j.expires, j.record, j.turn, null
    from {schema}.jobs j
    where j.state = 'running' and j.worker = p_worker and j.turn > least(p_seen, p_number - 1)
        and (v_repeat or j.turn < p_number)
    order by j.turn, j.priority desc, j.seq;
    return query select 'claim', j.id, j.token, j.task, j.queue, j.lane::text, j.priority, j.attempt, j.epoch,
        j.crashes, j.early, j.enqueued, j.expires, j.record, j.turn, null
    from unnest(v_picked) with ordinality as p(id, n) join {schema}.jobs j on j.id = p.id order by p.n;
    return query select 'order', j.id, j.token, null, null, null, null::integer, null::integer, null::integer,
        null::integer, null::boolean, null::bigint, null::bigint, null::bytea, null::bigint, j.ordered
    from {schema}.jobs j where j.worker = p_worker and j.ordered is not null;
end
$$;

-- claim: ready -> running for each want in turn: suspects first while that is allowed, then the other lanes
-- The bucket rows in p_gates are locked by the caller. returns the claimed ids in the order of the reply
create function {schema}.claim_v1(
    p_worker text, p_number bigint, p_tasks text[], p_suspects integer,
    p_want integer[], p_lane text[], p_n integer[], p_oldest integer[], p_gates text[], p_now bigint
) returns bytea[] language plpgsql as $$
declare
    v_lanes {schema}.lane_v1[];
    v_tainted {schema}.lane_v1[];
    v_suspects integer := p_suspects;
    v_got bytea[];
    v_want integer;
    v_left integer;
    v_all bytea[] := '{}';
begin
    for v_want in 1 .. cardinality(p_n) loop
        v_left := p_n[v_want];
        continue when v_left <= 0;
        v_lanes := array(
            select l from {schema}.lanes_v1(
                array(select u.lane from unnest(p_want, p_lane) as u(want, lane) where u.want = v_want), p_tasks
            ) l
        );
        continue when cardinality(v_lanes) = 0;
        v_tainted := array(select l from unnest(v_lanes) l where l.suspect);
        if v_suspects > 0 and cardinality(v_tainted) > 0 then
            v_got := {schema}.pick_v1(v_tainted, least(v_left, v_suspects), 0, p_gates, p_now);
            perform {schema}.take_v1(v_got, p_worker, p_number, cardinality(p_gates) > 0, p_now);
            v_all := v_all || v_got;
            v_suspects := v_suspects - cardinality(v_got);
            v_left := v_left - cardinality(v_got);
        end if;
        v_got := {schema}.pick_v1(
            array(select l from unnest(v_lanes) l where not l.suspect), v_left, p_oldest[v_want], p_gates, p_now
        );
        perform {schema}.take_v1(v_got, p_worker, p_number, cardinality(p_gates) > 0, p_now);
        v_all := v_all || v_got;
    end loop;
    return v_all;
end
$$;

-- take: ready -> running for rows that the caller has locked; each gets a token that grows for ever
create function {schema}.take_v1(
    p_ids bytea[], p_worker text, p_number bigint, p_limited boolean, p_now bigint
) returns void language plpgsql as $$
begin
    if cardinality(p_ids) = 0 then
        return;
    end if;
    update {schema}.jobs j
    set state = 'running', token = greatest(j.token + 1, p_now), worker = p_worker, turn = p_number,
        attempt = j.attempt + 1, started = p_now
    where j.id = any(p_ids);
    if p_limited then
        insert into {schema}.holds (bucket, job)
        select unnest(j.buckets), j.id from {schema}.jobs j where j.id = any(p_ids) and j.buckets is not null;
    end if;
end
$$;
