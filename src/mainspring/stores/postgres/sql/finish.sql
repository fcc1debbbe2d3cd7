-- The one way into a final state: live -> succeeded | dead | cancelled.
--
-- The caller has locked the job rows. Plain successes of a turn take a shorter way through the same steps
-- (ack_successes). Here and elsewhere rows are joined by any(array[...]): see docs/internals/postgres-plans.md.

-- finish: end these jobs. p_ended: parents that have ended before, in the same transaction, and are resolved together with
-- them: all dependents of a transaction are locked at once. returns the queues in which a job became ready
create function {schema}.finish_v1(
    p_endings {schema}.ending_v1[], p_now bigint, p_ended {schema}.parent_end_v1[] default '{}'
) returns text[] language plpgsql as $$
declare
    v_moved {schema}.moved_v1;
begin
    if coalesce(cardinality(p_endings), 0) + cardinality(p_ended) = 0 then
        return '{}';
    end if;
    if cardinality(p_endings) > 0 then
        v_moved := {schema}.move_to_history_v1(p_endings, '{}', p_now);
    end if;
    return coalesce(v_moved.woken, '{}') || {schema}.resolve_dependents_v1(
        p_ended || array(
            select row(x.id, case when x.reason = {BYPASSED} then x.reason else x.state end)::{schema}.parent_end_v1
            from unnest(p_endings) x
        ), null, p_now
    );
end
$$;

-- move_to_history: move live rows to history, enqueue their follow-up jobs, release their buckets, delete the edges to
-- parents. p_counted: the joins that ended by their members. returns the queues in which a job became ready
create function {schema}.move_to_history_v1(p_endings {schema}.ending_v1[], p_counted bytea[], p_now bigint)
returns {schema}.moved_v1 language plpgsql as $$
declare
    v_ids bytea[] := array(select x.id from unnest(p_endings) x);
    v_followed {schema}.ended_v1[];
    v_joins bytea[];
    v_worker text;
    v_freed text[];
    v_left text[];
    v_woken text[] := '{}';
begin
    with gone as (
        delete from {schema}.jobs j using unnest(p_endings) x where j.id = any(array[x.id])
        returning j.*, x.state as final, x.reason, x.result, x.error, x.label, x.note, coalesce(x.refund, 0) as refund,
            x.ran
    ), buried as (
        insert into {schema}.dead (
            seq, token, enqueued, finished, priority, attempt, epoch, crashes, crash_limit, followed, early, id, state, task,
            queue, home, lane, record, worker, started, ran, result, error, expires, keep, drop_at, key, reason, note, label,
            buckets, costs
        )
        select seq, token, enqueued, p_now, priority, attempt - refund, epoch, crashes, crash_limit, followed, early, id, final,
            task, queue, home, lane, record, worker, started, ran, result, error, expires, keep,
            case when keep = {FLOW_KEEP} then p_now + keep end, key, reason, note, label, buckets, costs
        from gone where final = {DEAD}
    ), kept as (
        insert into {schema}.finished (
            seq, token, enqueued, finished, priority, attempt, epoch, crashes, crash_limit, followed, early, id, state, task,
            queue, home, lane, record, worker, started, ran, result, error, expires, keep, drop_at, key, reason, note, buckets, costs
        )
        select seq, token, enqueued, p_now, priority, attempt - refund, epoch, crashes, crash_limit, followed, early, id, final,
            task, queue, home, lane, record, worker, started, ran, result, error, expires, keep,
            case when keep is not null then p_now + least(keep, {UNLIMITED}) end, key, reason, note, buckets, costs
        from gone where final <> {DEAD}
    )
    select array_agg(row(id, epoch, final)::{schema}.ended_v1) filter (where followed & {FOLLOWED_ANY} > 0),
        array_agg(id) filter (where followed & {IS_JOIN} > 0),
        max(worker) filter (where state = {RUNNING} and buckets is not null),
        (select array_agg(b.name) from gone g cross join unnest(g.buckets) as b(name) where g.state = {RUNNING}),
        array_agg(distinct lane) filter (where state = {READY} and buckets is not null)
    into v_followed, v_joins, v_worker, v_freed, v_left from gone;
    if v_freed is not null then
        perform {schema}.release_uses_v1(v_worker, v_freed);
    end if;
    if v_left is not null then
        perform {schema}.recheck_left_lanes_v1(v_left);
    end if;
    delete from {schema}.edges where child = any(v_ids);
    if v_joins is not null then
        perform {schema}.end_joins_v1(v_joins, p_counted, p_now);
    end if;
    if v_followed is not null then
        v_woken := {schema}.enqueue_follow_ups_v1(v_followed, p_now);
    end if;
    return (v_ids, null::bigint[], v_woken, null::boolean);
end
$$;
