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
            id, state, task, queue, home, lane, priority, seq, due, expires, crash_limit, early, keep, enqueued, record,
            followed
        )
        select n.own, case when n.due > p_now then {SCHEDULED} else {READY} end, n.task, n.queue, n.home, n.home, n.priority,
            case when n.due > p_now then 0 else nextval('{schema}.seq') end, case when n.due > p_now then n.due end,
            p_now + n.expires_in, n.crash_limit, n.early, n.keep, p_now, n.record, n.followed
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
    perform {schema}.store_follow_ups_v1(n.own, n.follows, true) from (
        select f.follows, substring(f.id from 1 for 14) || substring(int4send(x.epoch) from 3 for 2) as own
        from unnest(p_ended) x join {schema}.follow_ups f on f.job = any(array[x.id]) and f.state = x.state
        where f.follows is not null
    ) n
    where n.own = any(v_made);
    return coalesce(v_ready, '{}');
end
$$;

-- store_follow_ups: store follow-up jobs beside the job p_job, which is inserted now.
-- p_inner: p_job is a follow-up job. Then their records and marks have a placeholder for its id, and their ids are mixed
-- with its id: see stores/shared/follow_ups.py. The records are hex, and so is the text that is replaced in them
create function {schema}.store_follow_ups_v1(p_job bytea, p_rows jsonb, p_inner boolean) returns void language plpgsql as $$
declare
    v_hex text := case when p_inner then encode(p_job, 'hex') else {ENDED_JOB_HEX} end;
    v_text text := encode(convert_to(v_hex::uuid::text, 'UTF8'), 'hex');
begin
    insert into {schema}.follow_ups (
        job, state, n, id, task, queue, home, priority, delay, run_at, expires_in, crash_limit, early, keep, marks, record,
        followed, follows
    )
    select p_job, f."on", f.n, case when not p_inner then f.own else substring(f.own from 1 for {KEPT_BYTES})
            || substring(sha256(p_job || f.own) from 1 for {MIXED_BYTES}) || substring(f.own from {KEPT_BYTES} + {MIXED_BYTES} + 1)
            end,
        f.task, f.queue, f.home, f.priority, f.delay, f.run_at, f.expires_in, f.crashes, f.early, f.keep,
        array(select replace(m.mark, {ENDED_JOB_HEX}, v_hex) from unnest(f.marks) with ordinality as m(mark, n) order by m.n),
        decode(replace(f.record, encode(convert_to({ENDED_JOB_TEXT}, 'UTF8'), 'hex'), v_text), 'hex'), f.followed, f.follows
    from (
        select r.*, decode(r.id, 'hex') as own from jsonb_to_recordset(p_rows) as r(
            "on" text, n integer, id text, task text, queue text, home text, priority integer, delay bigint, run_at bigint,
            expires_in bigint, crashes integer, early boolean, keep bigint, marks text[], record text, followed smallint,
            follows jsonb
        )
    ) f
    on conflict do nothing;
end
$$;
