-- finish: live -> succeeded | dead | cancelled, the one door into a final state; the caller has locked the rows
-- Moves each row to history, ends its bucket holds, resolves its edges, and goes on with the children this cancels.
-- returns the queues in which a dependent became ready
create function {schema}.finish_v1(p_endings {schema}.ending_v1[], p_now bigint) returns text[] language plpgsql as $$
declare
    v_endings {schema}.ending_v1[] := p_endings;
    v_ids bytea[];
    v_children bytea[];
    v_ready text[];
    v_woken text[] := '{}';
begin
    while cardinality(v_endings) > 0 loop
        v_ids := array(select x.id from unnest(v_endings) x);
        with gone as (
            delete from {schema}.jobs j using unnest(v_endings) x where j.id = x.id
            returning j.*, x.state as final, x.reason, x.result, x.error, x.run_us
        ), buried as (
            insert into {schema}.dead
            select id, final, reason, task, queue, home, parked, lane, priority, seq, due, expires, token, worker, attempt,
                   epoch, crashes, crash_limit, early, ordered, buckets, enqueued, started, p_now, run_us, progress, result,
                   error, record
            from gone where final = 'dead'
        )
        insert into {schema}.finished
        select id, final, reason, task, queue, home, parked, lane, priority, seq, due, expires, token, worker, attempt,
               epoch, crashes, crash_limit, early, ordered, buckets, enqueued, started, p_now, run_us, progress, result,
               error, record
        from gone where final <> 'dead';

        delete from {schema}.holds where job = any(v_ids);
        delete from {schema}.edges where child = any(v_ids);
        v_children := array(select distinct e.child from {schema}.edges e where e.parent = any(v_ids));
        exit when cardinality(v_children) = 0;

        perform 1 from {schema}.jobs j where j.id = any(v_children) order by j.id for update;
        -- A new statement: it sees what the last holder of these rows wrote. Two acks of one join both get here, one after the other.
        with met as (
            delete from {schema}.edges e using unnest(v_endings) x where e.parent = x.id
            returning e.child, e.policy = 'fail' and x.state <> 'succeeded' as broken
        ), tally as (
            select child, count(*)::integer as n, bool_or(broken) as broken from met group by child
        ), freed as (
            update {schema}.jobs j
            set deps = j.deps - t.n,
                state = case when j.deps > t.n then 'blocked' when j.due > p_now then 'scheduled' else 'ready' end,
                due = case when j.deps > t.n or j.due > p_now then j.due end,
                seq = case when j.deps > t.n or j.due > p_now then j.seq else nextval('{schema}.seq') end
            from tally t
            where j.id = t.child and not t.broken
            returning j.queue, j.state
        )
        select array(select row(t.child, 'cancelled', 'parent', null, null, 0)::{schema}.ending_v1 from tally t where t.broken),
               array(select distinct f.queue from freed f where f.state = 'ready')
        into v_endings, v_ready;
        v_woken := v_woken || v_ready;
    end loop;
    return v_woken;
end
$$;
