-- Schedules that wait for other schedules: a job of such a schedule is held until each of the others has succeeded
-- since the last start.
--
-- A transaction that notes a success, releases a job or sets dependencies has locked the rows of the schedules
-- concerned, by name and after everything else. For a job that it releases it waits {LOCK_WAIT} at most, so that it
-- does not wait for the owner of that lock. To end a held job, or to insert one, no schedule is locked; an inserted
-- job is looked at in the last step of its enqueue (apply_dependencies).

-- find_dependents: those of these schedules that wait for others. The decision comes later, when they are locked.
create function {schema}.find_dependents_v1(p_names text[]) returns text[] language plpgsql as $$
begin
    return array(select p.name from {schema}.dependents p where p.name = any(p_names));
end
$$;

-- lock_dependents: lock those of these schedules that wait for others. returns them
create function {schema}.lock_dependents_v1(p_names text[]) returns text[] language plpgsql as $$
begin
    return array(select p.name from {schema}.dependents p where p.name = any(p_names) order by p.name for update);
end
$$;

-- release_held: these jobs, which the caller has locked, wait for no schedule any more; those in p_new keep their place
-- among the ready jobs. returns the queues in which a job became ready
create function {schema}.release_held_v1(p_ids bytea[], p_new bytea[], p_now bigint) returns text[] language plpgsql as $$
declare
    v_woken text[];
    v_limited bytea[];
begin
    with placed as materialized (
        select o.id, nextval('{schema}.seq') as seq
        from (select j.id from {schema}.jobs j where j.id = any(p_ids) and j.held_place is not null order by j.held_place) o
    ), freed as (
        update {schema}.jobs j
        set held_schedule = null, held_place = null, deps = j.deps - 1,
            state = case when j.deps > 1 then {BLOCKED} when j.due > p_now then {SCHEDULED} else {READY} end,
            due = case when j.deps > 1 or j.due > p_now then j.due end,
            seq = case when j.deps > 1 or j.due > p_now or j.id = any(p_new) then j.seq when j.seq < 0 then -u.seq else u.seq end
        from placed u
        where j.id = any(array[u.id])
        returning j.id, j.queue, j.state, j.buckets
    )
    select coalesce(array_agg(distinct f.queue) filter (where f.state = {READY}), '{}'),
        array_agg(f.id) filter (where f.state = {READY} and f.buckets is not null)
    into v_woken, v_limited from freed f;
    if v_limited is not null then
        perform {schema}.add_lane_rows_v1(v_limited, false);
    end if;
    return v_woken;
end
$$;

-- lock_first_held: the first held job in the line of a schedule, locked; null if there is none. If another transaction
-- holds the row for longer than {LOCK_WAIT} (for example a caller's transaction that replaces the job), the next
-- promotion looks again.
create function {schema}.lock_first_held_v1(p_schedule text, p_now bigint) returns bytea language plpgsql as $$
declare
    c_moment constant text := {LOCK_WAIT};
    v_limit text := current_setting('lock_timeout');
    v_job bytea;
begin
    loop
        v_job := (
            select j.id from {schema}.jobs j
            where j.held_schedule = p_schedule and j.held_place is not null and (j.expires is null or j.expires > p_now)
            order by j.held_place limit 1
        );
        exit when v_job is null;
        perform 1 from {schema}.jobs j where j.id = v_job and j.held_place is not null for update skip locked;
        exit when found;
        begin
            perform set_config('lock_timeout', c_moment, true);
            perform 1 from {schema}.jobs j where j.id = v_job for update;
            perform set_config('lock_timeout', v_limit, true);
        exception when lock_not_available then
            insert into {schema}.dependency_rechecks (schedule) values (p_schedule);
            return null;
        end;
    end loop;
    return v_job;
end
$$;

-- release_next: of each of these schedules, whose rows the caller has locked, release the first held job if all
-- successes are noted.
-- returns the queues in which a job became ready
create function {schema}.release_next_v1(p_schedules text[], p_new bytea[], p_now bigint) returns text[] language plpgsql as $$
declare
    v_schedule text;
    v_job bytea;
    v_woken text[] := '{}';
begin
    foreach v_schedule in array p_schedules loop
        continue when exists (select 1 from {schema}.dependencies l where l.schedule = v_schedule and not l.noted);
        v_job := {schema}.lock_first_held_v1(v_schedule, p_now);
        if v_job is not null then
            v_woken := v_woken || {schema}.release_held_v1(array[v_job], p_new, p_now);
            perform {schema}.record_release_v1(v_schedule, v_job);
        end if;
    end loop;
    return v_woken;
end
$$;

-- record_release: record the job as the last released one of its schedule, and clear the noted successes.
create function {schema}.record_release_v1(p_schedule text, p_job bytea) returns void language plpgsql as $$
begin
    update {schema}.dependents p
    set released = p_job, token = (select j.token from {schema}.jobs j where j.id = any(array[p_job])) where p.name = p_schedule;
    update {schema}.dependencies l set noted = false where l.schedule = p_schedule and l.noted;
end
$$;

-- note_success: jobs of these schedules have succeeded: note that for the schedules that wait for them. Not if the last
-- released job is still to be started, for that job will see the success. returns the queues in which a job became
-- ready
create function {schema}.note_success_v1(p_names text[], p_now bigint) returns text[] language plpgsql as $$
declare
    v_dependents text[] := {schema}.lock_dependents_v1(array(select l.schedule from {schema}.dependencies l
        where l.after = any(p_names)));
begin
    if cardinality(v_dependents) = 0 then
        return '{}';
    end if;
    update {schema}.dependencies l set noted = true
    where l.schedule = any(v_dependents) and l.after = any(p_names) and not l.noted and not exists (
        select 1 from {schema}.dependents p join {schema}.jobs j on j.id = any(array[p.released])
        where p.name = l.schedule and j.token = p.token and (j.expires is null or j.expires > p_now)
    );
    return {schema}.release_next_v1(v_dependents, '{}', p_now);
end
$$;

-- apply_dependencies: the last step of an enqueue, for the schedules of its new jobs: release the first held job if all
-- successes are noted; forced jobs are recorded as the last released ones. p_open: a caller's transaction, which may
-- stay open for long, locks
-- nothing: the next promotion after its commit looks at what it inserted.
create function {schema}.apply_dependencies_v1(
    p_schedules text[], p_ids bytea[], p_forced boolean, p_open boolean, p_now bigint
) returns text[] language plpgsql as $$
declare
    v_dependents text[];
begin
    if p_open then
        insert into {schema}.dependency_rechecks (schedule) select u.name from unnest(p_schedules) as u(name);
        return '{}';
    end if;
    v_dependents := {schema}.lock_dependents_v1(p_schedules);
    if not p_forced then
        return {schema}.release_next_v1(v_dependents, p_ids, p_now)
            || {schema}.release_all_held_v1(p_schedules, v_dependents, p_ids, p_now);
    end if;
    perform {schema}.record_release_v1(f.schedule, f.id) from (
        select distinct on (j.schedule) j.schedule, j.id from unnest(p_ids) with ordinality as u(id, n)
        join {schema}.jobs j on j.id = any(array[u.id]) where j.schedule = any(v_dependents) order by j.schedule, u.n desc
    ) f;
    return '{}';
end
$$;

-- join_schedules: of these jobs, which their acks have made ready, those that were handed back with a schedule, and
-- have none, belong to it from now on, and are held if it waits for others, in the order of their enqueue. See
-- apply_joined
create function {schema}.join_schedules_v1(p_acks {schema}.ack_v1[], p_ids bytea[]) returns void language plpgsql as $$
declare
    v_waiting text[] := {schema}.find_dependents_v1(array(select distinct a.schedule from unnest(p_acks) a
        where a.schedule is not null));
begin
    with joined as (
        update {schema}.jobs j
        set schedule = a.schedule, held_schedule = w.name, held_place = case when w.name is not null then abs(j.seq) end,
            deps = j.deps + (w.name is not null)::integer, state = case when w.name is null then {READY} else {BLOCKED} end
        from unnest(p_acks) a left join unnest(v_waiting) as w(name) on w.name = a.schedule
        where a.schedule is not null and a."to" = {READY} and a.id = any(p_ids) and j.id = any(array[a.id]) and j.schedule is null
        returning j.id, j.schedule
    )
    insert into {schema}.marks (mark, job) select {PART} || o.schedule, o.id from joined o on conflict do nothing;
end
$$;

-- apply_joined: the last step for jobs that were handed back with a schedule: release the first held job if all
-- successes are noted. Nothing waits here: a schedule that another transaction holds is left to the next promotion.
-- returns the queues in which a job became ready
create function {schema}.apply_joined_v1(p_acks {schema}.ack_v1[], p_now bigint) returns text[] language plpgsql as $$
declare
    v_ids bytea[] := array(
        select j.id from unnest(p_acks) a join {schema}.jobs j on j.id = any(array[a.id])
        where a.schedule is not null and j.held_place is not null
    );
    v_held_schedules text[] := array(select distinct j.held_schedule from {schema}.jobs j where j.id = any(v_ids));
    v_locked text[] := array(
        select p.name from {schema}.dependents p where p.name = any(v_held_schedules) order by p.name for update skip locked
    );
begin
    insert into {schema}.dependency_rechecks (schedule) select u.name from unnest(v_held_schedules) as u(name)
        where u.name <> all(v_locked);
    return {schema}.release_next_v1(v_locked, v_ids, p_now);
end
$$;

-- release_all_held: release all held jobs of these schedules, except of schedules in p_linked, in their order. Jobs
-- that another transaction has locked are left to the next promotion. returns the queues in which a job became ready
create function {schema}.release_all_held_v1(p_names text[], p_linked text[], p_new bytea[], p_now bigint) returns text[]
language plpgsql as $$
declare
    v_names text[] := array(select u.name from unnest(p_names) as u(name) where u.name <> all(p_linked));
    v_woken text[] := '{}';
begin
    if cardinality(v_names) > 0 then
        v_woken := {schema}.release_held_v1(
            array(
                select j.id from {schema}.jobs j
                where j.held_place is not null and j.held_schedule = any(v_names) and (j.expires is null or j.expires > p_now)
                for update skip locked
            ), p_new, p_now
        );
        insert into {schema}.dependency_rechecks (schedule)
        select distinct j.held_schedule from {schema}.jobs j
        where j.held_place is not null and j.held_schedule = any(v_names) and (j.expires is null or j.expires > p_now);
    end if;
    return v_woken;
end
$$;

-- recheck_dependents: look at schedules that got jobs by transactions of callers, which have committed since.
-- returns the queues in which a job became ready
create function {schema}.recheck_dependents_v1(p_limit integer, p_now bigint) returns text[] language plpgsql as $$
declare
    v_names text[];
    v_linked text[];
begin
    with noted as (
        delete from {schema}.dependency_rechecks n
        where n.ctid = any(array(select o.ctid from {schema}.dependency_rechecks o limit p_limit for update skip locked))
        returning n.schedule
    )
    select array(select distinct h.schedule from noted h) into v_names;
    v_linked := {schema}.lock_dependents_v1(v_names);
    return {schema}.release_next_v1(v_linked, '{}', p_now) || {schema}.release_all_held_v1(v_names, v_linked, '{}', p_now);
end
$$;

-- set_dependencies: what these schedules wait for from now on: p_schedule and p_after are pairs; a schedule in p_names
-- without a pair waits for none. Calls run one by one, so that two which insert the same schedule do not meet.
-- returns the queues in which a job became ready
create function {schema}.set_dependencies_v1(p_names text[], p_schedule text[], p_after text[], p_now bigint) returns text[]
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    v_now bigint;
begin
    perform {schema}.guard_v1();
    perform pg_advisory_xact_lock(hashtextextended('mainspring dependencies {schema}', 0));
    perform {schema}.lock_dependents_v1(p_names);
    v_now := {schema}.now_v1(p_now);
    insert into {schema}.dependents (name) select distinct u.name
        from unnest(p_schedule) as u(name) on conflict (name) do nothing;
    delete from {schema}.dependencies l where l.schedule = any(p_names) and not exists (
        select 1 from unnest(p_schedule, p_after) as u(schedule, after) where u.schedule = l.schedule and u.after = l.after
    );
    insert into {schema}.dependencies (schedule, after)
    select distinct u.schedule, u.after from unnest(p_schedule, p_after) as u(schedule, after)
        on conflict (schedule, after) do nothing;
    delete from {schema}.dependents p where p.name = any(p_names) and p.name <> all(p_schedule);
    return {schema}.release_all_held_v1(p_names, p_schedule, '{}', v_now)
        || {schema}.release_next_v1(array(select distinct u.name from unnest(p_schedule) as u(name)), '{}', v_now);
end
$$;
