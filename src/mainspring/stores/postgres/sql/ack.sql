-- succeed: running -> succeeded for plain successes: no order, no follow-up job for this end; those that name buckets only
-- if p_limited says that the caller has locked them
-- One statement moves them; a row that somebody else holds is waited for and looked at again, and what does not fit any
-- more is left for ack. Their children are resolved in a statement after it.
-- returns which of them were moved, the queues in which a job became ready, and the parts that they are of, to be noted
create function {schema}.succeed_v1(
    p_worker text, p_id bytea[], p_token bigint[], p_result bytea[], p_error bytea[], p_limited boolean, p_now bigint
) returns {schema}.moved_v1 language plpgsql as $$
declare
    v_done bytea[];
    v_token bigint[];
    v_parts text[];
    v_woken text[] := '{}';
begin
    -- By primary key, state and worker as expressions: through the index on running(worker) this is a loop over all pairs.
    with gone as (
        delete from {schema}.jobs j using unnest(p_id, p_token, p_result, p_error) as a(id, token, result, error)
        where j.id = any(array[a.id]) and j.token = a.token and j.state || '' = 'running' and j.worker || '' = p_worker
            and j.ordered is null and (j.buckets is null or j.buckets = '{}' or p_limited) and j.follows & 1 = 0
        returning j.seq, j.token, j.enqueued, j.priority, j.attempt, j.epoch, j.crashes, j.crash_limit, j.follows, j.early,
            j.id, j.task, j.queue, j.home, j.lane, j.record, j.started, j.expires, j.keep, j.key, j.buckets,
            j.costs, j.part, a.result, a.error
    ), kept as (
        insert into {schema}.finished (
            seq, token, enqueued, finished, priority, attempt, epoch, crashes, crash_limit, follows, early, id, state, task,
            queue, home, lane, record, worker, started, result, error, expires, keep, drop_at, key, buckets, costs, part
        )
        select seq, token, enqueued, p_now, priority, attempt, epoch, crashes, crash_limit, follows, early, id, 'succeeded', task,
            queue, home, lane, record, p_worker, started, result, error, expires, keep,
            case when keep is not null then p_now + least(keep, 4611686018427387904) end, key, buckets, costs, part
        from gone
        returning id, token, buckets, part
    ), freed as (
        select b.name, sum(k.n) as n from (
            select kept.buckets, count(*) as n from kept where p_limited group by kept.buckets
        ) k cross join unnest(k.buckets) as b(name) group by b.name
    ), empty as (
        delete from {schema}.uses u using freed f where u.bucket = any(array[f.name]) and u.worker = p_worker and u.n <= f.n
    ), fewer as (
        update {schema}.uses u set n = u.n - f.n from freed f
        where u.bucket = any(array[f.name]) and u.worker = p_worker and u.n > f.n
    )
    select coalesce(array_agg(kept.id), '{}'), coalesce(array_agg(kept.token), '{}'),
        array_agg(kept.part) filter (where kept.part is not null)
    into v_done, v_token, v_parts from kept;
    if exists (select 1 from {schema}.edges e where e.parent = any(v_done)) then
        v_woken := {schema}.resolve_v1(v_done, array_fill(true, array[cardinality(v_done)]), p_now);
    end if;
    return (v_done, v_token, v_woken, v_parts);
end
$$;

-- rest: those of these successes that were not moved, as acks
create function {schema}.rest_v1(p_moved {schema}.moved_v1, p_id bytea[], p_token bigint[], p_result bytea[], p_error bytea[])
returns {schema}.ack_v1[] language plpgsql as $$
begin
    return array(
        select row(
            -u.n, u.id, u.token, 'succeeded', 'succeeded', null, 0, null, u.result, u.error, null, false, false, 0, null, null, null, null
        )::{schema}.ack_v1
        from unnest(p_id, p_token, p_result, p_error) with ordinality as u(id, token, result, error, n)
        where not exists (
            select 1 from unnest(p_moved.done, p_moved.token) as d(id, token) where d.id = u.id and d.token = u.token
        )
    );
end
$$;

-- ack: running -> where each ack says, or cancelled where an order waits; the caller has locked the worker's row
-- returns one row per ack that was not applied, already (the same owner's same ack was applied before) or stale; and
-- one per queue in which a job became ready
create function {schema}.ack_v1(p_worker text, p_acks {schema}.ack_v1[], p_now bigint)
returns table (kind text, id bytea, token bigint, queue text) language plpgsql as $$
#variable_conflict use_column
declare
    v_ids bytea[] := array(select a.id from unnest(p_acks) a);
    v_good {schema}.ack_v1[];
    v_applied integer[];
    v_woken text[];
begin
    -- Whoever moves running rows holds their worker's row, as we do; only a cancel order can still come between.
    perform 1 from {schema}.jobs j where j.id = any(v_ids) order by j.id for update;
    v_good := array(
        select a from unnest(p_acks) a join {schema}.jobs j on j.id = any(array[a.id])
        where j.token = a.token and j.state || '' = 'running' and j.worker || '' = p_worker
    );
    v_applied := array(select g.n from unnest(v_good) g);
    perform {schema}.amend_acked_v1(v_good, p_now);
    v_woken := {schema}.hand_back_v1(p_worker, v_good, p_now);
    v_woken := v_woken || {schema}.finish_v1(
        array(
            select case when j.ordered is null
                then row(a.id, a."to", a.reason, a.result, a.error, a.label, null, a.refund::integer)::{schema}.ending_v1
                else row(
                    a.id, 'cancelled', 'by_user', null, a.error, null, nullif(j.ordered, ''), a.refund::integer
                )::{schema}.ending_v1 end
            from unnest(v_good) a join {schema}.jobs j on j.id = any(array[a.id])
            where j.token = a.token and j.state || '' = 'running'
        ), p_now
    );
    return query select 'woken', null::bytea, null::bigint, w.queue from unnest(v_woken) w(queue);

    if cardinality(v_good) < cardinality(p_acks) then
        return query
        select case when coalesce(
                (
                    select t.worker = p_worker and t.acked and t.outcome = a.outcome from {schema}.attempts t
                    where t.job = any(array[a.id]) and t.token = a.token
                ),
                -- A plain success leaves no attempt: its row in history tells, or that of the epoch after it.
                a.outcome = 'succeeded' and (exists (
                    select 1 from {schema}.finished f
                    where f.id = any(array[a.id]) and f.token = a.token and f.worker = p_worker and f.state = 'succeeded'
                ) or exists (
                    select 1 from {schema}.jobs j
                    where j.id = any(array[a.id]) and j.token = a.token and j.worker || '' = p_worker and j.state || '' <> 'running'
                ))
            ) then 'already' else 'stale' end, a.id, a.token, null
        from unnest(p_acks) a where a.n <> all(v_applied);
    end if;
end
$$;

-- hand_back: keep the attempts of acks that are more than plain successes; running -> ready | retrying | scheduled for
-- those that say so and have no order; their places in buckets are free. One that is handed back with buckets or a part keeps
-- its seq, and may be blocked. returns the queues in which a job became ready
create function {schema}.hand_back_v1(p_worker text, p_acks {schema}.ack_v1[], p_now bigint) returns text[]
language plpgsql as $$
declare
    v_back bytea[];
    v_woken text[];
    v_limited bytea[];
begin
    perform {schema}.attempted_v1(
        array(
            select a.id from unnest(p_acks) a join {schema}.jobs j on j.id = any(array[a.id])
            where a."to" <> 'succeeded' or j.ordered is not null
        ), p_acks, null, p_now
    );
    v_back := array(
        select a.id from unnest(p_acks) a join {schema}.jobs j on j.id = any(array[a.id])
        where j.ordered is null and a."to" in ('ready', 'retrying', 'scheduled')
    );
    if cardinality(v_back) = 0 then
        return '{}';
    end if;
    with placed as materialized (
        select u.*, case when u."to" = 'ready' and u.buckets is null then nextval('{schema}.seq') end as seq
        from (select x.* from unnest(p_acks) x where x.id = any(v_back) order by x.n) u
    ), moved as (
        update {schema}.jobs j
        set state = a."to",
            attempt = j.attempt - a.refund::integer,
            parked = j.parked or a.park,
            lane = {schema}.lane_of_v1(j.home, j.task, j.crashes, j.crash_limit, j.parked or a.park),
            due = case when a."to" <> 'ready' then coalesce(a.due, p_now + a.delay) end,
            seq = coalesce(case when j.seq < 0 then -a.seq else a.seq end, j.seq),
            turn = null
        from placed a
        where j.id = any(array[a.id])
        returning j.id, j.queue, j.state, j.buckets
    )
    select array_agg(distinct m.queue) filter (where m.state = 'ready'), array_agg(m.id) filter (where m.buckets is not null)
    into v_woken, v_limited from moved m;
    if v_limited is not null then
        perform {schema}.free_v1(p_worker, {schema}.buckets_of_v1(v_limited));
    end if;
    if exists (select 1 from unnest(p_acks) a where a.buckets is not null) then
        v_limited := v_limited || {schema}.widen_v1(p_acks, v_back);
    end if;
    if exists (select 1 from unnest(p_acks) a where a.part is not null) then
        perform {schema}.join_parts_v1(p_acks, v_back);
    end if;
    if v_limited is not null then
        perform {schema}.line_up_v1(v_limited, false);
    end if;
    return coalesce(v_woken, '{}');
end
$$;

-- attempted: keep an attempt of each of these running jobs that ends now, by its ack or else by p_cause; of each job the
-- newest hundred stay
create function {schema}.attempted_v1(p_ids bytea[], p_acks {schema}.ack_v1[], p_cause text, p_now bigint) returns void
language plpgsql as $$
begin
    if cardinality(p_ids) = 0 then
        return;
    end if;
    if p_cause is null then
        insert into {schema}.attempts (job, token, epoch, attempt, worker, started, ended, outcome, acked, error)
        select j.id, j.token, j.epoch, j.attempt, j.worker, j.started, p_now, a.outcome, true, a.error
        from unnest(p_acks) a join {schema}.jobs j on j.id = any(array[a.id])
        where j.id = any(p_ids)
        on conflict do nothing;
    else
        insert into {schema}.attempts (job, token, epoch, attempt, worker, started, ended, outcome, acked)
        select j.id, j.token, j.epoch, j.attempt, j.worker, j.started, p_now, p_cause, false
        from {schema}.jobs j where j.id = any(p_ids)
        on conflict do nothing;
    end if;
    delete from {schema}.attempts t using (
        select u.id, (
            select o.token from {schema}.attempts o where o.job = any(array[u.id]) order by o.token desc offset 100 limit 1
        ) as token
        from unnest(p_ids) as u(id)
    ) old
    where t.job = any(array[old.id]) and t.token <= old.token;
end
$$;
