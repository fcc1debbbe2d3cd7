-- ready -> running: the statements that write claims, and the rows of a turn's reply.

-- count_claimed_bytes: the bytes of the records that this turn has claimed so far.
create function {schema}.count_claimed_bytes_v1(p_worker text, p_number bigint) returns bigint language plpgsql as $$
begin
    return (
        select coalesce(sum(octet_length(j.record)), 0) from {schema}.jobs j
        where j.state = {RUNNING} and j.worker = p_worker and j.turn = p_number
    );
end
$$;

-- claim_lane: ready -> running for the first p_n jobs of a lane at one priority, from a seq on and before the order key
-- p_before (null: all of them). The lane has no limits, or the caller has locked its unkeyed buckets and they have
-- capacity for p_n: then up to the first job that has costs. Jobs behind the one whose record passes p_max_bytes stay
-- ready. One statement, and rows are found by their ctid: nearly every claim goes this way.
create function {schema}.claim_lane_v1(
    p_lane text, p_priority integer, p_from bigint, p_before bigint, p_n integer, p_worker text, p_number bigint,
    p_now bigint, p_inline integer, p_max_bytes bigint
) returns table (
    kind text, id bytea, token bigint, task text, queue text, lane text, priority integer, attempt integer, epoch integer,
    crashes integer, early boolean, enqueued bigint, expires bigint, record bytea, turn bigint, note text
) language plpgsql as $$
#variable_conflict use_column
declare
    v_now bigint := {schema}.now_v1(p_now);
    v_end bigint := coalesce(p_before + p_priority * {PRIORITY_STEP}, {ABOVE_ALL_SEQS});
begin
    return query
    with locked as (
        select j.ctid as at, j.seq, octet_length(j.record) as bytes,
            case when j.costs is null then 0 else p_max_bytes end as costly from {schema}.jobs j
        where j.state = {READY} and j.lane = p_lane and j.priority = p_priority and j.seq >= p_from and j.seq < v_end
            and (j.expires is null or j.expires > v_now)
        order by j.seq limit p_n for update skip locked
    ), picked as (
        select l.at, sum(l.bytes + l.costly) over (order by l.seq) - l.bytes as before from locked l
    ), taken as (
        update {schema}.jobs j
        set state = {RUNNING}, token = greatest(j.token + 1, v_now), worker = p_worker, turn = p_number,
            attempt = j.attempt + 1, started = greatest((select {schema}.now_v1(p_now)), j.enqueued)
        from picked p where j.ctid = p.at and p.before < p_max_bytes
        returning j.*
    )
    select 'claim', t.id, t.token, t.task, t.queue, t.lane::text, t.priority, t.attempt, t.epoch,
        t.crashes, t.early, t.enqueued, t.expires, case when octet_length(t.record) <= p_inline then t.record end, t.turn,
        null::text
    from taken t order by t.seq;
end
$$;

-- claim_jobs: ready -> running for rows that the caller has locked. The token of a job always grows. Jobs behind the
-- one whose record passes p_max_bytes stay ready: they are locked, so hidden, until the turn ends.
-- returns the claims in the order of the ids
create function {schema}.claim_jobs_v1(
    p_ids bytea[], p_worker text, p_number bigint, p_now bigint, p_inline integer, p_max_bytes bigint
) returns table (
    kind text, id bytea, token bigint, task text, queue text, lane text, priority integer, attempt integer, epoch integer,
    crashes integer, early boolean, enqueued bigint, expires bigint, record bytea, turn bigint, note text
) language plpgsql as $$
#variable_conflict use_column
declare
    v_ids bytea[];
    v_now bigint := {schema}.now_v1(p_now);
    v_names text[];
    v_costs bigint[];
    v_numbers bigint[];
begin
    if cardinality(p_ids) = 0 then
        return;
    end if;
    v_ids := array(
        select s.id from (
            select p.id, p.n, sum(octet_length(j.record)) over (order by p.n) - octet_length(j.record) as before
            from unnest(p_ids) with ordinality as p(id, n) join {schema}.jobs j on j.id = any(array[p.id])
        ) s where s.before < p_max_bytes order by s.n
    );
    with taken as (
        update {schema}.jobs j
        set state = {RUNNING}, token = greatest(j.token + 1, v_now), worker = p_worker, turn = p_number,
            attempt = j.attempt + 1, started = greatest(v_now, j.enqueued)
        where j.id = any(v_ids)
        returning j.buckets, j.costs
    )
    select array_agg(s.name), array_agg(s.cost), array_agg(s.n) into v_names, v_costs, v_numbers from (
        select u.name, u.cost, count(*) as n from taken t cross join unnest(t.buckets, t.costs) as u(name, cost) group by 1, 2
    ) s;
    if v_names is not null then
        perform {schema}.record_starts_v1(p_worker, v_names, v_costs, v_numbers, v_now);
    end if;
    return query select 'claim', j.id, j.token, j.task, j.queue, j.lane::text, j.priority, j.attempt, j.epoch,
        j.crashes, j.early, j.enqueued, j.expires, case when octet_length(j.record) <= p_inline then j.record end, j.turn,
        null::text
    from unnest(v_ids) with ordinality as p(id, n) join {schema}.jobs j on j.id = any(array[p.id]) order by p.n;
end
$$;

-- reply_row: a row of a turn's reply that names a queue or has a note.
create function {schema}.reply_row_v1(p_kind text, p_queue text, p_note text) returns table (
    kind text, id bytea, token bigint, task text, queue text, lane text, priority integer, attempt integer, epoch integer,
    crashes integer, early boolean, enqueued bigint, expires bigint, record bytea, turn bigint, note text
) language sql immutable as $$
    select p_kind, null::bytea, null::bigint, null::text, p_queue, null::text, null::integer, null::integer, null::integer,
        null::integer, null::boolean, null::bigint, null::bigint, null::bytea, null::bigint, p_note
$$;

-- find_gone: those of these leases that this worker does not hold.
create function {schema}.find_gone_v1(p_worker text, p_ids bytea[], p_tokens bigint[]) returns table (id bytea, token bigint)
language plpgsql as $$
#variable_conflict use_column
begin
    return query select h.id, h.token from unnest(p_ids, p_tokens) as h(id, token) where not exists (
        select 1 from {schema}.jobs j
        where j.id = any(array[h.id]) and j.token = h.token and j.state || '' = {RUNNING} and j.worker || '' = p_worker
    );
end
$$;

-- repeat_claims: the claims of turns above p_seen that the worker does not say it holds.
create function {schema}.repeat_claims_v1(p_worker text, p_seen bigint, p_held bytea[], p_held_token bigint[], p_inline integer)
returns table (
    kind text, id bytea, token bigint, task text, queue text, lane text, priority integer, attempt integer, epoch integer,
    crashes integer, early boolean, enqueued bigint, expires bigint, record bytea, turn bigint, note text
) language plpgsql as $$
#variable_conflict use_column
begin
    return query select 'claim', j.id, j.token, j.task, j.queue, j.lane::text, j.priority, j.attempt, j.epoch,
        j.crashes, j.early, j.enqueued, j.expires, case when octet_length(j.record) <= p_inline then j.record end, j.turn,
        null::text
    from {schema}.jobs j
    where j.state = {RUNNING} and j.worker = p_worker and j.turn > p_seen
        and (p_held is null or not exists (
            select 1 from unnest(p_held, p_held_token) as h(id, token) where h.id = j.id and h.token = j.token
        ))
    order by j.turn, {schema}.order_key_v1(j.seq, j.priority), j.seq;
end
$$;
