-- enqueue: (new) -> ready | scheduled | blocked, or cancelled at once by a parent that ended badly; all of the batch or nothing
-- The lock on the batch makes a repeat wait for a first try that still runs here; it then looks in all places.
-- returns the ids that were inserted
create function {schema}.enqueue_v1(
    p_batch bytea, p_retry boolean, p_now bigint,
    p_id bytea[], p_task text[], p_queue text[], p_home text[], p_priority integer[], p_delay bigint[], p_run_at bigint[],
    p_expires_in bigint[], p_crash_limit integer[], p_early boolean[], p_record bytea[],
    p_child bytea[], p_parent bytea[], p_policy text[], p_holder bytea[], p_bucket text[], p_size integer[]
) returns setof bytea
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan as $$
declare
    v_now bigint;
    v_new bytea[];
    v_limits jsonb;
    v_waits jsonb := '{}';
    v_broken {schema}.ending_v1[];
begin
    perform pg_advisory_xact_lock(hashtextextended('{schema}' || encode(p_batch, 'hex'), 0));
    perform {schema}.size_buckets_v1(p_bucket, p_size);
    perform 1 from {schema}.jobs j where j.id = any(p_parent) order by j.id for key share;
    v_now := {schema}.now_v1(p_now);
    if cardinality(p_child) > 0 then
        -- A new statement: a parent whose end we waited for is found where it went.
        v_new := array(
            select u.id from unnest(p_id) u(id)
            where not exists (select 1 from {schema}.jobs j where j.id = u.id) and not (p_retry and (
                exists (select 1 from {schema}.finished f where f.id = u.id)
                or exists (select 1 from {schema}.dead d where d.id = u.id)))
        );
        select coalesce(w.waits, '{}'), w.broken into v_waits, v_broken
        from {schema}.weigh_v1(v_new, p_child, p_parent, p_policy) w;
    end if;
    if cardinality(p_holder) > 0 then
        select jsonb_object_agg(h.id, h.names) into v_limits from (
            select encode(u.holder, 'hex') as id, jsonb_agg(distinct u.bucket) as names
            from unnest(p_holder, p_bucket) as u(holder, bucket) group by u.holder
        ) h;
    end if;

    return query
    insert into {schema}.jobs (
        id, state, task, queue, home, priority, seq, due, expires, crash_limit, early, deps, buckets, enqueued, record
    )
    select n.id, n.state, n.task, n.queue, n.home, n.priority, case when n.state = 'ready' then nextval('{schema}.seq') else 0 end,
        case when n.state <> 'ready' and n.due > v_now then n.due end, v_now + n.expires_in, n.crash_limit, n.early, n.deps,
        case when v_limits ? encode(n.id, 'hex')
            then array(select jsonb_array_elements_text(v_limits -> encode(n.id, 'hex'))) end,
        v_now, n.record
    from (
        select u.*, d.due, coalesce((v_waits ->> encode(u.id, 'hex'))::integer, 0) as deps,
            case when v_waits ? encode(u.id, 'hex') then 'blocked' when d.due > v_now then 'scheduled' else 'ready' end as state
        from unnest(p_id, p_task, p_queue, p_home, p_priority, p_delay, p_run_at, p_expires_in, p_crash_limit, p_early, p_record)
            with ordinality as u(id, task, queue, home, priority, delay, run_at, expires_in, crash_limit, early, record, n)
        cross join lateral (select coalesce(u.run_at, v_now + u.delay) as due) d
        where not (p_retry and (
            exists (select 1 from {schema}.finished f where f.id = u.id)
            or exists (select 1 from {schema}.dead x where x.id = u.id)))
        order by u.n
    ) n
    on conflict (id) do nothing
    returning jobs.id;

    if cardinality(p_child) > 0 then
        insert into {schema}.edges (parent, child, policy)
        select e.parent, e.child, min(e.policy) from unnest(p_child, p_parent, p_policy) as e(child, parent, policy)
        where e.child = any(v_new) and exists (select 1 from {schema}.jobs j where j.id = e.parent)
        group by e.parent, e.child;
        perform {schema}.finish_v1(v_broken, v_now);
    end if;
end
$$;

-- weigh: how many live parents each new job waits for, and which new jobs a parent that is final already cancels
create function {schema}.weigh_v1(p_new bytea[], p_child bytea[], p_parent bytea[], p_policy text[])
returns table (waits jsonb, broken {schema}.ending_v1[]) language plpgsql as $$
declare
    v_missing bytea;
begin
    select e.parent into v_missing from unnest(p_child, p_parent) as e(child, parent)
    where e.child = any(p_new) and e.parent <> all(p_new)
        and not exists (select 1 from {schema}.jobs j where j.id = e.parent)
        and not exists (select 1 from {schema}.finished f where f.id = e.parent)
        and not exists (select 1 from {schema}.dead d where d.id = e.parent)
    limit 1;
    if v_missing is not null then
        raise exception 'parent % does not exist', encode(v_missing, 'hex')::uuid using errcode = 'MS001';
    end if;
    return query
    with edge as (
        select e.child, e.parent, min(e.policy) as policy,
            e.parent = any(p_new) or exists (select 1 from {schema}.jobs j where j.id = e.parent) as live,
            exists (select 1 from {schema}.finished f where f.id = e.parent and f.state = 'succeeded') as good
        from unnest(p_child, p_parent, p_policy) as e(child, parent, policy)
        where e.child = any(p_new)
        group by e.child, e.parent
    ), verdict as (
        select child, count(*) filter (where live) as n, bool_or(not live and not good and policy = 'fail') as broken
        from edge group by child
    )
    -- A cancelled child is inserted as blocked and leaves by the same door as everybody.
    select jsonb_object_agg(encode(child, 'hex'), greatest(n, 1)) filter (where n > 0 or v.broken),
        coalesce(array_agg(row(child, 'cancelled', 'parent', null, null, 0)::{schema}.ending_v1) filter (where v.broken), '{}')
    from verdict v;
end
$$;

-- size_buckets: make the buckets that are new and resize those that changed, in the order of their names
-- Buckets that stand as they are are not locked: an open transaction of a producer must not stop the fleet.
create function {schema}.size_buckets_v1(p_bucket text[], p_size integer[]) returns void language plpgsql as $$
begin
    if cardinality(p_bucket) = 0 then
        return;
    end if;
    insert into {schema}.buckets (name, size)
    select u.name, u.size from (
        select distinct on (s.name collate "C") s.name, s.size from unnest(p_bucket, p_size) with ordinality as s(name, size, n)
        order by s.name collate "C", s.n desc
    ) u
    where not exists (select 1 from {schema}.buckets b where b.name = u.name and b.size = u.size)
    order by u.name collate "C"
    on conflict (name) do update set size = excluded.size;
end
$$;
