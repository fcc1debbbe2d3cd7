-- Queues: modes, and settings that every enqueue obeys (apply_settings, enforce_depth), whatever the producer knows of
-- the queue.

-- queue_modes_lock: the key of the lock that claims hold shared, and that a change of a queue's mode or of a limit
-- holds exclusively.
create function {schema}.queue_modes_lock_v1() returns bigint language sql immutable as $$
    select hashtextextended('mainspring queue modes {schema}', 0)
$$;

-- set_queue_mode: set what these queues do from now on. Waits for the turns that have read the modes already; no turn
-- reads meanwhile.
create function {schema}.set_queue_mode_v1(p_queues text[], p_mode text, p_now bigint) returns void language plpgsql as $$
begin
    perform pg_advisory_xact_lock({schema}.queue_modes_lock_v1());
    if p_mode = {QUEUE_OPEN} then
        update {schema}.queues q set mode = {QUEUE_OPEN}, since = 0 where q.name = any(p_queues);
        perform {schema}.forget_queues_v1(p_queues);
        return;
    end if;
    insert into {schema}.queues (name, mode, since)
    select distinct u.name collate "C", p_mode, {schema}.now_v1(p_now) from unnest(p_queues) as u(name) order by 1
    on conflict (name) do update set mode = excluded.mode, since = excluded.since
    where queues.mode <> excluded.mode;
end
$$;

-- configure_queue: settings of a queue in place of the declared or given ones; null removes them.
create function {schema}.configure_queue_v1(p_queue text, p_settings jsonb, p_declared boolean) returns void
language plpgsql as $$
begin
    insert into {schema}.queues (name, mode, since) values (p_queue, {QUEUE_OPEN}, 0) on conflict (name) do nothing;
    update {schema}.queues q
    set declared = case when p_declared then p_settings else q.declared end,
        given = case when p_declared then q.given else p_settings end
    where q.name = p_queue;
    perform {schema}.forget_queues_v1(array[p_queue]);
end
$$;

-- declare_queues: settings that code declares [name, settings], of queues that have no declared settings yet.
create function {schema}.declare_queues_v1(p_queues jsonb) returns void language plpgsql as $$
begin
    insert into {schema}.queues (name, mode, since, declared)
    select n.pair ->> 0, {QUEUE_OPEN}, 0, n.pair -> 1 from jsonb_array_elements(p_queues) as n(pair)
    where not exists (select 1 from {schema}.queues q where q.name = any(array[n.pair ->> 0]) and q.declared is not null)
    order by 1
    on conflict (name) do update set declared = excluded.declared where queues.declared is null;
end
$$;

-- forget_queues: delete those of these rows that have no setting.
create function {schema}.forget_queues_v1(p_queues text[]) returns void language plpgsql as $$
begin
    delete from {schema}.queues q
    where q.name = any(p_queues) and q.mode = {QUEUE_OPEN} and q.disabled is null and q.declared is null and q.given is null;
end
$$;

-- disable_queues: disable these queues, or with null enable them. Waits for the turns that have read the modes already;
-- no turn reads meanwhile.
create function {schema}.disable_queues_v1(p_queues text[], p_how text, p_by text, p_now bigint) returns void
language plpgsql as $$
begin
    perform pg_advisory_xact_lock({schema}.queue_modes_lock_v1());
    if p_how is null then
        update {schema}.queues q set disabled = null, disabled_at = 0, disabled_by = '' where q.name = any(p_queues);
        perform {schema}.forget_queues_v1(p_queues);
        return;
    end if;
    insert into {schema}.queues (name, mode, since, disabled, disabled_at, disabled_by)
    select distinct u.name collate "C", {QUEUE_OPEN}, 0, p_how, {schema}.now_v1(p_now), p_by
        from unnest(p_queues) as u(name) order by 1
    on conflict (name) do update
    set disabled = excluded.disabled, disabled_at = excluded.disabled_at, disabled_by = excluded.disabled_by
    where queues.disabled is distinct from excluded.disabled;
end
$$;

-- count_for_depth: count the next jobs of a queue for its depth, in the order of ids. returns the last of them, null
-- when all are counted
create function {schema}.count_for_depth_v1(p_queue text, p_after bytea, p_limit integer) returns bytea
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    v_ids bytea[];
begin
    if not exists (select 1 from {schema}.queues q where q.name = p_queue and q.bounded) then
        return null;
    end if;
    v_ids := array(
        select j.id from {schema}.jobs j where j.id > p_after and j.queue = p_queue and not j.counted
            and j.followed & {IS_JOIN} = 0 order by j.id limit p_limit
    );
    perform 1 from {schema}.jobs j where j.id = any(v_ids) order by j.id for update;
    update {schema}.jobs j set counted = true where j.id = any(v_ids);
    return case when cardinality(v_ids) = p_limit then v_ids[p_limit] end;
end
$$;

-- accept_jobs: the queues of jobs that were just inserted refuse them, or apply their settings to them.
-- returns whether a queue has something stored; then enforce_depth has to follow
create function {schema}.accept_jobs_v1(p_ids bytea[]) returns boolean language plpgsql as $$
declare
    v_queue {schema}.queues;
begin
    if not exists (select 1 from {schema}.queues q where q.special) then
        return false;
    end if;
    select q.* into v_queue from {schema}.queues q
    where (q.mode = {QUEUE_DRAINING} or q.disabled = {DISABLED_REJECT})
        and exists (select 1 from {schema}.jobs j where j.id = any(p_ids) and j.queue = q.name)
    order by q.name limit 1;
    if v_queue.mode = {QUEUE_DRAINING} then
        raise exception '%', v_queue.name using errcode = {ERROR_DRAINING};
    elsif v_queue.name is not null then
        raise exception '%', v_queue.name using errcode = {ERROR_DISABLED}, detail = v_queue.disabled_by;
    end if;
    perform {schema}.apply_settings_v1(p_ids);
    return true;
end
$$;

-- apply_settings: give new jobs the order, the limits and the depth count of their queues. In a lifo queue seq is
-- negative, and stays so: every entry into ready keeps the sign. -1 is the seq of a job that is not ready.
create function {schema}.apply_settings_v1(p_ids bytea[]) returns void language plpgsql as $$
begin
    update {schema}.jobs j
    set seq = n.seq, counted = n.counted, home = n.home, lane = n.home, buckets = n.buckets, costs = n.costs
    from (
        select o.id, q.bounded and o.followed & {IS_JOIN} = 0 as counted,
            case when q.settings ->> 'order' = {ORDER_LIFO} then -greatest(o.seq, 1) else o.seq end as seq,
            case when m.names is null then o.home else {schema}.lane_with_limits_v1(o.home, o.queue,
                q.settings -> 'labels') end as home,
            coalesce(m.names, o.buckets) as buckets, case when m.names is null then o.costs when m.costly
                then m.costs end as costs
        from {schema}.jobs o join {schema}.queues q on q.name = any(array[o.queue]) and q.settings is not null
        cross join lateral (
            select array_agg(x.name order by x.name collate "C") as names, bool_or(x.cost <> 1) as costly,
                array_agg(x.cost order by x.name collate "C") as costs
            from (
                select b.name, coalesce(b.cost, 1) as cost from unnest(o.buckets, o.costs) as b(name, cost)
                union all
                select l.pair ->> 0, (l.pair ->> 1)::bigint from jsonb_array_elements(q.settings -> 'limits') as l(pair)
                where o.buckets is null or l.pair ->> 0 <> all(o.buckets)
            ) x
            where jsonb_array_length(q.settings -> 'limits') > 0
        ) m
        where o.id = any(p_ids)
    ) n
    where j.id = any(array[n.id]);
end
$$;

-- lock_depths: lock the depths of those of these queues that have a max_depth. Before any lock that a transaction which
-- frees places in such a queue could wait for
create function {schema}.lock_depths_v1(p_queue text[]) returns void language plpgsql as $$
begin
    perform pg_advisory_xact_lock(hashtextextended('{schema} depth ' || b.name, 0)) from (
        select q.name from {schema}.queues q where q.bounded and q.name = any(p_queue) order by q.name
    ) b;
end
$$;

-- enforce_depth: new jobs end at once in a queue that skips them; in a queue with a max_depth no more jobs wait than
-- that, or all are refused. p_stayed: jobs that were in the queue before and count as they did. The count holds the
-- lock of the queue to its commit, so no count misses the jobs of another transaction.
-- returns the queues in which jobs became ready that waited for the ended ones
create function {schema}.enforce_depth_v1(p_ids bytea[], p_stayed bytea[], p_accepted boolean, p_now bigint)
returns text[] language plpgsql as $$
declare
    v_queue record;
    v_woken text[] := '{}';
begin
    for v_queue in
        select q.*, n.ids from {schema}.queues q
        join (
            select j.queue, array_agg(j.id) as ids from {schema}.jobs j
            where j.id = any(p_ids) and j.id <> all(p_stayed) group by j.queue
        ) n on n.queue = q.name
        where q.special order by q.name
    loop
        if v_queue.disabled = {DISABLED_SKIP} then
            v_woken := v_woken || {schema}.cancel_waiting_v1(
                v_queue.ids, {SKIPPED}, 'queue ''' || v_queue.name || ''' is disabled'
                    || case when v_queue.disabled_by = '' then '' else ' by ' || v_queue.disabled_by end, p_now
            );
        elsif v_queue.bounded and not p_accepted then
            perform pg_advisory_xact_lock(hashtextextended('{schema} depth ' || v_queue.name, 0));
            v_woken := v_woken || {schema}.enforce_max_depth_v1(
                v_queue.name, (v_queue.settings ->> 'max_depth')::bigint, coalesce(v_queue.settings ->> 'on_full', {FULL_ERROR}),
                v_queue.ids, p_stayed, p_now
            );
        end if;
    end loop;
    return v_woken;
end
$$;

-- enforce_max_depth: if more than p_most jobs wait in a queue, refuse the new jobs, or end the oldest of the others
-- (except p_stayed).
-- returns the queues in which a job became ready
create function {schema}.enforce_max_depth_v1(
    p_queue text, p_most bigint, p_on_full text, p_ids bytea[], p_stayed bytea[], p_now bigint
) returns text[] language plpgsql as $$
declare
    v_depth bigint;
    v_first bigint;
    v_old bytea[];
    v_woken text[] := '{}';
begin
    loop
        select count(*), min(j.enqueued) into v_depth, v_first from {schema}.jobs j
        where j.counted and j.state <> {RUNNING} and j.queue = p_queue;
        exit when v_depth <= p_most;
        if p_on_full = {FULL_DROP_OLDEST} then
            v_old := array(
                select j.id from {schema}.jobs j
                where j.counted and j.state <> {RUNNING} and j.queue = p_queue and j.id <> all(p_ids || p_stayed)
                order by j.enqueued, j.id limit v_depth - p_most
            );
        end if;
        if coalesce(cardinality(v_old), 0) < v_depth - p_most then
            raise exception '%', p_queue using errcode = {ERROR_QUEUE_FULL}, detail = jsonb_build_object(
                'max_depth', p_most, 'on_full', p_on_full, 'depth', v_depth - cardinality(p_ids),
                'excess', v_depth - p_most, 'age', p_now - v_first
            )::text;
        end if;
        -- A job that a claim had locked runs by now: then the next oldest is ended. A job that was replaced is another
        -- row.
        v_old := array(select j.id from {schema}.jobs j where j.id = any(v_old) order by j.id for update);
        v_woken := v_woken || {schema}.cancel_waiting_v1(
            v_old, {SUPERSEDED}, 'dropped: queue ''' || p_queue || ''' was full (max_depth ' || p_most || ')', p_now
        );
    end loop;
    return v_woken;
end
$$;

-- cancel_waiting: those of these jobs that wait, which the caller has locked or inserted, -> cancelled.
create function {schema}.cancel_waiting_v1(p_ids bytea[], p_reason text, p_note text, p_now bigint) returns text[]
language plpgsql as $$
begin
    return {schema}.finish_v1(
        array(
            select row(j.id, {CANCELLED}, p_reason, null, null, null, p_note, 0, null)::{schema}.ending_v1
            from {schema}.jobs j where j.id = any(p_ids) and j.state || '' <> {RUNNING}
        ), p_now
    );
end
$$;
