-- settings of queues: stored here, obeyed by everybody who enqueues (see place_new and keep_depth), whatever it knows of them

-- configure: settings of a queue in place of those that were declared or given before; null takes them back
create function {schema}.configure_v1(p_queue text, p_settings jsonb, p_declared boolean) returns void language plpgsql as $$
begin
    insert into {schema}.queues (name, mode, since) values (p_queue, 'open', 0) on conflict (name) do nothing;
    update {schema}.queues q
    set declared = case when p_declared then p_settings else q.declared end,
        given = case when p_declared then q.given else p_settings end
    where q.name = p_queue;
    perform {schema}.forget_queues_v1(array[p_queue]);
end
$$;

-- make_queues: settings that code declares [name, settings], of queues of which nothing declared is known
create function {schema}.make_queues_v1(p_queues jsonb) returns void language plpgsql as $$
begin
    insert into {schema}.queues (name, mode, since, declared)
    select n.pair ->> 0, 'open', 0, n.pair -> 1 from jsonb_array_elements(p_queues) as n(pair)
    where not exists (select 1 from {schema}.queues q where q.name = any(array[n.pair ->> 0]) and q.declared is not null)
    order by 1
    on conflict (name) do update set declared = excluded.declared where queues.declared is null;
end
$$;

-- forget_queues: those of which nothing is left to tell
create function {schema}.forget_queues_v1(p_queues text[]) returns void language plpgsql as $$
begin
    delete from {schema}.queues q
    where q.name = any(p_queues) and q.mode = 'open' and q.disabled is null and q.declared is null and q.given is null;
end
$$;

-- disable: switch queues off, or with null on again. Waits for the turns that have looked already, and no turn looks meanwhile
create function {schema}.disable_v1(p_queues text[], p_how text, p_by text, p_now bigint) returns void language plpgsql as $$
begin
    perform pg_advisory_xact_lock({schema}.modes_lock_v1());
    if p_how is null then
        update {schema}.queues q set disabled = null, disabled_at = 0, disabled_by = '' where q.name = any(p_queues);
        perform {schema}.forget_queues_v1(p_queues);
        return;
    end if;
    insert into {schema}.queues (name, mode, since, disabled, disabled_at, disabled_by)
    select distinct u.name collate "C", 'open', 0, p_how, {schema}.now_v1(p_now), p_by from unnest(p_queues) as u(name) order by 1
    on conflict (name) do update
    set disabled = excluded.disabled, disabled_at = excluded.disabled_at, disabled_by = excluded.disabled_by
    where queues.disabled is distinct from excluded.disabled;
end
$$;

-- bind: count the next jobs of a queue for its depth, in the order of ids. returns the last of them, null when all are
create function {schema}.bind_v1(p_queue text, p_after bytea, p_limit integer) returns bytea
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
        select j.id from {schema}.jobs j where j.id > p_after and j.queue = p_queue and not j.bound order by j.id limit p_limit
    );
    perform 1 from {schema}.jobs j where j.id = any(v_ids) order by j.id for update;
    update {schema}.jobs j set bound = true where j.id = any(v_ids);
    return case when cardinality(v_ids) = p_limit then v_ids[p_limit] end;
end
$$;

-- take_in: what their queues make of jobs that were just inserted: refused by one that takes none, else in their places
-- returns whether something is stored of one of them; then keep_depth has to follow
create function {schema}.take_in_v1(p_ids bytea[]) returns boolean language plpgsql as $$
declare
    v_queue {schema}.queues;
begin
    if not exists (select 1 from {schema}.queues q where q.special) then
        return false;
    end if;
    select q.* into v_queue from {schema}.queues q
    where (q.mode = 'draining' or q.disabled = 'reject')
        and exists (select 1 from {schema}.jobs j where j.id = any(p_ids) and j.queue = q.name)
    order by q.name limit 1;
    if v_queue.mode = 'draining' then
        raise exception '%', v_queue.name using errcode = 'MS003';
    elsif v_queue.name is not null then
        raise exception '%', v_queue.name using errcode = 'MS004', detail = v_queue.disabled_by;
    end if;
    perform {schema}.place_new_v1(p_ids);
    return true;
end
$$;

-- place_new: new jobs stand in the order of their queues, name the limits of those, and count for their depth
-- Of a stack the seqs are negative, and stay so: every entry into ready keeps the sign. -1 is that of one that is not ready.
create function {schema}.place_new_v1(p_ids bytea[]) returns void language plpgsql as $$
begin
    update {schema}.jobs j
    set seq = n.seq, bound = n.bound, home = n.home, lane = n.home, buckets = n.buckets, costs = n.costs
    from (
        select o.id, q.bounded as bound,
            case when q.settings ->> 'order' = 'lifo' then -greatest(o.seq, 1) else o.seq end as seq,
            case when m.names is null then o.home else {schema}.gated_v1(o.home, o.queue, q.settings -> 'labels') end as home,
            coalesce(m.names, o.buckets) as buckets, case when m.names is null then o.costs when m.dear then m.costs end as costs
        from {schema}.jobs o join {schema}.queues q on q.name = any(array[o.queue]) and q.settings is not null
        cross join lateral (
            select array_agg(x.name order by x.name collate "C") as names, bool_or(x.cost <> 1) as dear,
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

-- gated: the home of a job with more gates, and keys: base lane, #, gates in order, and the keys if there are any (see lanes.py).
-- A fair key stands before the others, and has another sign among gates if its jobs need room
create function {schema}.gated_v1(p_home text, p_queue text, p_labels jsonb) returns text language plpgsql immutable as $$
declare
    v_rest text := substr(p_home, length(p_queue) + 1);
    v_at integer := strpos(v_rest, '#');
    v_base text := p_queue || case when v_at = 0 then v_rest else left(v_rest, v_at - 1) end;
    v_gates text := case when v_at = 0 then '' else substr(v_rest, v_at + 1) end;
    v_keys text := case when strpos(v_gates, '=') = 0 then '' else substr(v_gates, strpos(v_gates, '=')) end;
begin
    v_gates := left(v_gates, length(v_gates) - length(v_keys));
    return (
        select v_base || '#' || coalesce(string_agg(g.label, ',' order by g.label collate "C") filter (where not g.keyed), '')
            || coalesce('=' || string_agg(g.label, ',' order by strpos(g.label, '*') = 0, g.label collate "C") filter (where g.keyed), '')
        from (
            select u.label, u.keyed from (
                select case x.label when '*' then '**' else x.label end as label, false as keyed
                from unnest(string_to_array(v_gates, ',')) as x(label)
                union all
                select x.label, true from unnest(string_to_array(substr(v_keys, 2), ',')) as x(label)
            ) u where u.label <> ''
            union
            select l.label, strpos(l.label, '=') > 0 from jsonb_array_elements_text(p_labels) as l(label)
        ) g
    );
end
$$;

-- lock_depths: hold what those of these queues are counted under that have a max_depth. Before anything that whoever makes
-- room in one of them could wait for
create function {schema}.lock_depths_v1(p_queue text[]) returns void language plpgsql as $$
begin
    perform pg_advisory_xact_lock(hashtextextended('{schema} depth ' || b.name, 0)) from (
        select q.name from {schema}.queues q where q.bounded and q.name = any(p_queue) order by q.name
    ) b;
end
$$;

-- keep_depth: new jobs end at once in a queue that skips them; in one with a max_depth no more wait than that, or all is
-- refused. p_stayed: those of them that were in their queue before, and count as they did. Whoever counts holds the lock of the queue to its commit, so nobody counts without the jobs of another.
-- returns the queues in which jobs became ready that waited for those that ended
create function {schema}.keep_depth_v1(p_ids bytea[], p_stayed bytea[], p_accepted boolean, p_now bigint)
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
        if v_queue.disabled = 'skip' then
            v_woken := v_woken || {schema}.cancel_new_v1(
                v_queue.ids, 'skipped', 'queue ''' || v_queue.name || ''' is disabled'
                    || case when v_queue.disabled_by = '' then '' else ' by ' || v_queue.disabled_by end, p_now
            );
        elsif v_queue.bounded and not p_accepted then
            perform pg_advisory_xact_lock(hashtextextended('{schema} depth ' || v_queue.name, 0));
            v_woken := v_woken || {schema}.make_room_v1(
                v_queue.name, (v_queue.settings ->> 'max_depth')::bigint, coalesce(v_queue.settings ->> 'on_full', 'error'),
                v_queue.ids, p_stayed, p_now
            );
        end if;
    end loop;
    return v_woken;
end
$$;

-- make_room: refuse these new jobs, or end the oldest of the others (but for some that stay), if more jobs wait in their
-- queue than may
create function {schema}.make_room_v1(
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
        where j.bound and j.state <> 'running' and j.queue = p_queue;
        exit when v_depth <= p_most;
        if p_on_full = 'drop_oldest' then
            v_old := array(
                select j.id from {schema}.jobs j
                where j.bound and j.state <> 'running' and j.queue = p_queue and j.id <> all(p_ids || p_stayed)
                order by j.enqueued, j.id limit v_depth - p_most
            );
        end if;
        if coalesce(cardinality(v_old), 0) < v_depth - p_most then
            raise exception '%', p_queue using errcode = 'MS005', detail = jsonb_build_object(
                'max_depth', p_most, 'on_full', p_on_full, 'depth', v_depth - cardinality(p_ids),
                'excess', v_depth - p_most, 'age', p_now - v_first
            )::text;
        end if;
        -- One that a claim has in hand runs when we get it: then the next oldest goes. One that was replaced is another row.
        v_old := array(select j.id from {schema}.jobs j where j.id = any(v_old) order by j.id for update);
        v_woken := v_woken || {schema}.cancel_new_v1(
            v_old, 'superseded', 'dropped: queue ''' || p_queue || ''' was full (max_depth ' || p_most || ')', p_now
        );
    end loop;
    return v_woken;
end
$$;

-- cancel_new: those of these jobs that wait, which the caller has locked or made, are cancelled
create function {schema}.cancel_new_v1(p_ids bytea[], p_reason text, p_note text, p_now bigint) returns text[]
language plpgsql as $$
begin
    return {schema}.finish_v1(
        array(
            select row(j.id, 'cancelled', p_reason, null, null, null, p_note, 0)::{schema}.ending_v1
            from {schema}.jobs j where j.id = any(p_ids) and j.state || '' <> 'running'
        ), p_now
    );
end
$$;
