-- What a turn takes in: running -> succeeded | dead | cancelled | ready | retrying | scheduled. The caller has locked
-- the row of the worker.

-- ack_successes: running -> succeeded for plain successes: no cancel order, no follow-up job for this end. Jobs that
-- name buckets only if p_limited says that the caller has locked them. One statement moves them. A row that another
-- transaction has locked is waited for and looked at again; a job that does not fit any more is left for apply_acks.
-- The caller resolves the children, together with those of the other acks.
-- returns which jobs were moved, and whether one of them has children
create function {schema}.ack_successes_v1(
    p_worker text, p_id bytea[], p_token bigint[], p_result bytea[], p_error bytea[], p_ran bigint[],
    p_limited boolean, p_now bigint
) returns {schema}.moved_v1 language plpgsql as $$
declare
    v_done bytea[];
    v_token bigint[];
begin
    -- By primary key; state and worker are expressions (see docs/internals/postgres-plans.md).
    with gone as (
        delete from {schema}.jobs j using unnest(p_id, p_token, p_result, p_error, p_ran) as a(id, token, result, error, ran)
        where j.id = any(array[a.id]) and j.token = a.token and j.state || '' = {RUNNING} and j.worker || '' = p_worker
            and j.ordered is null and (j.buckets is null or j.buckets = '{}' or p_limited) and j.followed & {FOLLOWED_SUCCESS} = 0
        returning j.seq, j.token, j.enqueued, j.priority, j.attempt, j.epoch, j.crashes, j.crash_limit, j.followed, j.early,
            j.id, j.task, j.queue, j.home, j.lane, j.record, j.started, j.expires, j.keep, j.key, j.buckets,
            j.costs, a.result, a.error, a.ran
    ), kept as (
        insert into {schema}.finished (
            seq, token, enqueued, finished, priority, attempt, epoch, crashes, crash_limit, followed, early, id, state, task,
            queue, home, lane, record, worker, started, ran, result, error, expires, keep, drop_at, key, buckets, costs
        )
        select seq, token, enqueued, p_now, priority, attempt, epoch, crashes, crash_limit, followed, early, id,
            {SUCCEEDED}, task,
            queue, home, lane, record, p_worker, started, ran, result, error, expires, keep,
            case when keep is not null then p_now + least(keep, {UNLIMITED}) end, key, buckets, costs
        from gone
        returning id, token, buckets
    ), freed as (
        select b.name, sum(k.n) as n from (
            select kept.buckets, count(*) as n from kept where p_limited group by kept.buckets
        ) k cross join unnest(k.buckets) as b(name) group by b.name
    ), empty as (
        delete from {schema}.bucket_uses u using freed f where u.bucket = any(array[f.name]) and u.worker = p_worker
            and u.n <= f.n
    ), fewer as (
        update {schema}.bucket_uses u set n = u.n - f.n from freed f
        where u.bucket = any(array[f.name]) and u.worker = p_worker and u.n > f.n
    )
    select coalesce(array_agg(kept.id), '{}'), coalesce(array_agg(kept.token), '{}')
    into v_done, v_token from kept;
    return (v_done, v_token, '{}'::text[], exists (select 1 from {schema}.edges e where e.parent = any(v_done)));
end
$$;

-- list_unmoved_acks: those of these successes that were not moved, as acks.
create function {schema}.list_unmoved_acks_v1(p_moved {schema}.moved_v1, p_id bytea[], p_token bigint[], p_result bytea[],
    p_error bytea[], p_ran bigint[])
returns {schema}.ack_v1[] language plpgsql as $$
begin
    return array(
        select row(
            -u.n, u.id, u.token, {SUCCEEDED}, {SUCCEEDED}, null, 0, null, u.result, u.error, null, false, false, false, 0, null,
                null, u.ran, null
        )::{schema}.ack_v1
        from unnest(p_id, p_token, p_result, p_error, p_ran) with ordinality as u(id, token, result, error, ran, n)
        where not exists (
            select 1 from unnest(p_moved.done, p_moved.token) as d(id, token) where d.id = u.id and d.token = u.token
        )
    );
end
$$;

-- apply_acks: running -> where each ack says, or cancelled if a cancel order waits. p_ended: parents that ended before, see
-- finish.
-- returns one row per ack that was not applied, already (the same ack of the same owner was applied before) or stale;
-- and one row per queue in which a job became ready
create function {schema}.apply_acks_v1(
    p_worker text, p_acks {schema}.ack_v1[], p_now bigint, p_ended {schema}.parent_end_v1[] default '{}'
) returns table (kind text, id bytea, token bigint, queue text) language plpgsql as $$
#variable_conflict use_column
declare
    v_ids bytea[] := array(select a.id from unnest(p_acks) a);
    v_applicable {schema}.ack_v1[];
    v_applied integer[];
    v_crashed {schema}.taken_back_v1[] := '{}';
    v_woken text[];
begin
    -- A transaction that moves running rows holds the row of their worker, as this one does; only a cancel order can
    -- still come between.
    perform 1 from {schema}.jobs j where j.id = any(v_ids) order by j.id for update;
    v_applicable := array(
        select a from unnest(p_acks) a join {schema}.jobs j on j.id = any(array[a.id])
        where j.token = a.token and j.state || '' = {RUNNING} and j.worker || '' = p_worker
    );
    v_applied := array(select g.n from unnest(v_applicable) g);
    perform {schema}.correct_acked_costs_v1(v_applicable, p_now);
    v_woken := {schema}.hand_back_v1(p_worker, v_applicable, p_now);
    if exists (select 1 from unnest(v_applicable) a where a.outcome = {CRASHED}) then
        v_crashed := {schema}.plan_crashes_v1(v_applicable, p_now);
        perform {schema}.release_uses_v1(p_worker, {schema}.list_buckets_v1(array(select c.id from unnest(v_crashed) c)));
        v_woken := v_woken || {schema}.place_taken_back_v1(v_crashed, p_worker);
    end if;
    v_woken := v_woken || {schema}.finish_v1(
        {schema}.list_taken_ends_v1(v_crashed, v_applicable) || array(
            select case when j.ordered is null
                then row(a.id, a."to", a.reason, a.result, a.error, a.label, null, a.refund::integer, a.ran)::{schema}.ending_v1
                else row(
                    a.id, {CANCELLED}, {BY_USER}, null, a.error, null, nullif(j.ordered, ''), a.refund::integer, a.ran
                )::{schema}.ending_v1 end
            from unnest(v_applicable) a join {schema}.jobs j on j.id = any(array[a.id])
            where j.token = a.token and j.state || '' = {RUNNING} and a.outcome <> {CRASHED}
        ), p_now, p_ended
    );
    return query select 'woken', null::bytea, null::bigint, w.queue from unnest(v_woken) w(queue);

    if cardinality(v_applicable) < cardinality(p_acks) then
        return query
        select case when coalesce(
                (
                    select t.worker = p_worker and t.acked and t.outcome = a.outcome from {schema}.attempts t
                    where t.job = any(array[a.id]) and t.token = a.token
                ),
                -- A plain success leaves no attempt: its row in history has the facts, or the live row of the next
                -- epoch.
                a.outcome = {SUCCEEDED} and (exists (
                    select 1 from {schema}.finished f
                    where f.id = any(array[a.id]) and f.token = a.token and f.worker = p_worker and f.state = {SUCCEEDED}
                ) or exists (
                    select 1 from {schema}.jobs j
                    where j.id = any(array[a.id]) and j.token = a.token and j.worker || '' = p_worker
                        and j.state || '' <> {RUNNING}
                ))
            ) then 'already' else 'stale' end, a.id, a.token, null
        from unnest(p_acks) a where a.n <> all(v_applied);
    end if;
end
$$;

-- hand_back: record the attempts of acks that are more than plain successes; running -> ready | retrying | scheduled
-- for acks that say so, without a cancel order and without a crash; their buckets are released. A job that has started
-- cannot expire any more. A job that is handed back with buckets keeps its seq. returns the queues in which a job became ready
create function {schema}.hand_back_v1(p_worker text, p_acks {schema}.ack_v1[], p_now bigint) returns text[]
language plpgsql as $$
declare
    v_back bytea[];
    v_woken text[];
    v_limited bytea[];
begin
    perform {schema}.record_attempts_v1(
        array(
            select a.id from unnest(p_acks) a join {schema}.jobs j on j.id = any(array[a.id])
            where a."to" <> {SUCCEEDED} or j.ordered is not null
        ), p_acks, null, p_now
    );
    v_back := array(
        select a.id from unnest(p_acks) a join {schema}.jobs j on j.id = any(array[a.id])
        where j.ordered is null and a."to" in ({READY}, {RETRYING}, {SCHEDULED}) and a.outcome <> {CRASHED}
    );
    if cardinality(v_back) = 0 then
        return '{}';
    end if;
    with placed as materialized (
        select u.*, case when u."to" = {READY} and u.buckets is null then nextval('{schema}.seq') end as seq
        from (select x.* from unnest(p_acks) x where x.id = any(v_back) order by x.n) u
    ), moved as (
        update {schema}.jobs j
        set state = a."to",
            attempt = j.attempt - a.refund::integer,
            expires = case when a.unstarted then j.expires end,
            parked = j.parked or a.park,
            lane = {schema}.job_lane_v1(j.home, j.task, j.crashes, j.crash_limit, j.parked or a.park),
            due = case when a."to" <> {READY} then coalesce(a.due, p_now + a.delay) end,
            seq = coalesce(case when j.seq < 0 then -a.seq else a.seq end, j.seq),
            turn = null
        from placed a
        where j.id = any(array[a.id])
        returning j.id, j.queue, j.state, j.buckets
    )
    select array_agg(distinct m.queue) filter (where m.state = {READY}), array_agg(m.id) filter (where m.buckets is not null)
    into v_woken, v_limited from moved m;
    if v_limited is not null then
        perform {schema}.release_uses_v1(p_worker, {schema}.list_buckets_v1(v_limited));
    end if;
    if exists (select 1 from unnest(p_acks) a where a.buckets is not null) then
        v_limited := v_limited || {schema}.add_buckets_to_jobs_v1(p_acks, v_back);
    end if;
    if v_limited is not null then
        perform {schema}.add_lane_rows_v1(v_limited, false);
    end if;
    return coalesce(v_woken, '{}');
end
$$;

-- record_attempts: record an attempt of each of these running jobs that ends now, by its ack or else by p_cause. Of
-- each job the newest {ATTEMPTS_KEPT} attempts are kept.
create function {schema}.record_attempts_v1(p_ids bytea[], p_acks {schema}.ack_v1[], p_cause text, p_now bigint) returns void
language plpgsql as $$
begin
    if cardinality(p_ids) = 0 then
        return;
    end if;
    if p_cause is null then
        insert into {schema}.attempts (job, token, epoch, attempt, worker, started, ended, ran, outcome, acked, error)
        select j.id, j.token, j.epoch, j.attempt, j.worker, j.started, p_now, a.ran, a.outcome, true, a.error
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
            select o.token from {schema}.attempts o where o.job = any(array[u.id])
                order by o.token desc offset {ATTEMPTS_KEPT} limit 1
        ) as token
        from unnest(p_ids) as u(id)
    ) old
    where t.job = any(array[old.id]) and t.token <= old.token;
end
$$;
