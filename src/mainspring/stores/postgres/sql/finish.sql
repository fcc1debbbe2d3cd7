-- The one way into a final state: live -> succeeded | dead | cancelled.
--
-- The caller has locked the job rows. Plain successes of a turn take a shorter way through the same steps
-- (ack_successes). Here and elsewhere rows are joined by any(array[...]): see docs/internals/postgres-plans.md.

-- finish: end these jobs. returns the queues in which a job became ready
create function {schema}.finish_v1(p_endings {schema}.ending_v1[], p_now bigint) returns text[] language plpgsql as $$
declare
    v_moved {schema}.moved_v1;
    v_woken text[];
begin
    if coalesce(cardinality(p_endings), 0) = 0 then
        return '{}';
    end if;
    v_moved := {schema}.move_to_history_v1(p_endings, p_now);
    v_woken := v_moved.woken || {schema}.resolve_dependents_v1(
        array(select x.id from unnest(p_endings) x), array(select x.state = {SUCCEEDED} from unnest(p_endings) x), p_now
    );
    if v_moved.schedules is not null then
        v_woken := v_woken || {schema}.note_success_v1(v_moved.schedules, p_now);
    end if;
    return v_woken;
end
$$;

-- move_to_history: move live rows to history, enqueue their follow-up jobs, release their buckets, delete the edges to
-- parents.
-- returns the queues in which a job became ready, and the schedules of which a job succeeded, to be noted
create function {schema}.move_to_history_v1(p_endings {schema}.ending_v1[], p_now bigint) returns {schema}.moved_v1
language plpgsql as $$
declare
    v_ids bytea[] := array(select x.id from unnest(p_endings) x);
    v_followed {schema}.ended_v1[];
    v_worker text;
    v_freed text[];
    v_left text[];
    v_schedules text[];
    v_woken text[] := '{}';
begin
    with gone as (
        delete from {schema}.jobs j using unnest(p_endings) x where j.id = any(array[x.id])
        returning j.*, x.state as final, x.reason, x.result, x.error, x.label, x.note, coalesce(x.refund, 0) as refund
    ), buried as (
        insert into {schema}.dead (
            seq, token, enqueued, finished, priority, attempt, epoch, crashes, crash_limit, followed, early, id, state, task,
            queue, home, lane, record, worker, started, result, error, expires, keep, key, reason, note, label, buckets, costs,
            schedule
        )
        select seq, token, enqueued, p_now, priority, attempt - refund, epoch, crashes, crash_limit, followed, early, id, final,
            task, queue, home, lane, record, worker, started, result, error, expires, keep, key, reason, note, label, buckets,
            costs, schedule
        from gone where final = {DEAD}
    ), kept as (
        insert into {schema}.finished (
            seq, token, enqueued, finished, priority, attempt, epoch, crashes, crash_limit, followed, early, id, state, task,
            queue, home, lane, record, worker, started, result, error, expires, keep, drop_at, key, reason, note, buckets, costs,
            schedule
        )
        select seq, token, enqueued, p_now, priority, attempt - refund, epoch, crashes, crash_limit, followed, early, id, final,
            task, queue, home, lane, record, worker, started, result, error, expires, keep,
            case when keep is not null then p_now + least(keep, {UNLIMITED}) end, key, reason, note, buckets, costs, schedule
        from gone where final <> {DEAD}
    )
    select array_agg(row(id, epoch, final)::{schema}.ended_v1) filter (where followed > 0),
        max(worker) filter (where state = {RUNNING} and buckets is not null),
        (select array_agg(b.name) from gone g cross join unnest(g.buckets) as b(name) where g.state = {RUNNING}),
        array_agg(distinct lane) filter (where state = {READY} and buckets is not null),
        array_agg(distinct schedule) filter (where final = {SUCCEEDED} and schedule is not null)
    into v_followed, v_worker, v_freed, v_left, v_schedules from gone;
    if v_freed is not null then
        perform {schema}.release_uses_v1(v_worker, v_freed);
    end if;
    if v_left is not null then
        perform {schema}.recheck_left_lanes_v1(v_left);
    end if;
    delete from {schema}.edges where child = any(v_ids);
    if v_followed is not null then
        v_woken := {schema}.enqueue_follow_ups_v1(v_followed, p_now);
    end if;
    return (v_ids, null::bigint[], v_woken, v_schedules);
end
$$;

-- resolve_dependents: parents have ended: unblock each child, or cancel it and then its own children, level by level.
-- returns the queues in which a job became ready
create function {schema}.resolve_dependents_v1(p_ids bytea[], p_good boolean[], p_now bigint) returns text[]
language plpgsql as $$
declare
    v_ids bytea[] := p_ids;
    v_good boolean[] := p_good;
    v_children bytea[];
    v_broken {schema}.ending_v1[];
    v_moved {schema}.moved_v1;
    v_ready text[];
    v_limited bytea[];
    v_woken text[] := '{}';
begin
    loop
        v_children := array(select distinct e.child from {schema}.edges e where e.parent = any(v_ids));
        exit when cardinality(v_children) = 0;
        perform 1 from {schema}.jobs j where j.id = any(v_children) order by j.id for update;
        -- A new statement: it sees what the last transaction wrote that locked these rows. Two acks of parents of one
        -- child get here one after the other.
        with met as (
            delete from {schema}.edges e using unnest(v_ids, v_good) as x(id, good) where e.parent = any(array[x.id])
            returning e.child, e.policy = {EDGE_FAIL} and not x.good as broken
        ), tally as (
            select child, count(*)::integer as n, bool_or(broken) as broken from met group by child
        ), placed as materialized (
            select t.child, t.n, nextval('{schema}.seq') as seq
            from (select * from tally where not broken order by child) t
        ), freed as (
            update {schema}.jobs j
            set deps = j.deps - t.n,
                state = case when j.deps > t.n then {BLOCKED} when j.due > p_now then {SCHEDULED} else {READY} end,
                due = case when j.deps > t.n or j.due > p_now then j.due end,
                seq = case when j.deps > t.n or j.due > p_now then j.seq when j.seq < 0 then -t.seq else t.seq end
            from placed t
            where j.id = any(array[t.child])
            returning j.id, j.queue, j.state, j.buckets
        )
        select array(
                select row(t.child, {CANCELLED}, {PARENT}, null, null, null, null, 0)::{schema}.ending_v1
                from tally t where t.broken
            ), array(select distinct f.queue from freed f where f.state = {READY}),
            array(select f.id from freed f where f.state = {READY} and f.buckets is not null)
        into v_broken, v_ready, v_limited;
        if cardinality(v_limited) > 0 then
            perform {schema}.add_lane_rows_v1(v_limited, false);
        end if;
        v_woken := v_woken || v_ready;
        exit when cardinality(v_broken) = 0;
        v_moved := {schema}.move_to_history_v1(v_broken, p_now);
        v_woken := v_woken || v_moved.woken;
        v_ids := array(select x.id from unnest(v_broken) x);
        v_good := array_fill(false, array[cardinality(v_ids)]);
    end loop;
    return v_woken;
end
$$;
