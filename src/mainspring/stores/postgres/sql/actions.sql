-- What operators do to jobs: cancel, retry, run now, reprioritise, delete.

-- act: do p_action to these jobs; p_sources are the states that the action accepts. Locks in this order: keys, job rows
-- by id (live, then ended), dependents. Then each job is looked at again: a job that no longer matches the query is
-- left alone. There is one live table and the lock by id comes first: a claim that commits meanwhile leaves a running
-- row to be found, never nothing.
-- returns rows of several kinds: done, refused with the state, held with the holder of the key, woken with a queue
create function {schema}.act_v1(
    p_action text, p_ids bytea[], p_sources text[], p_reason text, p_priority integer, p_now bigint,
    p_states text[], p_queues text[], p_tasks text[], p_marks text[], p_reasons text[], p_errors text[],
    p_since bigint, p_until bigint, p_ended_before bigint
) returns table (kind text, id bytea, note text, holder bytea)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off as $$
#variable_conflict use_column
declare
    v_now bigint;
    v_found {schema}.ended_v1[];
    v_able bytea[];
    v_joins bytea[];
    v_woken text[] := '{}';
    v_row record;
begin
    perform {schema}.guard_v1();
    if p_action in ({ACTION_RETRY}, {ACTION_DELETE}) then
        v_woken := {schema}.lock_keys_of_v1(p_ids, p_action = {ACTION_RETRY}, p_now);
    end if;
    if p_action in ({ACTION_CANCEL}, {ACTION_DELETE}) then
        perform {schema}.lock_with_dependents_v1(p_ids);
    end if;
    perform {schema}.lock_jobs_v1(p_ids);
    v_now := {schema}.now_v1(p_now);
    perform {schema}.follow_clock_v1(v_now);
    v_found := {schema}.find_matching_v1(
        p_ids, p_states, p_queues, p_tasks, p_marks, p_reasons, p_errors, p_since, p_until, p_ended_before
    );
    return query select 'refused', x.id, x.state, null::bytea from unnest(v_found) x where x.state <> all(p_sources);
    v_able := array(select x.id from unnest(v_found) x where x.state = any(p_sources));
    if p_action = {ACTION_RETRY} then -- a join is retried with its members, by retry_flow
        v_joins := array(select o.id from {schema}.joins o where o.id = any(v_able));
        return query select 'refused', x.id, x.state, null::bytea from unnest(v_found) x where x.id = any(v_joins);
        v_able := array(select u.id from unnest(v_able) as u(id) where u.id <> all(v_joins));
    end if;
    if p_action = {ACTION_RETRY} then
        for v_row in select * from {schema}.retry_v1(v_able, v_now) loop
            if v_row.holder is not null then
                return query select 'held', v_row.id, null::text, v_row.holder;
                v_able := array_remove(v_able, v_row.id);
            elsif v_row.woken is not null then
                v_woken := v_woken || v_row.woken;
            end if;
        end loop;
    else
        v_woken := v_woken || case p_action
            when {ACTION_CANCEL} then {schema}.cancel_v1(v_able, p_reason, v_now)
            when {ACTION_RUN_NOW} then {schema}.run_now_v1(v_able)
            when {ACTION_REPRIORITISE} then {schema}.reprioritise_v1(v_able, p_priority)
            when {ACTION_DELETE} then {schema}.delete_v1(v_able, v_now)
        end;
    end if;
    return query select 'done', u.id, null::text, null::bytea from unnest(v_able) as u(id);
    return query select distinct 'woken', null::bytea, w.queue, null::bytea from unnest(v_woken) as w(queue);
end
$$;

-- lock_jobs: lock the rows of these jobs, live or ended.
create function {schema}.lock_jobs_v1(p_ids bytea[]) returns void language plpgsql as $$
begin
    perform 1 from {schema}.jobs j where j.id = any(p_ids) order by j.id for update;
    perform 1 from {schema}.finished f where f.id = any(p_ids) order by f.id for update;
    perform 1 from {schema}.dead d where d.id = any(p_ids) order by d.id for update;
    perform 1 from {schema}.jobs j where j.id = any(p_ids) order by j.id for update;  -- a job that was retried while this waited
end
$$;

-- lock_with_dependents: lock the rows of these jobs that are live, and of what may end with them: first the rows of running
-- jobs, which a turn locks before dependents, then all in the order of ids.
create function {schema}.lock_with_dependents_v1(p_ids bytea[]) returns void language plpgsql as $$
begin
    perform 1 from {schema}.jobs j where j.id = any(p_ids) and j.state || '' = {RUNNING} order by j.id for update;
    perform {schema}.lock_dependents_v1(
        array(select row(null, u.id, {PARENT}, null)::{schema}.met_edge_v1 from unnest(p_ids) as u(id)), cardinality(p_ids)
    );
end
$$;

-- find_matching: those of these jobs that match a query, with their states, in the order of p_ids.
create function {schema}.find_matching_v1(
    p_ids bytea[], p_states text[], p_queues text[], p_tasks text[], p_marks text[], p_reasons text[], p_errors text[],
    p_since bigint, p_until bigint, p_ended_before bigint
) returns {schema}.ended_v1[] language plpgsql as $$
begin
    return array(
        select row(a.id, 0, a.state)::{schema}.ended_v1 from (
            select j.id, j.state, j.queue, j.task, null as reason, null as label, j.enqueued, null::bigint as finished
            from {schema}.jobs j where j.id = any(p_ids)
            union all
            select f.id, f.state, f.queue, f.task, f.reason, null, f.enqueued, f.finished
            from {schema}.finished f where f.id = any(p_ids)
            union all
            select d.id, d.state, d.queue, d.task, d.reason, coalesce(d.label, d.reason), d.enqueued, d.finished
            from {schema}.dead d where d.id = any(p_ids)
        ) a
        where (cardinality(p_states) = 0 or a.state = any(p_states))
            and (cardinality(p_queues) = 0 or a.queue = any(p_queues))
            and (cardinality(p_tasks) = 0 or a.task = any(p_tasks))
            and (cardinality(p_reasons) = 0 or a.reason = any(p_reasons))
            and (cardinality(p_errors) = 0 or a.label = any(p_errors))
            and (p_since is null or a.enqueued >= p_since)
            and (p_until is null or a.enqueued < p_until)
            and (p_ended_before is null or a.finished < p_ended_before)
            and not exists (
                select 1 from unnest(p_marks) as asked(mark)
                where not exists (select 1 from {schema}.marks m
                    where m.mark = any(array[asked.mark]) and m.job = any(array[a.id]))
            )
        order by array_position(p_ids, a.id)
    );
end
$$;

-- lock_keys_of: lock the keys of these jobs, live or ended; a retry inserts the key rows that are missing.
create function {schema}.lock_keys_of_v1(p_ids bytea[], p_make boolean, p_now bigint) returns text[] language plpgsql as $$
declare
    v_hashes bytea[] := array(
        select j.key from {schema}.jobs j where j.id = any(p_ids) and j.key is not null
        union
        select f.key from {schema}.finished f where f.id = any(p_ids) and f.key is not null
        union
        select d.key from {schema}.dead d where d.id = any(p_ids) and d.key is not null
    );
begin
    if cardinality(v_hashes) = 0 then
        return '{}';
    elsif p_make then
        return {schema}.lock_keys_v1(v_hashes, p_now);
    end if;
    perform 1 from {schema}.keys k where k.hash = any(v_hashes) order by k.hash for update;
    return '{}';
end
$$;

-- cancel: blocked, scheduled, retrying, ready -> cancelled (by_user); a running job gets an order, which its owner's
-- next turn returns.
create function {schema}.cancel_v1(p_ids bytea[], p_reason text, p_now bigint) returns text[] language plpgsql as $$
begin
    update {schema}.jobs j set ordered = coalesce(j.ordered, p_reason) where j.id = any(p_ids) and j.state || '' = {RUNNING};
    return {schema}.finish_v1(
        array(
            select row(j.id, {CANCELLED}, {BY_USER}, null, null, null, nullif(p_reason, ''), 0, null)::{schema}.ending_v1
            from {schema}.jobs j where j.id = any(p_ids) and j.state || '' <> {RUNNING}
        ), p_now
    );
end
$$;

-- run_now: scheduled, retrying -> ready. returns the queues that got work
create function {schema}.run_now_v1(p_ids bytea[]) returns text[] language plpgsql as $$
declare
    v_woken text[];
    v_limited bytea[];
begin
    with placed as materialized (
        select o.id, nextval('{schema}.seq') as seq
        from (select * from unnest(p_ids) with ordinality as x(id, n) order by x.n) o
    ), moved as (
        update {schema}.jobs j set state = {READY}, due = null, seq = case when j.seq < 0 then -u.seq else u.seq end
        from placed u
        where j.id = any(array[u.id])
        returning j.id, j.queue, j.buckets
    )
    select array_agg(distinct m.queue), array_agg(m.id) filter (where m.buckets is not null) into v_woken, v_limited from moved m;
    if v_limited is not null then
        perform {schema}.add_lane_rows_v1(v_limited, false);
    end if;
    return coalesce(v_woken, '{}');
end
$$;

-- reprioritise: blocked, scheduled, retrying, ready -> the same state with another priority.
create function {schema}.reprioritise_v1(p_ids bytea[], p_priority integer) returns text[] language plpgsql as $$
begin
    update {schema}.jobs j set priority = p_priority where j.id = any(p_ids);
    perform {schema}.add_lane_rows_v1(p_ids, false);
    perform {schema}.recheck_left_lanes_v1(array(
        select j.lane from {schema}.jobs j where j.id = any(p_ids) and j.buckets is not null and j.state || '' = {READY}
    ));
    return '{}';
end
$$;

-- retry: succeeded, dead, cancelled -> ready in a new epoch.
-- returns the jobs whose key another job holds, which are left as they are, and the queues that got work
create function {schema}.retry_v1(p_ids bytea[], p_now bigint) returns table (id bytea, holder bytea, woken text)
language plpgsql as $$
#variable_conflict use_column
declare
    v_free bytea[] := p_ids;
    v_row record;
begin
    for v_row in select * from {schema}.retake_keys_v1(p_ids, p_now) loop
        return query select v_row.id, v_row.holder, null::text;
        v_free := array_remove(v_free, v_row.id);
    end loop;
    return query select null::bytea, null::bytea, w.queue from unnest({schema}.revive_v1(v_free, false)) as w(queue);
end
$$;

-- retake_keys: these ended jobs take their keys again. returns the jobs whose key another job holds, and the holders
create function {schema}.retake_keys_v1(p_ids bytea[], p_now bigint) returns table (id bytea, holder bytea)
language plpgsql as $$
#variable_conflict use_column
declare
    v_job bytea;
    v_hash bytea;
    v_holder bytea;
    v_asked bytea[] := '{}';
begin
    foreach v_job in array p_ids loop
        v_hash := coalesce(
            (select f.key from {schema}.finished f where f.id = v_job), (select d.key from {schema}.dead d where d.id = v_job)
        );
        continue when v_hash is null;
        v_holder := {schema}.find_key_holder_v1(v_hash, v_hash = any(v_asked), p_now);
        v_asked := v_asked || v_hash;
        if v_holder <> v_job then
            return query select v_job, v_holder;
            continue;
        end if;
        update {schema}.keys k set job = v_job, until = case when v_holder is null then 0 else k.until end,
            mode = case when k.job = v_job or k.mode <> {KEY_KEEP} then k.mode else '' end,
            previous = case when k.job = v_job then k.previous end,
            replaced_by = case when k.job = v_job then k.replaced_by end,
            span = case when k.job = v_job then k.span else 0 end, print = case when k.job = v_job then k.print end
        where k.hash = v_hash;
    end loop;
end
$$;

-- revive: succeeded, dead, cancelled -> ready in a new epoch, without crashes and expires; the token goes on, the last
-- owner stays readable. p_blocked: -> blocked, by an edge that the caller inserts. returns the queues that got work
create function {schema}.revive_v1(p_ids bytea[], p_blocked boolean) returns text[] language plpgsql as $$
declare
    v_woken text[];
begin
    with ended as (
        delete from {schema}.finished f where f.id = any(p_ids) returning f.*
    ), buried as (
        delete from {schema}.dead d where d.id = any(p_ids) returning d.*
    ), revived as (
        insert into {schema}.jobs (
            id, state, deps, task, queue, home, lane, priority, seq, token, worker, epoch, crash_limit, early, followed,
            enqueued, keep, key, buckets, costs, record, counted
        )
        select a.id, case when p_blocked then {BLOCKED} else {READY} end, p_blocked::integer, a.task, a.queue, a.home, a.home,
            a.priority, case when p_blocked then -(a.seq < 0)::integer
                when a.seq < 0 then -nextval('{schema}.seq') else nextval('{schema}.seq') end, a.token, a.worker, a.epoch + 1,
            a.crash_limit, a.early, a.followed, a.enqueued, a.keep, a.key, a.buckets, a.costs, a.record,
            a.followed & {IS_JOIN} = 0
                and exists (select 1 from {schema}.queues q where q.name = any(array[a.queue]) and q.bounded)
        from (
            select b.* from (select * from ended union all select * from buried) b order by array_position(p_ids, b.id)
        ) a
        returning jobs.queue, jobs.state
    )
    select coalesce(array_agg(distinct r.queue) filter (where r.state = {READY}), '{}') into v_woken from revived r;
    perform {schema}.add_lane_rows_v1(p_ids, false);
    delete from {schema}.progress where job = any(p_ids);
    delete from {schema}.items where job = any(p_ids);
    return v_woken;
end
$$;

-- delete: every state except running -> gone. For its dependents a waiting job counts as a parent that did not succeed, and
-- so does a dead job for those that still wait for it. The flow of a deleted root is deleted.
create function {schema}.delete_v1(p_ids bytea[], p_now bigint) returns text[] language plpgsql as $$
declare
    v_gone bytea[];
    v_left text[];
    v_woken text[];
begin
    with gone as (
        delete from {schema}.jobs j where j.id = any(p_ids) returning j.id, j.lane, j.state, j.buckets
    )
    select coalesce(array_agg(g.id), '{}'), array_agg(distinct g.lane) filter (where g.state = {READY} and g.buckets is not null)
    into v_gone, v_left from gone g;
    if v_left is not null then
        perform {schema}.recheck_left_lanes_v1(v_left);
    end if;
    delete from {schema}.finished f where f.id = any(p_ids);
    with buried as (
        delete from {schema}.dead d where d.id = any(p_ids) returning d.id
    )
    select v_gone || array_agg(b.id) into v_gone from buried b;
    delete from {schema}.edges where child = any(v_gone);
    v_woken := {schema}.resolve_deleted_v1(v_gone, p_now);
    perform {schema}.end_flows_v1(array(select o.id from {schema}.joins o where o.id = any(p_ids)), {DELETE_FLOW}, p_now);
    perform {schema}.delete_details_v1(p_ids);
    return v_woken;
end
$$;

-- resolve_deleted: for the children of deleted jobs each of these ended badly.
create function {schema}.resolve_deleted_v1(p_ids bytea[], p_now bigint) returns text[] language plpgsql as $$
begin
    return {schema}.resolve_dependents_v1(
        array(select row(u.id, {CANCELLED})::{schema}.parent_end_v1 from unnest(p_ids) as u(id)), null, p_now
    );
end
$$;

-- delete_details: delete all that is stored beside these jobs. A key falls back to the job before them, if that was
-- started under it.
create function {schema}.delete_details_v1(p_ids bytea[]) returns void language plpgsql as $$
declare
    v_left {schema}.keys[];
begin
    delete from {schema}.attempts where job = any(p_ids);
    delete from {schema}.logs where job = any(p_ids);
    delete from {schema}.progress where job = any(p_ids);
    delete from {schema}.items where job = any(p_ids);
    delete from {schema}.marks where job = any(p_ids);
    delete from {schema}.follow_ups where job = any(p_ids);
    delete from {schema}.joins where id = any(p_ids);
    with gone as (
        delete from {schema}.keys k where k.job = any(p_ids) returning k
    )
    select array_agg(g.k) filter (where (g.k).previous is not null) into v_left from gone g;
    if v_left is not null then
        insert into {schema}.keys (hash, job, span, mode)
        select l.hash, l.previous, l.span, l.mode from unnest(v_left) l
        where exists (select 1 from {schema}.jobs j where j.id = any(array[l.previous]))
            or l.previous = any({schema}.find_ended_v1(array[l.previous]));
    end if;
end
$$;
