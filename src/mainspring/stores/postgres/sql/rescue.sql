-- rescue: mark a worker lost if its beat number is still the one that was seen, then move its jobs
-- A beat that came first wins: both lock the row. returns one row per moved job, and one without id when it was taken
create function {schema}.rescue_v1(p_worker text, p_number bigint, p_cause text, p_delays bigint[], p_now bigint)
returns table (id bytea, state text, woken text)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off as $$
#variable_conflict use_column
declare
    v_worker {schema}.workers;
    v_buckets text[];
    v_now bigint;
begin
    perform {schema}.guard_v1();
    select * into v_worker from {schema}.workers w where w.id = p_worker for update;
    if v_worker.id is null or v_worker.lost or v_worker.number <> p_number then
        return;
    end if;
    update {schema}.workers w set lost = true where w.id = p_worker;
    v_buckets := {schema}.lock_held_v1(v_worker);
    v_now := {schema}.now_v1(p_now);
    if {schema}.guarded_v1(v_buckets) then
        return query select null::bytea, null, w.queue from unnest({schema}.bereave_v1(p_worker, p_cause, v_now)) as w(queue);
        return query select null::bytea, 'breaker', n.breaker from {schema}.news_v1(v_buckets, v_now) as n(breaker);
    end if;
    return query select null::bytea, 'taken', null;
    return query select r.* from {schema}.release_v1(p_worker, p_cause, p_delays, v_now) r;
    return query select null::bytea, null, w.queue from unnest({schema}.freed_v1(v_buckets, false, v_now)) as w(queue);
end
$$;

-- retire: apply the acks of those known to be guilty, take back the rest, drop the worker's row
create function {schema}.retire_v1(
    p_worker text, p_cause text, p_acks {schema}.ack_v1[], p_delays bigint[], p_now bigint
) returns table (id bytea, state text, woken text)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off as $$
#variable_conflict use_column
declare
    v_worker {schema}.workers;
    v_buckets text[];
    v_now bigint;
begin
    perform {schema}.guard_v1();
    select * into v_worker from {schema}.workers w where w.id = p_worker for update;
    if v_worker.id is null or v_worker.lost then
        return;
    end if;
    v_buckets := {schema}.lock_held_v1(v_worker);
    v_now := {schema}.now_v1(p_now);
    if {schema}.guarded_v1(v_buckets) then
        return query select null::bytea, null, w.queue from unnest(
            {schema}.hear_v1(p_worker, '{}', '{}', p_acks, v_buckets, null, v_now)
        ) as w(queue);
    end if;
    return query select null::bytea, null, a.queue from {schema}.ack_v1(p_worker, p_acks, v_now) a where a.kind = 'woken';
    if {schema}.guarded_v1(v_buckets) then
        if p_cause <> 'interrupted' then
            return query select null::bytea, null, w.queue from unnest({schema}.bereave_v1(p_worker, p_cause, v_now)) as w(queue);
        end if;
        return query select null::bytea, 'breaker', n.breaker from {schema}.news_v1(v_buckets, v_now) as n(breaker);
    end if;
    return query select null::bytea, 'taken', null;
    return query select r.* from {schema}.release_v1(p_worker, p_cause, p_delays, v_now) r;
    return query select null::bytea, null, w.queue from unnest({schema}.freed_v1(v_buckets, true, v_now)) as w(queue);
    delete from {schema}.workers w where w.id = p_worker;
    return query select null::bytea, null, w.queue from unnest({schema}.obey_joined_v1(p_acks, v_now)) as w(queue);
end
$$;

-- guilt: whom a crash is charged to if jobs of several kinds ran: 1 those that crashed before, 2 suspects, 0 the others
create function {schema}.guilt_v1(p_crashes integer, p_limit integer) returns integer language sql immutable as $$
    select case when p_crashes = 0 then 0 when p_crashes >= p_limit - 1 then 2 else 1 end
$$;

-- release: running -> ready | retrying | dead | cancelled for all jobs of a worker whose row the caller has locked
-- crashed: charged are those that crashed before, else the suspects, else all; lost and interrupted: nobody
create function {schema}.release_v1(p_worker text, p_cause text, p_delays bigint[], p_now bigint)
returns table (id bytea, state text, woken text) language plpgsql as $$
#variable_conflict use_column
declare
    v_blamed integer;
    v_held integer;
    v_fates {schema}.fate_v1[];
    v_ids bytea[];
begin
    perform 1 from {schema}.jobs j where j.worker = p_worker and j.state = 'running' order by j.id for update;
    v_held := (select count(*) from {schema}.jobs j where j.worker = p_worker and j.state = 'running');
    v_blamed := (
        select coalesce(min({schema}.guilt_v1(j.crashes, j.crash_limit)), 0) from {schema}.jobs j
        where j.worker = p_worker and j.state = 'running' and j.crashes > 0
    );
    v_fates := array(
        select case
            when j.ordered is not null then row(j.id, 'cancelled', 'by_user', c.charged, null)::{schema}.fate_v1
            when j.early or c.charged and c.named and j.crashes + 1 >= j.crash_limit
                then row(j.id, 'dead', 'crashed', c.charged, null)::{schema}.fate_v1
            when c.charged and c.delay > 0 then row(j.id, 'retrying', null, true, p_now + c.delay)::{schema}.fate_v1
            else row(j.id, 'ready', null, c.charged, null)::{schema}.fate_v1 end
        from {schema}.jobs j cross join lateral (
            select p_cause = 'crashed' and {schema}.guilt_v1(j.crashes, j.crash_limit) = v_blamed as charged,
                {schema}.guilt_v1(j.crashes, j.crash_limit) = 2 or v_held = 1 as named,
                p_delays[least(j.crashes + 1, cardinality(p_delays))] as delay
        ) c
        where j.worker = p_worker and j.state = 'running'
        order by j.seq
    );
    v_ids := array(select f.id from unnest(v_fates) f);
    perform {schema}.attempted_v1(v_ids, null, p_cause, p_now);
    delete from {schema}.uses where worker = p_worker;
    -- The owner is forgotten, so that its own late ack is told "stale".
    return query
    with placed as materialized (
        select u.*, case when u.state = 'ready' then nextval('{schema}.seq') end as seq from unnest(v_fates) u
    ), moved as (
        update {schema}.jobs j
        set attempt = j.attempt - 1, crashes = j.crashes + f.charged::integer, worker = null, turn = null, due = f.due,
            lane = {schema}.lane_of_v1(j.home, j.task, j.crashes + f.charged::integer, j.crash_limit, j.parked),
            state = case when f.state in ('ready', 'retrying') then f.state else 'ready' end, seq = coalesce(case when j.seq < 0 then -f.seq else f.seq end, j.seq)
        from placed f
        where j.id = any(array[f.id])
        returning j.queue, f.state
    )
    select distinct null::bytea, null, m.queue from moved m where m.state = 'ready';
    perform {schema}.line_up_v1(array(select f.id from unnest(v_fates) f where f.state = 'ready'), false);
    return query select null::bytea, null, w.queue from unnest(
        {schema}.finish_v1(
            array(
                select row(f.id, f.state, f.reason, null, null, null, nullif(j.ordered, ''), 0)::{schema}.ending_v1
                from unnest(v_fates) f join {schema}.jobs j on j.id = any(array[f.id]) where f.state in ('dead', 'cancelled')
            ), p_now
        )
    ) as w(queue);
    return query select f.id, f.state, null from unnest(v_fates) f;
end
$$;
