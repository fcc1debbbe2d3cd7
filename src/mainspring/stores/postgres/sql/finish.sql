-- finish: live -> succeeded | dead | cancelled, the one door into a final state; the caller has locked the rows
-- Plain successes of a turn take a shorter way through the same doors (see succeed).
-- Here and elsewhere rows are joined by any(array[...]): with statistics of a nearly empty table the planner would turn a
-- plain join round and walk all jobs, for as long as nobody analyses a table that has filled up since.
-- returns the queues in which a job became ready
create function {schema}.finish_v1(p_endings {schema}.ending_v1[], p_now bigint) returns text[] language plpgsql as $$
declare
    v_moved {schema}.moved_v1;
    v_woken text[];
begin
    if coalesce(cardinality(p_endings), 0) = 0 then
        return '{}';
    end if;
    v_moved := {schema}.move_v1(p_endings, p_now);
    v_woken := v_moved.woken || {schema}.resolve_v1(
        array(select x.id from unnest(p_endings) x), array(select x.state = 'succeeded' from unnest(p_endings) x), p_now
    );
    if v_moved.parts is not null then
        v_woken := v_woken || {schema}.note_success_v1(v_moved.parts, p_now);
    end if;
    return v_woken;
end
$$;

-- move: take live rows to history; their follow-up jobs are made, their places in buckets and the edges to their parents end
-- returns the queues in which a job became ready, and the parts of which one succeeded, to be noted
create function {schema}.move_v1(p_endings {schema}.ending_v1[], p_now bigint) returns {schema}.moved_v1 language plpgsql as $$
declare
    v_ids bytea[] := array(select x.id from unnest(p_endings) x);
    v_followed {schema}.ended_v1[];
    v_worker text;
    v_freed text[];
    v_left text[];
    v_parts text[];
    v_woken text[] := '{}';
begin
    with gone as (
        delete from {schema}.jobs j using unnest(p_endings) x where j.id = any(array[x.id])
        returning j.*, x.state as final, x.reason, x.result, x.error, x.label, x.note, coalesce(x.refund, 0) as refund
    ), buried as (
        insert into {schema}.dead (
            seq, token, enqueued, finished, priority, attempt, epoch, crashes, crash_limit, follows, early, id, state, task,
            queue, home, lane, record, worker, started, result, error, expires, keep, key, reason, note, label, buckets, costs,
            part
        )
        select seq, token, enqueued, p_now, priority, attempt - refund, epoch, crashes, crash_limit, follows, early, id, final,
            task, queue, home, lane, record, worker, started, result, error, expires, keep, key, reason, note, label, buckets,
            costs, part
        from gone where final = 'dead'
    ), kept as (
        insert into {schema}.finished (
            seq, token, enqueued, finished, priority, attempt, epoch, crashes, crash_limit, follows, early, id, state, task,
            queue, home, lane, record, worker, started, result, error, expires, keep, drop_at, key, reason, note, buckets, costs,
            part
        )
        select seq, token, enqueued, p_now, priority, attempt - refund, epoch, crashes, crash_limit, follows, early, id, final,
            task, queue, home, lane, record, worker, started, result, error, expires, keep,
            case when keep is not null then p_now + least(keep, 4611686018427387904) end, key, reason, note, buckets, costs, part
        from gone where final <> 'dead'
    )
    select array_agg(row(id, epoch, final)::{schema}.ended_v1) filter (where follows > 0),
        max(worker) filter (where state = 'running' and buckets is not null),
        (select array_agg(b.name) from gone g cross join unnest(g.buckets) as b(name) where g.state = 'running'),
        array_agg(distinct lane) filter (where state = 'ready' and buckets is not null),
        array_agg(distinct part) filter (where final = 'succeeded' and part is not null)
    into v_followed, v_worker, v_freed, v_left, v_parts from gone;
    if v_freed is not null then
        perform {schema}.free_v1(v_worker, v_freed);
    end if;
    if v_left is not null then
        perform {schema}.open_left_v1(v_left);
    end if;
    delete from {schema}.edges where child = any(v_ids);
    if v_followed is not null then
        v_woken := {schema}.follow_v1(v_followed, p_now);
    end if;
    return (v_ids, null::bigint[], v_woken, v_parts);
end
$$;

-- resolve: parents have ended: each child is freed, or cancelled and its own children with it, level by level
create function {schema}.resolve_v1(p_ids bytea[], p_good boolean[], p_now bigint) returns text[] language plpgsql as $$
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
        -- A new statement: it sees what the last holder of these rows wrote. Two acks of one join both get here, one after the other.
        with met as (
            delete from {schema}.edges e using unnest(v_ids, v_good) as x(id, good) where e.parent = any(array[x.id])
            returning e.child, e.policy = 'fail' and not x.good as broken
        ), tally as (
            select child, count(*)::integer as n, bool_or(broken) as broken from met group by child
        ), placed as materialized (
            select t.child, t.n, nextval('{schema}.seq') as seq
            from (select * from tally where not broken order by child) t
        ), freed as (
            update {schema}.jobs j
            set deps = j.deps - t.n,
                state = case when j.deps > t.n then 'blocked' when j.due > p_now then 'scheduled' else 'ready' end,
                due = case when j.deps > t.n or j.due > p_now then j.due end,
                seq = case when j.deps > t.n or j.due > p_now then j.seq when j.seq < 0 then -t.seq else t.seq end
            from placed t
            where j.id = any(array[t.child])
            returning j.id, j.queue, j.state, j.buckets
        )
        select array(
                select row(t.child, 'cancelled', 'parent', null, null, null, null, 0)::{schema}.ending_v1
                from tally t where t.broken
            ), array(select distinct f.queue from freed f where f.state = 'ready'),
            array(select f.id from freed f where f.state = 'ready' and f.buckets is not null)
        into v_broken, v_ready, v_limited;
        if cardinality(v_limited) > 0 then
            perform {schema}.line_up_v1(v_limited, false);
        end if;
        v_woken := v_woken || v_ready;
        exit when cardinality(v_broken) = 0;
        v_moved := {schema}.move_v1(v_broken, p_now);
        v_woken := v_woken || v_moved.woken;
        v_ids := array(select x.id from unnest(v_broken) x);
        v_good := array_fill(false, array[cardinality(v_ids)]);
    end loop;
    return v_woken;
end
$$;

-- follow: insert the follow-up jobs of jobs that ended just now, unless they are or were there
-- The last two bytes of an id are the epoch of the job that it follows. returns the queues of those that are ready
create function {schema}.follow_v1(p_ended {schema}.ended_v1[], p_now bigint) returns text[] language plpgsql as $$
declare
    v_made bytea[];
    v_ready text[];
    v_special boolean;
begin
    with made as (
        insert into {schema}.jobs (
            id, state, task, queue, home, lane, priority, seq, due, expires, crash_limit, early, keep, enqueued, record
        )
        select n.own, case when n.due > p_now then 'scheduled' else 'ready' end, n.task, n.queue, n.home, n.home, n.priority,
            case when n.due > p_now then 0 else nextval('{schema}.seq') end, case when n.due > p_now then n.due end,
            p_now + n.expires_in, n.crash_limit, n.early, n.keep, p_now, n.record
        from (
            select f.*, coalesce(f.run_at, p_now + f.delay) as due,
                substring(f.id from 1 for 14) || substring(int4send(x.epoch) from 3 for 2) as own
            from unnest(p_ended) x join {schema}.follows f on f.job = any(array[x.id]) and f.state = x.state
            order by x.id, f.n
        ) n
        where not exists (select 1 from {schema}.finished h where h.id = any(array[n.own]))
            and not exists (select 1 from {schema}.dead d where d.id = any(array[n.own]))
        on conflict (id) do nothing
        returning id, queue, state
    )
    select array_agg(m.id), array_agg(m.queue) filter (where m.state = 'ready'),
        exists (select 1 from {schema}.queues q where q.settings is not null)
    into v_made, v_ready, v_special from made m;
    if v_special then
        perform {schema}.place_new_v1(v_made);
    end if;
    insert into {schema}.marks (mark, job)
    select unnest(f.marks), substring(f.id from 1 for 14) || substring(int4send(x.epoch) from 3 for 2)
    from unnest(p_ended) x join {schema}.follows f on f.job = any(array[x.id]) and f.state = x.state
    where cardinality(f.marks) > 0
        and substring(f.id from 1 for 14) || substring(int4send(x.epoch) from 3 for 2) = any(v_made)
    on conflict do nothing;
    return coalesce(v_ready, '{}');
end
$$;
