-- carried: the bytes of the records that a turn has handed out so far
create function {schema}.carried_v1(p_worker text, p_number bigint) returns bigint language plpgsql as $$
begin
    return (
        select coalesce(sum(octet_length(j.record)), 0) from {schema}.jobs j
        where j.state = 'running' and j.worker = p_worker and j.turn = p_number
    );
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
        ) s where s.before < p_room order by s.n
    );
    with taken as (
        update {schema}.jobs j
        set state = 'running', token = greatest(j.token + 1, v_now), worker = p_worker, turn = p_number,
            attempt = j.attempt + 1, started = greatest(v_now, j.enqueued)
        where j.id = any(v_ids)
        returning j.buckets, j.costs
    )
    select array_agg(s.name), array_agg(s.cost), array_agg(s.n) into v_names, v_costs, v_numbers from (
        select u.name, u.cost, count(*) as n from taken t cross join unnest(t.buckets, t.costs) as u(name, cost) group by 1, 2
    ) s;
    if v_names is not null then
        perform {schema}.start_v1(p_worker, v_names, v_costs, v_numbers, v_now);
    end if;
    return query select 'claim', j.id, j.token, j.task, j.queue, j.lane::text, j.priority, j.attempt, j.epoch,
        j.crashes, j.early, j.enqueued, j.expires, case when octet_length(j.record) <= p_inline then j.record end, j.turn, null
    from unnest(v_ids) with ordinality as p(id, n) join {schema}.jobs j on j.id = any(array[p.id]) order by p.n;
end
$$;

-- gone: those of these leases that this worker does not have
create function {schema}.gone_v1(p_worker text, p_ids bytea[], p_tokens bigint[]) returns table (id bytea, token bigint)
language plpgsql as $$
#variable_conflict use_column
begin
    return query select h.id, h.token from unnest(p_ids, p_tokens) as h(id, token) where not exists (
        select 1 from {schema}.jobs j
        where j.id = any(array[h.id]) and j.token = h.token and j.state || '' = 'running' and j.worker || '' = p_worker
    );
end
$$;

-- again: the claims of turns above p_seen that the worker does not say it holds
create function {schema}.again_v1(p_worker text, p_seen bigint, p_held bytea[], p_held_token bigint[], p_inline integer)
returns table (
    kind text, id bytea, token bigint, task text, queue text, lane text, priority integer, attempt integer, epoch integer,
    crashes integer, early boolean, enqueued bigint, expires bigint, record bytea, turn bigint, note text
) language plpgsql as $$
#variable_conflict use_column
begin
    return query select 'claim', j.id, j.token, j.task, j.queue, j.lane::text, j.priority, j.attempt, j.epoch,
        j.crashes, j.early, j.enqueued, j.expires, case when octet_length(j.record) <= p_inline then j.record end, j.turn, null
    from {schema}.jobs j
    where j.state = 'running' and j.worker = p_worker and j.turn > p_seen
        and (p_held is null or not exists (
            select 1 from unnest(p_held, p_held_token) as h(id, token) where h.id = j.id and h.token = j.token
        ))
    order by j.turn, j.priority desc, j.seq;
end
$$;
