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
    perform {schema}.follow_clock_v1(v_now);
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

-- enqueue_one: (new) -> ready for a batch of one such job that is due at once; enqueue_plain in short. A job that exists
-- already, or whose batch was sent again before, goes to enqueue_plain. returns as enqueue_plain does
create function {schema}.enqueue_one_v1(
    p_batch bytea, p_now bigint, p_id bytea, p_task text, p_queue text, p_home text, p_priority integer,
    p_crash_limit integer, p_early boolean, p_record bytea
) returns table (id bytea, answer bytea, woken text)
language plpgsql set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_new boolean := not {schema}.lock_batch_v1(p_batch, false, p_now);
    v_now bigint := {schema}.now_v1(p_now);
begin
    if v_new then
        perform {schema}.follow_clock_v1(v_now);
        insert into {schema}.jobs (
            id, state, task, queue, home, lane, priority, seq, crash_limit, early, enqueued, record
        )
        values (
            p_id, {READY}, p_task, p_queue, p_home, p_home, p_priority, nextval('{schema}.seq'), p_crash_limit, p_early,
            v_now, p_record
        )
        on conflict (id) do nothing;
        v_new := found;
    end if;
    if not v_new then
        return query select * from {schema}.enqueue_plain_v1(
            p_batch, p_now, array[p_id], array[p_task], array[p_queue], array[p_home], array[p_priority],
            array[0::bigint], '{}', '{}', array[p_crash_limit], array[p_early], array[p_record]
        );
    elsif {schema}.accept_jobs_v1(array[p_id]) then
        return query select null::bytea, null::bytea, w.queue
            from unnest({schema}.enforce_depth_v1(array[p_id], '{}', false, v_now)) as w(queue);
    end if;
end
$$;

-- enqueue_alike: (new) -> ready for a batch of such jobs that are due at once and differ only in their ids and records.
-- An insert that expects no conflict takes a quarter less time than one with "on conflict". Where there is a conflict
-- nothing is inserted, and the batch goes to enqueue_plain. returns as enqueue_plain does
create function {schema}.enqueue_alike_v1(
    p_batch bytea, p_now bigint, p_id bytea[], p_task text, p_queue text, p_home text, p_priority integer,
    p_crash_limit integer, p_early boolean, p_record bytea[]
) returns table (id bytea, answer bytea, woken text)
language plpgsql set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_new boolean := not {schema}.lock_batch_v1(p_batch, false, p_now);
    v_now bigint := {schema}.now_v1(p_now);
begin
    if v_new then
        perform {schema}.follow_clock_v1(v_now);
        begin
            insert into {schema}.jobs (
                id, state, task, queue, home, lane, priority, seq, crash_limit, early, enqueued, record
            )
            select u.id, {READY}, p_task, p_queue, p_home, p_home, p_priority, nextval('{schema}.seq'), p_crash_limit,
                p_early, v_now, u.record
            from unnest(p_id, p_record) as u(id, record);  -- alone in its statement, so in the order of the batch
        exception when unique_violation then
            v_new := false;
        end;
    end if;
    if not v_new then
        return query select * from {schema}.enqueue_plain_v1(
            p_batch, p_now, p_id, array[p_task], array[p_queue], array[p_home], array[p_priority], array[0::bigint],
            '{}', '{}', array[p_crash_limit], array[p_early], p_record
        );
    elsif {schema}.accept_jobs_v1(p_id) then
        return query select null::bytea, null::bytea, w.queue
            from unnest({schema}.enforce_depth_v1(p_id, '{}', false, v_now)) as w(queue);
    end if;
end
$$;

-- enqueue: (new) -> ready | scheduled | blocked, or cancelled at once by a parent that ended badly; or succeeded: a join
-- without members. Locks in this order: batch, depths, keys, new limits, job rows, dependents. _at is the position of a job
-- in the batch, from 1; p_before_in that of a join in p_before.
-- p_open: a caller's transaction, which may stay open for long: it holds nothing that a turn could wait for.
-- Each step decides in a statement that begins after the locks of the step are held.
-- v_take: the jobs to insert; after the insert, the jobs that are new. v_id: p_id, but a job that replaces a waiting job
-- has the id of that job, under which it is inserted.
-- returns the ids that were not inserted with the job that answers for each, and the queues of other jobs that became
-- ready
create function {schema}.enqueue_v1(
    p_batch bytea, p_retry boolean, p_now bigint, p_id bytea[], p_task text[], p_queue text[], p_home text[],
    p_priority integer[], p_delay bigint[], p_run_at bigint[], p_expires_in bigint[], p_crash_limit integer[],
    p_early boolean[], p_record bytea[], p_keep bigint[], p_on smallint[], p_names text[], p_costs text[],
    p_key bytea[], p_window bigint[], p_conflict text[], p_modes jsonb, p_limits jsonb, p_queues jsonb, p_accepted boolean,
    p_open boolean, p_child_at integer[], p_parent bytea[], p_parent_at integer[], p_policy text[], p_join_at integer[],
    p_join_open boolean[], p_join_lenient boolean[], p_before_at integer[], p_before bytea[], p_before_in integer[],
    p_mark_at integer[], p_mark text[], p_follow_ups jsonb
) returns table (id bytea, answer bytea, woken text) language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    v_late boolean := {schema}.lock_batch_v1(p_batch, p_retry, p_now);
    v_id bytea[] := p_id;
    v_take boolean[];
    v_answers bytea[];
    v_replaced {schema}.replaced_v1[] := '{}';
    v_waits {schema}.waits_v1;
    v_now bigint;
    v_new bytea[];
    v_special boolean;
    v_stayed bytea[] := '{}';
    v_losers bytea[] := '{}';
    v_woken text[] := '{}';
begin
    v_take := {schema}.find_new_jobs_v1(p_id, v_late);
    if cardinality(p_key) + cardinality(p_child_at) + cardinality(p_before_at) > 0 and not p_accepted then
        perform {schema}.lock_depths_v1(p_queue);
    end if;
    if cardinality(p_key) > 0 then
        select k.* into v_take, v_answers, v_losers, v_woken
        from {schema}.take_keys_v1(p_id, p_task, v_take, p_key, p_window, p_conflict, p_modes, p_now) k;
    end if;
    if p_modes is not null then
        select r.* into p_now, v_id, v_take, v_answers, p_run_at, p_child_at, p_parent, p_parent_at, p_policy, v_replaced
        from {schema}.replace_waiting_v1(p_key, p_modes, p_now, p_id, v_take, v_answers, p_run_at, p_child_at, p_parent,
            p_parent_at, p_policy) r;
    end if;
    if p_limits is not null or p_queues is not null then
        perform {schema}.declare_missing_v1(p_limits, p_queues);
    end if;
    if cardinality(p_child_at) + cardinality(p_join_at) + cardinality(p_before_at) > 0 then
        v_waits := {schema}.wait_for_parents_v1(v_id, v_take, p_child_at, p_parent, p_parent_at, p_policy, p_join_at);
        perform {schema}.lock_before_v1(v_take, p_before_at, p_before, p_before_in, p_accepted);
    end if;
    v_now := {schema}.now_v1(p_now);
    perform {schema}.follow_clock_v1(v_now);
    v_new := {schema}.insert_jobs_v1(v_id, v_take, p_task, p_queue, p_home, p_priority, p_delay, p_run_at, p_expires_in,
        p_crash_limit, p_early, p_record, p_keep, p_on, p_names, p_costs, p_key, v_waits.waits, v_now);
    if cardinality(v_new) < cardinality(p_id) then
        v_take := {schema}.mark_members_v1(v_id, v_new);
        v_answers := {schema}.answer_found_v1(v_id, v_take, v_answers);
    end if;
    v_special := {schema}.accept_jobs_v1(v_new);
    if cardinality(v_replaced) > 0 then
        v_stayed := {schema}.keep_places_v1(v_id, p_queue, v_replaced, p_open);
    end if;
    if cardinality(p_names) > 0 then
        perform {schema}.add_lane_rows_v1(v_new, p_open);
    end if;
    if cardinality(p_mark_at) > 0 or p_follow_ups is not null then
        perform {schema}.add_details_v1(v_id, v_take, p_mark_at, p_mark, p_follow_ups);
    end if;
    if v_waits.waits is not null then
        v_woken := v_woken || {schema}.add_edges_v1(v_id, v_take, v_waits, p_join_at, p_join_open, p_join_lenient,
            p_before_at, p_before, v_now);
    end if;
    if cardinality(v_losers) > 0 then
        v_woken := v_woken || {schema}.cancel_waiting_v1(v_losers, {SUPERSEDED}, null, v_now);
    end if;
    if v_special then
        v_woken := v_woken || {schema}.enforce_depth_v1(v_new, v_stayed, p_accepted, v_now);
    end if;
    if cardinality(p_join_at) > 0 then
        v_woken := v_woken || {schema}.release_new_v1(v_id, v_take, p_join_at, p_join_open, v_now);
    end if;
    return query select u.id, u.answer, null::text from unnest(p_id, v_answers) as u(id, answer) where u.answer is not null;
    return query select null::bytea, null::bytea, w.queue from unnest(v_woken) as w(queue);
end
$$;

-- find_new_jobs: by position, whether a job is neither live nor, if the batch acts as a retry, in history. First the
-- table that jobs leave, then, in a new statement, the table they go to: in the other order a job is missed.
create function {schema}.find_new_jobs_v1(p_id bytea[], p_late boolean) returns boolean[] language plpgsql as $$
declare
    v_new boolean[] := array(
        select not exists (select 1 from {schema}.jobs j where j.id = any(array[u.id]))
        from unnest(p_id) with ordinality as u(id, n) order by u.n
    );
    v_ended boolean[];
begin
    if p_late then
        v_ended := {schema}.mark_members_v1(p_id, {schema}.find_ended_v1(p_id));
        v_new := array(
            select t.new and not t.ended from unnest(v_new, v_ended) with ordinality as t(new, ended, n) order by t.n
        );
    end if;
    return v_new;
end
$$;

-- declare_missing: insert those of the limits and of the settings of queues that do not exist yet.
create function {schema}.declare_missing_v1(p_limits jsonb, p_queues jsonb) returns void language plpgsql as $$
begin
    if p_limits is not null then
        perform {schema}.add_limits_v1(p_limits);
    end if;
    if p_queues is not null then
        perform {schema}.declare_queues_v1(p_queues);
    end if;
end
$$;

-- wait_for_parents: keep the live parents of new jobs from ending, and the dead ones from being retried where a child may
-- wait for that; then find out what each new job waits for. A job that an ended parent cancels is inserted as blocked and
-- then ended by finish, like every job. A new join waits for itself.
create function {schema}.wait_for_parents_v1(
    p_id bytea[], p_take boolean[], p_child_at integer[], p_parent bytea[], p_parent_at integer[], p_policy text[],
    p_join_at integer[]
) returns {schema}.waits_v1 language plpgsql as $$
declare
    v_judged {schema}.judged_edge_v1[] := '{}';
    v_waits {schema}.waits_v1;
begin
    if cardinality(p_child_at) > 0 then
        perform 1 from {schema}.jobs j where j.id = any(p_parent) order by j.id for key share;
        if {EDGE_WAIT} = any(p_policy) then
            perform 1 from {schema}.dead d where d.id = any(p_parent) order by d.id for key share;
            perform 1 from {schema}.jobs j where j.id = any(p_parent) order by j.id for key share;
        end if;
        -- A new statement: a parent whose end was waited for is found in the table where it went.
        perform {schema}.refuse_missing_parents_v1(p_id, p_take, p_child_at, p_parent, p_parent_at);
        v_judged := {schema}.judge_parents_v1(p_take, p_child_at, p_parent, p_parent_at, p_policy);
    end if;
    with children as materialized (
        select e.at, count(*) filter (where e.effect = {EDGE_STAYS})::integer as n,
            max(e.effect) filter (where e.effect <> {EDGE_STAYS}) as reason
        from unnest(v_judged) e group by e.at
    )
    select array(
            select sum(w.n)::integer from (
                select s.at, 0 as n from generate_subscripts(p_id, 1) as s(at)
                union all
                select c.at, greatest(c.n, (c.reason is not null)::integer) from children c
                union all
                select u.at, 1 from unnest(p_join_at) as u(at)
            ) w group by w.at order by w.at
        ), array(select p_id[c.at] from children c where c.reason = {PARENT}),
        array(select p_id[c.at] from children c where c.reason = {BYPASSED}),
        array(select e.at from unnest(v_judged) e where e.effect = {EDGE_STAYS}),
        array(select e.parent from unnest(v_judged) e where e.effect = {EDGE_STAYS}),
        array(select e.policy from unnest(v_judged) e where e.effect = {EDGE_STAYS})
    into v_waits;
    return v_waits;
end
$$;

-- insert_jobs: insert the jobs of p_take in the order of the batch; a job that waits for parents is blocked, a job that
-- is due later is scheduled. returns the jobs that were inserted: an id that exists by now is left out
create function {schema}.insert_jobs_v1(
    p_id bytea[], p_take boolean[], p_task text[], p_queue text[], p_home text[], p_priority integer[], p_delay bigint[],
    p_run_at bigint[], p_expires_in bigint[], p_crash_limit integer[], p_early boolean[], p_record bytea[], p_keep bigint[],
    p_on smallint[], p_names text[], p_costs text[], p_key bytea[], p_waits integer[], p_now bigint
) returns bytea[] language plpgsql as $$
declare
    v_new bytea[];
begin
    with made as (
        insert into {schema}.jobs (
            id, state, task, queue, home, lane, priority, seq, due, expires, crash_limit, early, deps, keep, key, followed,
            buckets, costs, enqueued, record
        )
        select n.id, n.state, n.task, n.queue, n.home, n.home, n.priority,
            case when n.state = {READY} then nextval('{schema}.seq') else 0 end,
            case when n.state <> {READY} and n.due > p_now then n.due end, p_now + n.expires_in, n.crash_limit, n.early,
            coalesce(n.deps, 0), n.keep, n.key, coalesce(n.followed, 0), n.names::text[], n.costs::bigint[], p_now, n.record
        from (
            select u.*, d.due,
                case when u.deps > 0 then {BLOCKED} when d.due > p_now then {SCHEDULED} else {READY} end as state
            from unnest(
                p_id, p_task, p_queue, p_home, p_priority, p_delay, p_run_at, p_expires_in, p_crash_limit, p_early, p_record,
                p_keep, p_key, p_on, p_names, p_costs, p_waits
            ) with ordinality as u(
                id, task, queue, home, priority, delay, run_at, expires_in, crash_limit, early, record, keep, key, followed,
                names, costs, deps, n
            )
            cross join lateral (select coalesce(u.run_at, p_now + u.delay) as due) d
            where p_take[u.n]
            order by u.n
        ) n
        on conflict (id) do nothing
        returning jobs.id
    )
    select coalesce(array_agg(m.id), '{}') into v_new from made m;
    return v_new;
end
$$;

-- answer_found: a job that was not inserted, and that no job answers for by its key, exists: it answers for itself.
create function {schema}.answer_found_v1(p_id bytea[], p_new boolean[], p_answers bytea[]) returns bytea[]
language plpgsql as $$
begin
    return array(
        select coalesce(u.answer, case when not u.new then u.id end)
        from unnest(p_id, p_new, p_answers) with ordinality as u(id, new, answer, n) order by u.n
    );
end
$$;

-- keep_places: a job that was inserted in the place of a waiting job keeps its moment of enqueue, its epoch and, if it
-- stays ready in the same queue, its place in the line. The lanes that the waiting jobs left are rechecked.
-- returns the jobs that stayed in their queue
create function {schema}.keep_places_v1(p_id bytea[], p_queue text[], p_replaced {schema}.replaced_v1[], p_open boolean)
returns bytea[] language plpgsql as $$
begin
    update {schema}.jobs j
    set enqueued = o.enqueued, epoch = o.epoch,
        seq = case when j.state = {READY} and j.queue = o.queue then coalesce(o.seq, j.seq) else j.seq end
    from unnest(p_replaced) o
    where j.id = any(array[p_id[o.at]]);
    if not p_open then
        perform {schema}.recheck_left_lanes_v1(array(select o.leaves from unnest(p_replaced) o));
    end if;
    return array(select p_id[o.at] from unnest(p_replaced) o where p_queue[o.at] = o.queue);
end
$$;

-- add_details: store what belongs to the jobs of p_take beside their rows: marks, follow-up jobs.
create function {schema}.add_details_v1(
    p_id bytea[], p_take boolean[], p_mark_at integer[], p_mark text[], p_follow_ups jsonb
) returns void language plpgsql as $$
begin
    insert into {schema}.marks (mark, job)
    select u.mark, p_id[u.at] from unnest(p_mark_at, p_mark) as u(at, mark) where p_take[u.at]
    on conflict do nothing;
    if p_follow_ups is not null then
        perform {schema}.store_follow_ups_v1(p_id[f.at], f.rows, false) from (
            select (r.value ->> 'at')::integer as at, jsonb_agg(r.value) as rows
            from jsonb_array_elements(p_follow_ups) as r group by 1
        ) f
        where p_take[f.at];
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

-- refuse_missing_parents: a job cannot wait for a job that is neither in the store nor in the batch.
create function {schema}.refuse_missing_parents_v1(
    p_id bytea[], p_take boolean[], p_child_at integer[], p_parent bytea[], p_parent_at integer[]
) returns void language plpgsql as $$
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
end
$$;

-- judge_parents: for each parent of a new job, what the edge to it does (see edge_effect): {EDGE_STAYS} for a live parent,
-- except a join that has a dead member already, if the job waits for that.
create function {schema}.judge_parents_v1(
    p_take boolean[], p_child_at integer[], p_parent bytea[], p_parent_at integer[], p_policy text[]
) returns {schema}.judged_edge_v1[] language plpgsql as $$
begin
    return array(
        select row(
            e.at, e.parent, e.policy, case when e.live and not (e.policy = {EDGE_DEAD} and o.dead) then {EDGE_STAYS}
                else {schema}.edge_effect_v1(e.policy, case when e.live then {FIRST_DEATH} else coalesce((
                    select case when f.reason = {BYPASSED} then f.reason else f.state end
                    from {schema}.finished f where f.id = any(array[e.parent]) limit 1
                ), {DEAD}) end, o.dead) end
        )::{schema}.judged_edge_v1
        from (
            select u.at, u.parent, min(u.policy) as policy,
                bool_or(coalesce(p_take[u.inside], false)) or exists (select 1 from {schema}.jobs j
                    where j.id = any(array[u.parent])) as live
            from unnest(p_child_at, p_parent, p_parent_at, p_policy) as u(at, parent, inside, policy)
            where p_take[u.at]
            group by u.at, u.parent
        ) e
        cross join lateral (
            select exists (select 1 from {schema}.joins j where j.id = any(array[e.parent]) and j.dead > 0) as dead offset 0
        ) o
    );
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
