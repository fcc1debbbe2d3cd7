-- Follow-up jobs: (new) -> ready | scheduled in the step in which the job that they follow ends.

-- enqueue_follow_ups: insert the follow-up jobs of jobs that have just ended, unless they exist or existed.
-- The last two bytes of an id are the epoch of the job that it follows. returns the queues of those that are ready
create function {schema}.enqueue_follow_ups_v1(p_ended {schema}.ended_v1[], p_now bigint) returns text[] language plpgsql as $$
declare
    v_made bytea[];
    v_ready text[];
    v_special boolean;
begin
    with made as (
        insert into {schema}.jobs (
            id, state, task, queue, home, lane, priority, seq, due, expires, crash_limit, early, keep, enqueued, record
        )
        select n.own, case when n.due > p_now then {SCHEDULED} else {READY} end, n.task, n.queue, n.home, n.home, n.priority,
            case when n.due > p_now then 0 else nextval('{schema}.seq') end, case when n.due > p_now then n.due end,
            p_now + n.expires_in, n.crash_limit, n.early, n.keep, p_now, n.record
        from (
            select f.*, coalesce(f.run_at, p_now + f.delay) as due,
                substring(f.id from 1 for 14) || substring(int4send(x.epoch) from 3 for 2) as own
            from unnest(p_ended) x join {schema}.follow_ups f on f.job = any(array[x.id]) and f.state = x.state
            order by x.id, f.n
        ) n
        where not exists (select 1 from {schema}.finished h where h.id = any(array[n.own]))
            and not exists (select 1 from {schema}.dead d where d.id = any(array[n.own]))
        on conflict (id) do nothing
        returning id, queue, state
    )
    select array_agg(m.id), array_agg(m.queue) filter (where m.state = {READY}),
        exists (select 1 from {schema}.queues q where q.settings is not null)
    into v_made, v_ready, v_special from made m;
    if v_special then
        perform {schema}.apply_settings_v1(v_made);
    end if;
    insert into {schema}.marks (mark, job)
    select unnest(f.marks), substring(f.id from 1 for 14) || substring(int4send(x.epoch) from 3 for 2)
    from unnest(p_ended) x join {schema}.follow_ups f on f.job = any(array[x.id]) and f.state = x.state
    where cardinality(f.marks) > 0
        and substring(f.id from 1 for 14) || substring(int4send(x.epoch) from 3 for 2) = any(v_made)
    on conflict do nothing;
    return coalesce(v_ready, '{}');
end
$$;
