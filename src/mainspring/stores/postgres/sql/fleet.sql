-- Workers: heartbeats, rescue of lost workers, retirement.

-- beat: count up the beat numbers of workers that have a row and are not lost; insert the rows of workers that
-- register.
-- returns the live workers, with their numbers
create function {schema}.beat_v1(
    p_worker text[], p_new text[], p_queues text[], p_tasks text[], p_lease bigint[], p_info bytea[], p_now bigint
) returns table (id text, number bigint)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off as $$
#variable_conflict use_column
declare
    v_now bigint;
    v_made text[];
begin
    perform 1 from {schema}.workers w where w.id = any(p_worker) order by w.id for update;
    v_now := {schema}.now_v1(p_now);
    with made as (
        insert into {schema}.workers (id, number, started, seen, queues, tasks, lease, info)
        select r.id, 0, v_now, v_now, array(select jsonb_array_elements_text(r.queues::jsonb)),
            array(select jsonb_array_elements_text(r.tasks::jsonb)), r.lease, r.info
        from unnest(p_new, p_queues, p_tasks, p_lease, p_info) as r(id, queues, tasks, lease, info)
        order by r.id
        on conflict (id) do update set info = excluded.info where not workers.lost
        returning workers.id
    ) select array_agg(made.id) into v_made from made;
    return query
    update {schema}.workers w set number = w.number + 1, seen = v_now
    where w.id = any(p_worker) and not w.lost
    returning w.id, w.number;
end
$$;

-- lead: give the worker the services that no other worker leads, for p_span, and note the time for promotions. A lead
-- that ends later than this one was made before the clock was set back.
-- returns the services that the worker leads, about how many workers there are, when a promotion and when a schedule is
-- due, and whether a schedule is always due
create function {schema}.lead_v1(p_worker text, p_services text[], p_span bigint, p_now bigint)
returns table (now bigint, led text[], fleet bigint, next_due bigint, next_look bigint, always_due boolean)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    v_now bigint := {schema}.now_v1(p_now);
    v_clock bigint := (select m.clock from {schema}.meta m);
    v_held text[] := array(
        select l.service from {schema}.leads l where l.worker <> p_worker and l.until > v_now and l.until <= v_now + p_span
    );
begin
    if not p_services <@ v_held then
        insert into {schema}.leads as l (service, worker, until, fleet)
        select s, p_worker, v_now + p_span, (select count(*) from {schema}.workers w where not w.lost)
        from unnest(p_services) s order by s
        on conflict (service) do update set worker = excluded.worker, until = excluded.until, fleet = excluded.fleet
        where l.worker = p_worker or l.until <= v_now or l.until > v_now + p_span;
        if v_now > v_clock + {CLOCK_NOTED} then
            update {schema}.meta m set clock = v_now where m.clock < v_now;
        end if;
    end if;
    return query select v_now,
        array(
            select l.service from {schema}.leads l
            where l.worker = p_worker and l.until > v_now and l.service = any(p_services) order by l.service
        ),
        coalesce((select max(l.fleet) from {schema}.leads l), 1),
        case when v_now < v_clock - {CLOCK_SET_BACK} or exists (select 1 from {schema}.rechecks) then v_now
        else {schema}.next_promotion_v1() end,
        (select s.look from {schema}.schedules s where s.look > {ALWAYS_DUE} order by s.look limit 1),
        exists (select 1 from {schema}.schedules s where s.look = {ALWAYS_DUE});
end
$$;

-- rescue: mark a worker lost if its beat number is still p_number, then take back its jobs. A beat that came first
-- wins: both lock the row. returns one row per moved job, and one without id if the worker was taken
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
    delete from {schema}.leads l where l.worker = p_worker;
    v_buckets := {schema}.lock_worker_buckets_v1(v_worker);
    v_now := {schema}.now_v1(p_now);
    perform {schema}.follow_clock_v1(v_now);
    return query select null::bytea, 'taken', null;
    return query select r.* from {schema}.take_back_jobs_v1(p_worker, p_cause, p_delays, v_now) r;
    return query select null::bytea, null, w.queue from unnest({schema}.recheck_freed_v1(v_buckets, false, v_now)) as w(queue);
end
$$;

-- retire: apply the acks of jobs known to be guilty, take back the other jobs, delete the row of the worker.
-- returns as rescue
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
    v_buckets := {schema}.lock_worker_buckets_v1(v_worker);
    v_now := {schema}.now_v1(p_now);
    perform {schema}.follow_clock_v1(v_now);
    return query select null::bytea, null, a.queue from {schema}.apply_acks_v1(p_worker, p_acks, v_now) a where a.kind = 'woken';
    return query select null::bytea, 'taken', null;
    return query select r.* from {schema}.take_back_jobs_v1(p_worker, p_cause, p_delays, v_now) r;
    return query select null::bytea, null, w.queue from unnest({schema}.recheck_freed_v1(v_buckets, true, v_now)) as w(queue);
    delete from {schema}.leads l where l.worker = p_worker;
    delete from {schema}.workers w where w.id = p_worker;
end
$$;

-- guilt: the group of a job when a crash is charged: 1 crashed before, 2 suspect, 0 other. See
-- mainspring/jobs/lanes.py.
create function {schema}.guilt_v1(p_crashes integer, p_limit integer) returns integer language sql immutable as $$
    select case when p_crashes = 0 then {GUILT_NONE} when p_crashes >= p_limit - 1 then {GUILT_SUSPECT} else {GUILT_CRASHED} end
$$;

-- plan_taken: where a running job goes that is taken from its worker. p_charged: the crash counts for the job; p_certain:
-- this job caused the crash, so it may be its last; p_reason: why it is dead then; p_ends: it is dead in any case.
create function {schema}.plan_taken_v1(
    p_job {schema}.jobs, p_charged boolean, p_certain boolean, p_delays bigint[], p_reason text, p_ends boolean, p_now bigint
) returns {schema}.taken_back_v1 language plpgsql stable as $$
declare
    v_delay bigint := p_delays[least(p_job.crashes + 1, cardinality(p_delays))];
begin
    return case
        when p_job.ordered is not null then row(p_job.id, {CANCELLED}, {BY_USER}, p_charged, null)::{schema}.taken_back_v1
        when p_job.early or p_ends or p_charged and p_certain and p_job.crashes + 1 >= p_job.crash_limit
            then row(p_job.id, {DEAD}, p_reason, p_charged, null)::{schema}.taken_back_v1
        when p_charged and v_delay > 0 then row(p_job.id, {RETRYING}, null, true, p_now + v_delay)::{schema}.taken_back_v1
        else row(p_job.id, {READY}, null, p_charged, null)::{schema}.taken_back_v1 end;
end
$$;

-- plan_take_back: where each job of a worker goes; the caller has locked the jobs. A crash is charged to jobs that crashed
-- before, else to suspects, else to all; lost and interrupted charge no job.
create function {schema}.plan_take_back_v1(p_worker text, p_cause text, p_delays bigint[], p_now bigint)
returns {schema}.taken_back_v1[] language plpgsql as $$
declare
    v_held integer := (select count(*) from {schema}.jobs j where j.worker = p_worker and j.state = {RUNNING});
    v_blamed integer := (
        select coalesce(min({schema}.guilt_v1(j.crashes, j.crash_limit)), {GUILT_NONE}) from {schema}.jobs j
        where j.worker = p_worker and j.state = {RUNNING} and j.crashes > 0
    );
begin
    return array(
        select {schema}.plan_taken_v1(
            j, p_cause = {CRASHED} and {schema}.guilt_v1(j.crashes, j.crash_limit) = v_blamed,
            {schema}.guilt_v1(j.crashes, j.crash_limit) = {GUILT_SUSPECT} or v_held = 1, p_delays, {CRASHED}, false, p_now
        )
        from {schema}.jobs j where j.worker = p_worker and j.state = {RUNNING}
        order by j.seq
    );
end
$$;

-- plan_crashes: where the jobs of acks with the outcome crashed go. Each crash is charged to the job of its ack.
create function {schema}.plan_crashes_v1(p_acks {schema}.ack_v1[], p_now bigint)
returns {schema}.taken_back_v1[] language plpgsql as $$
begin
    return array(
        select {schema}.plan_taken_v1(j, true, true, a.delays, a.reason, a."to" = {DEAD}, p_now)
        from unnest(p_acks) a join {schema}.jobs j on j.id = any(array[a.id])
        where a.outcome = {CRASHED}
        order by a.n
    );
end
$$;

-- place_taken_back: running -> ready | retrying for these jobs, whose owner is p_owner from now on. Jobs that end become
-- ready too: finish takes them from there. A body may have begun, so a job that runs again cannot expire any more.
-- returns the queues in which a job became ready
create function {schema}.place_taken_back_v1(p_moves {schema}.taken_back_v1[], p_owner text)
returns text[] language plpgsql as $$
declare
    v_woken text[];
begin
    with placed as materialized (
        select u.*, case when u.state = {READY} then nextval('{schema}.seq') end as seq from unnest(p_moves) u
    ), moved as (
        update {schema}.jobs j
        set attempt = j.attempt - 1, crashes = j.crashes + f.charged::integer, worker = p_owner, turn = null, due = f.due,
            lane = {schema}.job_lane_v1(j.home, j.task, j.crashes + f.charged::integer, j.crash_limit, j.parked),
            state = case when f.state in ({READY}, {RETRYING}) then f.state else {READY} end,
            expires = case when f.state not in ({READY}, {RETRYING}) then j.expires end,
            seq = coalesce(case when j.seq < 0 then -f.seq else f.seq end, j.seq)
        from placed f
        where j.id = any(array[f.id])
        returning j.queue, f.state
    )
    select array_agg(distinct m.queue) into v_woken from moved m where m.state = {READY};
    perform {schema}.add_lane_rows_v1(array(select f.id from unnest(p_moves) f where f.state = {READY}), false);
    return coalesce(v_woken, '{}');
end
$$;

-- list_taken_ends: the ends of those of these jobs that are dead or cancelled, with what their acks say, if there are any.
create function {schema}.list_taken_ends_v1(p_moves {schema}.taken_back_v1[], p_acks {schema}.ack_v1[])
returns {schema}.ending_v1[] language plpgsql as $$
begin
    return array(
        select row(
            f.id, f.state, f.reason, null, a.error, case when f.state = {DEAD} then a.label end, nullif(j.ordered, ''), 0, a.ran
        )::{schema}.ending_v1
        from unnest(p_moves) f join {schema}.jobs j on j.id = any(array[f.id]) left join unnest(p_acks) a on a.id = f.id
        where f.state in ({DEAD}, {CANCELLED})
    );
end
$$;

-- take_back_jobs: running -> ready | retrying | dead | cancelled for all jobs of a worker whose row the caller has
-- locked (see plan_take_back). The owner is cleared, so that its own late ack is answered "stale".
create function {schema}.take_back_jobs_v1(p_worker text, p_cause text, p_delays bigint[], p_now bigint)
returns table (id bytea, state text, woken text) language plpgsql as $$
#variable_conflict use_column
declare
    v_moves {schema}.taken_back_v1[];
    v_woken text[];
begin
    perform 1 from {schema}.jobs j where j.worker = p_worker and j.state = {RUNNING} order by j.id for update;
    v_moves := {schema}.plan_take_back_v1(p_worker, p_cause, p_delays, p_now);
    perform {schema}.record_attempts_v1(array(select f.id from unnest(v_moves) f), null, p_cause, p_now);
    delete from {schema}.bucket_uses where worker = p_worker;
    v_woken := {schema}.place_taken_back_v1(v_moves, null);
    v_woken := v_woken || {schema}.finish_v1({schema}.list_taken_ends_v1(v_moves, '{}'), p_now);
    return query select null::bytea, null, w.queue from unnest(v_woken) as w(queue);
    return query select f.id, f.state, null from unnest(v_moves) f;
end
$$;

-- lock_worker_buckets: lock the buckets of all jobs that this worker runs, whose row the caller has locked. returns the
-- buckets
create function {schema}.lock_worker_buckets_v1(p_worker {schema}.workers) returns text[] language plpgsql as $$
declare
    v_names text[] := '{}';
begin
    if p_worker.limited then
        v_names := array(select u.bucket from {schema}.bucket_uses u where u.worker = p_worker.id);
        perform {schema}.lock_buckets_v1(v_names);
    end if;
    return v_names;
end
$$;
