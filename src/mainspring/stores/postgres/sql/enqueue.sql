-- (new) -> ready | scheduled | blocked, or cancelled at once. All jobs of a batch are inserted, or none.

-- enqueue_plain: (new) -> ready | scheduled for jobs without parents, limits, fair key and unique key. A value that all
-- jobs share may be sent once: task, queue, home, priority, delay, crash limit, early. The lock on the batch makes a
-- repeat wait for a first try that still runs here. returns the ids that were not inserted
create function {schema}.enqueue_plain_v1(
    p_batch bytea, p_now bigint, p_id bytea[], p_task text[], p_queue text[], p_home text[], p_priority integer[],
    p_delay bigint[], p_run_at bigint[], p_expires_in bigint[], p_crash_limit integer[], p_early boolean[], p_record bytea[]
) returns table (id bytea, answer bytea, woken text)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off as $$
#variable_conflict use_column
declare
    v_now bigint;
    v_over boolean[];
    v_made bytea[];
    v_take boolean[];
begin
    if {schema}.lock_batch_v1(p_batch, false, p_now) then
        -- First the table that jobs leave, then, in a new statement, the table they go to: in the other order a job is
        -- missed.
        v_made := array(select j.id from {schema}.jobs j where j.id = any(p_id));
        v_over := {schema}.mark_members_v1(p_id, v_made || {schema}.find_ended_v1(p_id));
    end if;
    v_now := {schema}.now_v1(p_now);
    with made as (
        insert into {schema}.jobs (
            id, state, task, queue, home, lane, priority, seq, due, expires, crash_limit, early, enqueued, record
        )
        select n.id, case when n.later then {SCHEDULED} else {READY} end, coalesce(n.task, p_task[1]),
            coalesce(n.queue, p_queue[1]), coalesce(n.home, p_home[1]), coalesce(n.home, p_home[1]),
            coalesce(n.priority, p_priority[1]), case when n.later then 0 else nextval('{schema}.seq') end,
            case when n.later then n.due end, v_now + n.expires_in, coalesce(n.crash_limit, p_crash_limit[1]),
            coalesce(n.early, p_early[1]), v_now, n.record
        from (
            select u.*, d.due, d.due > v_now as later
            from unnest(
                p_id, p_task, p_queue, p_home, p_priority, p_delay, p_run_at, p_expires_in, p_crash_limit, p_early, p_record
            ) with ordinality as u(id, task, queue, home, priority, delay, run_at, expires_in, crash_limit, early, record, n)
            cross join lateral (select coalesce(u.run_at, v_now + coalesce(u.delay, p_delay[1])) as due) d
            where v_over is null or not v_over[u.n]
            order by u.n
        ) n
        on conflict (id) do nothing
        returning jobs.id
    )
    select coalesce(array_agg(m.id), '{}') into v_made from made m;
    if cardinality(v_made) < cardinality(p_id) then
        v_take := {schema}.mark_members_v1(p_id, v_made);
        return query select u.id, u.id, null from unnest(p_id, v_take) as u(id, made) where not u.made;
    end if;
    if {schema}.accept_jobs_v1(v_made) then
        return query select null::bytea, null::bytea, w.queue
            from unnest({schema}.enforce_depth_v1(v_made, '{}', false, v_now)) as w(queue);
    end if;
end
$$;

-- enqueue: (new) -> ready | scheduled | blocked, or cancelled at once by a parent that ended badly. Locks in this
-- order: batch, depths, keys, new limits, job rows, dependents, schedules. _at is the position of a job in the batch,
-- from 1. p_schedule: the schedules of the jobs, or an empty list. p_forced: the jobs wait for no other schedule.
-- p_open: a caller's transaction, which may stay open for long: it holds nothing that a turn could wait for.
-- returns the ids that were not inserted with the job that answers for each, and the queues of other jobs that became
-- ready
create function {schema}.enqueue_v1(
    p_batch bytea, p_retry boolean, p_now bigint, p_id bytea[], p_task text[], p_queue text[], p_home text[],
    p_priority integer[], p_delay bigint[], p_run_at bigint[], p_expires_in bigint[], p_crash_limit integer[],
    p_early boolean[], p_record bytea[], p_keep bigint[], p_on smallint[], p_names text[], p_costs text[],
    p_key bytea[], p_window bigint[], p_conflict text[], p_modes jsonb, p_limits jsonb, p_queues jsonb, p_accepted boolean,
    p_open boolean,
    p_child_at integer[], p_parent bytea[], p_parent_at integer[], p_policy text[],
    p_mark_at integer[], p_mark text[], p_follow_ups jsonb, p_schedule text[], p_forced boolean
) returns table (id bytea, answer bytea, woken text)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off as $$
#variable_conflict use_column
declare
    v_now bigint;
    v_late boolean;
    v_over boolean[];
    v_take boolean[];
    v_waits integer[] := '{}';
    v_broken bytea[] := '{}';
    v_losers bytea[] := '{}';
    v_answered boolean[] := array_fill(false, array[cardinality(p_id)]);
    v_made bytea[];
    v_special boolean;
    v_anew jsonb := '[]';
    v_stayed bytea[] := '{}';
    v_dependents text[] := '{}';
    v_held_schedules text[] := '{}';
    v_held_places bigint[] := '{}';
    v_row record;
begin
    v_late := {schema}.lock_batch_v1(p_batch, p_retry, p_now);
    -- First the table that jobs leave, then, in a new statement, the table they go to: in the other order a job is
    -- missed.
    v_take := array(
        select not exists (select 1 from {schema}.jobs j where j.id = any(array[u.id]))
        from unnest(p_id) with ordinality as u(id, n) order by u.n
    );
    if v_late then
        v_over := {schema}.mark_members_v1(p_id, {schema}.find_ended_v1(p_id));
        v_take := array(
            select t.take and not t.over from unnest(v_take, v_over) with ordinality as t(take, over, n) order by t.n
        );
    end if;
    if cardinality(p_key) + cardinality(p_child_at) > 0 and not p_accepted then
        perform {schema}.lock_depths_v1(p_queue);
    end if;
    if cardinality(p_schedule) > 0 then
        v_dependents := {schema}.find_dependents_v1(p_schedule);
    end if;
    if cardinality(v_dependents) > 0 and not p_forced then
        v_held_schedules := array(
            select case when u.name = any(v_dependents) then u.name end
                from unnest(p_schedule) with ordinality as u(name, n) order by u.n
        );
        v_held_places := array(
            select case when u.name is not null then nextval('{schema}.seq') end
            from unnest(v_held_schedules) with ordinality as u(name, n) order by u.n
        );
    end if;
    if p_modes is not null then
        perform {schema}.lock_latest_keys_v1(p_key);
    end if;
    if cardinality(p_key) > 0 then
        for v_row in select * from {schema}.take_keys_v1(p_id, p_task, v_take, p_key, p_window, p_conflict, p_modes, p_now) loop
            if v_row.holder is not null then
                v_take[v_row.at] := false;
                v_answered[v_row.at] := true;
                return query select p_id[v_row.at], v_row.holder, null::text;
            elsif v_row.loser is not null then
                v_losers := v_losers || v_row.loser;
            elsif v_row.woken is not null then
                return query select null::bytea, null::bytea, v_row.woken;
            end if;
        end loop;
    end if;
    if p_modes is not null then
        p_run_at := array(select p_run_at[n] from generate_subscripts(p_id, 1) n order by n);
        v_held_schedules := array(select v_held_schedules[n] from generate_subscripts(p_id, 1) n order by n);
        v_held_places := array(select v_held_places[n] from generate_subscripts(p_id, 1) n order by n);
        for v_row in select * from {schema}.replace_waiting_v1(p_id, v_take, p_key, p_modes, p_now) loop
            if v_row.answer is not null then
                return query select p_id[v_row.at], v_row.answer, null::text;
            end if;
            if v_row.answer is not null and not v_row.anew then
                v_take[v_row.at] := false;
                v_answered[v_row.at] := true;
                continue;
            end if;
            p_now := v_row.moment;  -- the delay counts from the enqueue, not from the end of the wait for locks
            p_run_at[v_row.at] := coalesce(v_row.due, p_run_at[v_row.at]);
            if v_row.anew then
                p_id[v_row.at] := v_row.answer;
                -- it is held as before, or not at all
                v_held_schedules[v_row.at] := case when not p_forced then v_row.held_schedule end;
                v_held_places[v_row.at] := case when not p_forced then v_row.held_place end;
                -- The new id is never inserted, so no child can wait for it; children of the replaced job find it at
                -- this position.
                p_parent_at := array(
                    select case when e.parent = v_row.answer then v_row.at else nullif(e.inside, v_row.at) end
                    from unnest(p_parent, p_parent_at) with ordinality as e(parent, inside, n) order by e.n
                );
                v_anew := v_anew || to_jsonb(v_row);
            end if;
            if v_row.parent is not null then
                p_child_at := p_child_at || v_row.at;
                p_parent := p_parent || v_row.parent;
                p_parent_at := p_parent_at || null::integer;
                p_policy := p_policy || {EDGE_IGNORE}::text;
            end if;
        end loop;
    end if;
    if p_limits is not null then
        perform {schema}.add_limits_v1(p_limits);
    end if;
    if p_queues is not null then
        perform {schema}.declare_queues_v1(p_queues);
    end if;
    if cardinality(p_child_at) > 0 then
        perform 1 from {schema}.jobs j where j.id = any(p_parent) order by j.id for key share;
        v_waits := array_fill(0, array[cardinality(p_id)]);
        -- A new statement: a parent whose end was waited for is found in the table where it went.
        for v_row in select * from {schema}.count_parents_v1(p_id, v_take, p_child_at, p_parent, p_parent_at, p_policy) loop
            v_waits[v_row.at] := v_row.n;
            if v_row.broken then
                v_broken := v_broken || p_id[v_row.at];
            end if;
        end loop;
    end if;
    v_now := {schema}.now_v1(p_now);

    with made as (
        insert into {schema}.jobs (
            id, state, task, queue, home, lane, priority, seq, due, expires, crash_limit, early, deps, keep, key, followed,
            buckets, costs, enqueued, record, schedule, held_schedule, held_place
        )
        select n.id, n.state, n.task, n.queue, n.home, n.home, n.priority,
            case when n.state = {READY} or n.held_place is not null then nextval('{schema}.seq') else 0 end,
            case when n.state <> {READY} and n.due > v_now then n.due end, v_now + n.expires_in, n.crash_limit, n.early,
            n.waits, n.keep, n.key, coalesce(n.followed, 0), n.names::text[], n.costs::bigint[], v_now, n.record,
            n.schedule, n.held_schedule, n.held_place
        from (
            select u.*, d.due, w.waits,
                case when w.waits > 0 then {BLOCKED} when d.due > v_now then {SCHEDULED} else {READY} end as state
            from unnest(
                p_id, p_task, p_queue, p_home, p_priority, p_delay, p_run_at, p_expires_in, p_crash_limit, p_early, p_record,
                p_keep, p_key, p_on, p_names, p_costs, v_waits, p_schedule, v_held_schedules, v_held_places
            ) with ordinality as u(
                id, task, queue, home, priority, delay, run_at, expires_in, crash_limit, early, record, keep, key, followed,
                names, costs, deps, schedule, held_schedule, held_place, n
            )
            cross join lateral (select coalesce(u.run_at, v_now + u.delay) as due) d
            cross join lateral (select coalesce(u.deps, 0) + (u.held_place is not null)::integer as waits) w
            where v_take[u.n]
            order by u.n
        ) n
        on conflict (id) do nothing
        returning jobs.id
    )
    select coalesce(array_agg(m.id), '{}') into v_made from made m;
    if cardinality(v_made) < cardinality(p_id) then
        v_take := {schema}.mark_members_v1(p_id, v_made);
        return query select u.id, u.id, null::text from unnest(p_id, v_take, v_answered) as u(id, made, answered)
        where not u.made and not u.answered;
    end if;
    v_special := {schema}.accept_jobs_v1(v_made);
    if v_anew <> '[]' then
        update {schema}.jobs j
        set enqueued = o.enqueued, epoch = o.epoch,
            seq = case when j.state = {READY} and j.queue = o.queue then coalesce(o.seq, j.seq) else j.seq end
        from jsonb_to_recordset(v_anew) as o(at integer, enqueued bigint, epoch integer, seq bigint, queue text)
        where j.id = any(array[p_id[o.at]]);
        v_stayed := array(
            select p_id[o.at] from jsonb_to_recordset(v_anew) as o(at integer, queue text) where p_queue[o.at] = o.queue
        );
        if not p_open then
            perform {schema}.recheck_left_lanes_v1(array(select o.leaves from jsonb_to_recordset(v_anew) as o(leaves text)));
        end if;
    end if;
    if cardinality(p_names) > 0 then
        perform {schema}.add_lane_rows_v1(v_made, p_open);
    end if;

    insert into {schema}.marks (mark, job)
    select u.mark, p_id[u.at] from unnest(p_mark_at, p_mark) as u(at, mark) where v_take[u.at]
    on conflict do nothing;
    if p_follow_ups is not null then
        perform {schema}.store_follow_ups_v1(p_id[f.at], f.rows, false) from (
            select (r.value ->> 'at')::integer as at, jsonb_agg(r.value) as rows
            from jsonb_array_elements(p_follow_ups) as r group by 1
        ) f
        where v_take[f.at];
    end if;
    if cardinality(p_child_at) > 0 then
        insert into {schema}.edges (parent, child, policy)
        select e.parent, p_id[e.at], min(e.policy) from unnest(p_child_at, p_parent, p_policy) as e(at, parent, policy)
        where v_take[e.at] and exists (select 1 from {schema}.jobs j where j.id = any(array[e.parent]))
        group by e.parent, p_id[e.at];
    end if;
    return query select null::bytea, null::bytea, w.queue from unnest(
        {schema}.finish_v1(
            array(
                select row(j.id, {CANCELLED}, {PARENT}, null, null, null, null, 0)::{schema}.ending_v1
                from {schema}.jobs j where j.id = any(v_broken)
            ), v_now
        )
    ) as w(queue);
    return query select null::bytea, null::bytea, w.queue from unnest(
        {schema}.finish_v1(
            array(
                select row(j.id, {CANCELLED}, {SUPERSEDED}, null, null, null, null, 0)::{schema}.ending_v1
                from {schema}.jobs j where j.id = any(v_losers) and j.state || '' <> {RUNNING}
            ), v_now
        )
    ) as w(queue);
    if v_special then
        return query select null::bytea, null::bytea, w.queue
        from unnest({schema}.enforce_depth_v1(v_made, v_stayed, p_accepted, v_now)) as w(queue);
    end if;
    if cardinality(v_dependents) > 0 then  -- last: a job that has ended in this step is no start
        return query select null::bytea, null::bytea, w.queue
        from unnest({schema}.apply_dependencies_v1(v_dependents, v_made, p_forced, p_open, v_now)) as w(queue);
    end if;
end
$$;

-- lock_batch: lock the batch. returns whether it acts as a retry: it is a retry, or a retry of it came before. A retry
-- is recorded
create function {schema}.lock_batch_v1(p_batch bytea, p_retry boolean, p_now bigint) returns boolean language plpgsql as $$
begin
    perform pg_advisory_xact_lock(hashtextextended('{schema}' || encode(p_batch, 'hex'), 0));
    if p_retry then
        insert into {schema}.retried_batches (batch, at) values (p_batch, {schema}.now_v1(p_now)) on conflict do nothing;
    end if;
    return p_retry or exists (select 1 from {schema}.retried_batches r where r.batch = p_batch);
end
$$;

-- find_ended: those of these jobs that are in history. A function of its own: a statement that names finished opens
-- every partition.
create function {schema}.find_ended_v1(p_ids bytea[]) returns bytea[] language plpgsql stable as $$
begin
    return array(
        select f.id from {schema}.finished f where f.id = any(p_ids)
        union all
        select d.id from {schema}.dead d where d.id = any(p_ids)
    );
end
$$;

-- mark_members: by position, whether each of these jobs is one of the others. Grouped: to search a list for each job of
-- a large batch takes longer than a call may.
create function {schema}.mark_members_v1(p_ids bytea[], p_some bytea[]) returns boolean[] language plpgsql as $$
begin
    return array(
        select bool_or(s.found) from (
            select u.id, u.n, false as found from unnest(p_ids) with ordinality as u(id, n)
            union all
            select o.id, null, true from unnest(p_some) as o(id)
        ) s
        group by s.id having min(s.n) is not null order by min(s.n)
    );
end
$$;

-- count_parents: for each new job with parents, how many live parents it waits for, and whether a final parent cancels
-- it.
create function {schema}.count_parents_v1(
    p_id bytea[], p_take boolean[], p_child_at integer[], p_parent bytea[], p_parent_at integer[], p_policy text[]
) returns table (at integer, n integer, broken boolean) language plpgsql as $$
#variable_conflict use_column
declare
    v_child bytea;
    v_missing bytea;
begin
    select p_id[e.at], e.parent into v_child, v_missing
    from unnest(p_child_at, p_parent, p_parent_at) as e(at, parent, inside)
    where p_take[e.at] and (e.parent = p_id[e.at] or not coalesce(p_take[e.inside], false))
        and (e.parent = p_id[e.at] or not exists (select 1 from {schema}.jobs j where j.id = any(array[e.parent])))
        and not exists (select 1 from {schema}.finished f where f.id = any(array[e.parent]))
        and not exists (select 1 from {schema}.dead d where d.id = any(array[e.parent]))
    limit 1;
    if v_missing is not null then
        raise exception 'job % waits for job %, which does not exist', encode(v_child, 'hex')::uuid,
            encode(v_missing, 'hex')::uuid
            using errcode = {ERROR_REFUSED}, hint = 'Enqueue the parent first or in the same batch; was it deleted or pruned?';
    end if;
    -- A child that is cancelled at once is inserted as blocked and then ended by finish, like every job.
    return query
    select v.at, greatest(v.n, v.broken::integer), v.broken from (
        select e.at, count(*) filter (where e.live)::integer as n, bool_or(not e.live and not e.good
            and e.policy = {EDGE_FAIL}) as broken
        from (
            select u.at, u.parent, min(u.policy) as policy,
                bool_or(coalesce(p_take[u.inside], false)) or exists (select 1 from {schema}.jobs j
                    where j.id = any(array[u.parent])) as live,
                exists (select 1 from {schema}.finished f where f.id = any(array[u.parent]) and f.state = {SUCCEEDED}) as good
            from unnest(p_child_at, p_parent, p_parent_at, p_policy) as u(at, parent, inside, policy)
            where p_take[u.at]
            group by u.at, u.parent
        ) e
        group by e.at
    ) v;
end
$$;

-- lock_batches: lock the batches of several enqueue calls that are about to be inserted as one. Each is locked as
-- enqueue locks its own, so a repeat of any of them waits. The lock keys are sorted, so no two calls deadlock.
create function {schema}.lock_batches_v1(p_batch bytea[]) returns void language plpgsql as $$
begin
    perform pg_advisory_xact_lock(k.key) from (
        select hashtextextended('{schema}' || encode(u.batch, 'hex'), 0) as key from unnest(p_batch) as u(batch) order by 1
    ) k;
    -- One of them may be a first try that arrives after its retry: then each batch is sent again by itself.
    if exists (select 1 from {schema}.retried_batches r where r.batch = any(p_batch)) then
        raise exception 'a batch of these was sent again before' using errcode = {ERROR_REFUSED};
    end if;
end
$$;
