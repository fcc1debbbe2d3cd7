SET check_function_bodies = false;

CREATE SCHEMA mainspring_stored;

CREATE TYPE mainspring_stored.ack_v1 AS (
	n integer,
	id bytea,
	token bigint,
	outcome text,
	"to" text,
	reason text,
	delay bigint,
	due bigint,
	result bytea,
	error bytea,
	label text,
	refund boolean,
	park boolean
);

CREATE TYPE mainspring_stored.ended_v1 AS (
	id bytea,
	epoch integer,
	state text
);

CREATE TYPE mainspring_stored.ending_v1 AS (
	id bytea,
	state text,
	reason text,
	result bytea,
	error bytea,
	label text,
	note text,
	refund integer
);

CREATE TYPE mainspring_stored.fate_v1 AS (
	id bytea,
	state text,
	reason text,
	charged boolean,
	due bigint
);

CREATE TYPE mainspring_stored.lane_v1 AS (
	lane text,
	suspect boolean,
	buckets text[],
	sizes integer[],
	priority integer,
	seq bigint
);

CREATE TYPE mainspring_stored.moved_v1 AS (
	done bytea[],
	token bigint[],
	woken text[]
);

CREATE FUNCTION mainspring_stored.ack_v1(p_worker text, p_acks mainspring_stored.ack_v1[], p_now bigint) RETURNS TABLE(kind text, id bytea, token bigint, queue text)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    v_ids bytea[] := array(select a.id from unnest(p_acks) a);
    v_good mainspring_stored.ack_v1[];
    v_applied integer[];
    v_woken text[];
begin
    -- Whoever moves running rows holds their worker's row, as we do; only a cancel order can still come between.
    perform 1 from mainspring_stored.jobs j where j.id = any(v_ids) order by j.id for update;
    v_good := array(
        select a from unnest(p_acks) a join mainspring_stored.jobs j on j.id = any(array[a.id])
        where j.token = a.token and j.state || '' = 'running' and j.worker || '' = p_worker
    );
    v_applied := array(select g.n from unnest(v_good) g);
    v_woken := mainspring_stored.hand_back_v1(v_good, p_now);
    v_woken := v_woken || mainspring_stored.finish_v1(
        array(
            select case when j.ordered is null
                then row(a.id, a."to", a.reason, a.result, a.error, a.label, null, a.refund::integer)::mainspring_stored.ending_v1
                else row(
                    a.id, 'cancelled', 'by_user', null, a.error, null, nullif(j.ordered, ''), a.refund::integer
                )::mainspring_stored.ending_v1 end
            from unnest(v_good) a join mainspring_stored.jobs j on j.id = any(array[a.id])
            where j.token = a.token and j.state || '' = 'running'
        ), p_now
    );
    return query select 'woken', null::bytea, null::bigint, w.queue from unnest(v_woken) w(queue);

    if cardinality(v_good) < cardinality(p_acks) then
        return query
        select case when coalesce(
                (
                    select t.worker = p_worker and t.acked and t.outcome = a.outcome from mainspring_stored.attempts t
                    where t.job = any(array[a.id]) and t.token = a.token
                ),
                -- A plain success leaves no attempt: its row in history tells, or that of the epoch after it.
                a.outcome = 'succeeded' and (exists (
                    select 1 from mainspring_stored.finished f
                    where f.id = any(array[a.id]) and f.token = a.token and f.worker = p_worker and f.state = 'succeeded'
                ) or exists (
                    select 1 from mainspring_stored.jobs j
                    where j.id = any(array[a.id]) and j.token = a.token and j.worker || '' = p_worker and j.state || '' <> 'running'
                ))
            ) then 'already' else 'stale' end, a.id, a.token, null
        from unnest(p_acks) a where a.n <> all(v_applied);
    end if;
end
$$;

CREATE FUNCTION mainspring_stored.act_v1(p_action text, p_ids bytea[], p_sources text[], p_reason text, p_priority integer, p_now bigint, p_states text[], p_queues text[], p_tasks text[], p_marks text[], p_reasons text[], p_errors text[], p_since bigint, p_until bigint, p_ended_before bigint) RETURNS TABLE(kind text, id bytea, note text, holder bytea)
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS $$
#variable_conflict use_column
declare
    v_now bigint;
    v_found mainspring_stored.ended_v1[];
    v_able bytea[];
    v_woken text[] := '{}';
    v_row record;
begin
    perform mainspring_stored.guard_v1();
    if p_action in ('retry', 'delete') then
        v_woken := mainspring_stored.lock_keys_of_v1(p_ids, p_action = 'retry', p_now);
    end if;
    perform 1 from mainspring_stored.jobs j where j.id = any(p_ids) order by j.id for update;
    perform 1 from mainspring_stored.finished f where f.id = any(p_ids) order by f.id for update;
    perform 1 from mainspring_stored.dead d where d.id = any(p_ids) order by d.id for update;
    perform 1 from mainspring_stored.jobs j where j.id = any(p_ids) order by j.id for update;  -- one that was retried while we waited
    v_now := mainspring_stored.now_v1(p_now);
    v_found := array(
        select row(a.id, 0, a.state)::mainspring_stored.ended_v1 from (
            select j.id, j.state, j.queue, j.task, null as reason, null as label, j.enqueued, null::bigint as finished
            from mainspring_stored.jobs j where j.id = any(p_ids)
            union all
            select f.id, f.state, f.queue, f.task, f.reason, null, f.enqueued, f.finished
            from mainspring_stored.finished f where f.id = any(p_ids)
            union all
            select d.id, d.state, d.queue, d.task, d.reason, coalesce(d.label, d.reason), d.enqueued, d.finished
            from mainspring_stored.dead d where d.id = any(p_ids)
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
                where not exists (select 1 from mainspring_stored.marks m where m.mark = any(array[asked.mark]) and m.job = any(array[a.id]))
            )
        order by array_position(p_ids, a.id)
    );
    return query select 'refused', x.id, x.state, null::bytea from unnest(v_found) x where x.state <> all(p_sources);
    v_able := array(select x.id from unnest(v_found) x where x.state = any(p_sources));
    if p_action = 'retry' then
        for v_row in select * from mainspring_stored.retry_v1(v_able, v_now) loop
            if v_row.holder is not null then
                return query select 'held', v_row.id, null::text, v_row.holder;
                v_able := array_remove(v_able, v_row.id);
            elsif v_row.woken is not null then
                v_woken := v_woken || v_row.woken;
            end if;
        end loop;
    else
        v_woken := v_woken || case p_action
            when 'cancel' then mainspring_stored.cancel_v1(v_able, p_reason, v_now)
            when 'run_now' then mainspring_stored.run_now_v1(v_able)
            when 'reprioritise' then mainspring_stored.reprioritise_v1(v_able, p_priority)
            when 'delete' then mainspring_stored.delete_v1(v_able, v_now)
        end;
    end if;
    return query select 'done', u.id, null::text, null::bytea from unnest(v_able) as u(id);
    return query select distinct 'woken', null::bytea, w.queue, null::bytea from unnest(v_woken) as w(queue);
end
$$;

CREATE FUNCTION mainspring_stored.among_v1(p_ids bytea[], p_some bytea[]) RETURNS boolean[]
    LANGUAGE plpgsql
    AS $$
begin
    return array(
        select bool_or(s.found) from (
            select u.id, u.n, false as found from unnest(p_ids) with ordinality as u(id, n)
            union all
            select o.id, null, true from unnest(p_some) as o(id)
        ) s
        group by s.id having min(s.n) is not null order by min(s.n)
    );
end
$$;

CREATE FUNCTION mainspring_stored.attempted_v1(p_ids bytea[], p_acks mainspring_stored.ack_v1[], p_cause text, p_now bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    if cardinality(p_ids) = 0 then
        return;
    end if;
    if p_cause is null then
        insert into mainspring_stored.attempts (job, token, epoch, attempt, worker, started, ended, outcome, acked, error)
        select j.id, j.token, j.epoch, j.attempt, j.worker, j.started, p_now, a.outcome, true, a.error
        from unnest(p_acks) a join mainspring_stored.jobs j on j.id = any(array[a.id])
        where j.id = any(p_ids)
        on conflict do nothing;
    else
        insert into mainspring_stored.attempts (job, token, epoch, attempt, worker, started, ended, outcome, acked)
        select j.id, j.token, j.epoch, j.attempt, j.worker, j.started, p_now, p_cause, false
        from mainspring_stored.jobs j where j.id = any(p_ids)
        on conflict do nothing;
    end if;
    delete from mainspring_stored.attempts t using (
        select u.id, (
            select o.token from mainspring_stored.attempts o where o.job = any(array[u.id]) order by o.token desc offset 100 limit 1
        ) as token
        from unnest(p_ids) as u(id)
    ) old
    where t.job = any(array[old.id]) and t.token <= old.token;
end
$$;

CREATE FUNCTION mainspring_stored.beat_v1(p_worker text[], p_new text[], p_queues text[], p_tasks text[], p_lease bigint[], p_info bytea[], p_now bigint) RETURNS TABLE(id text, number bigint)
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS $$
#variable_conflict use_column
declare
    v_now bigint;
    v_made text[];
begin
    perform 1 from mainspring_stored.workers w where w.id = any(p_worker) order by w.id for update;
    v_now := mainspring_stored.now_v1(p_now);
    with made as (
        insert into mainspring_stored.workers (id, number, started, seen, queues, tasks, lease, info)
        select r.id, 0, v_now, v_now, array(select jsonb_array_elements_text(r.queues::jsonb)),
            array(select jsonb_array_elements_text(r.tasks::jsonb)), r.lease, r.info
        from unnest(p_new, p_queues, p_tasks, p_lease, p_info) as r(id, queues, tasks, lease, info)
        order by r.id
        on conflict (id) do update set info = excluded.info where not workers.lost
        returning workers.id
    ) select array_agg(made.id) into v_made from made;
    return query
    update mainspring_stored.workers w set number = w.number + 1, seen = v_now
    where w.id = any(p_worker) and not w.lost
    returning w.id, w.number;
end
$$;

CREATE FUNCTION mainspring_stored.cancel_v1(p_ids bytea[], p_reason text, p_now bigint) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
begin
    update mainspring_stored.jobs j set ordered = coalesce(j.ordered, p_reason) where j.id = any(p_ids) and j.state || '' = 'running';
    return mainspring_stored.finish_v1(
        array(
            select row(j.id, 'cancelled', 'by_user', null, null, null, nullif(p_reason, ''), 0)::mainspring_stored.ending_v1
            from mainspring_stored.jobs j where j.id = any(p_ids) and j.state || '' <> 'running'
        ), p_now
    );
end
$$;

CREATE FUNCTION mainspring_stored.carried_v1(p_worker text, p_number bigint) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
begin
    return (
        select coalesce(sum(octet_length(j.record)), 0) from mainspring_stored.jobs j
        where j.state = 'running' and j.worker = p_worker and j.turn = p_number
    );
end
$$;

CREATE FUNCTION mainspring_stored.chunks_v1() RETURNS TABLE(name text, until bigint)
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
    select c.relname::text,
        (extract(epoch from to_date(substring(c.relname from 10), 'YYYYMMDD')::timestamp) * 1000000)::bigint + 86400000000
    from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'mainspring_stored.finished'::regclass and c.relname ~ '^finished_[0-9]{8}$'
$_$;

CREATE FUNCTION mainspring_stored.claim_above_v1(p_lanes text[], p_n integer, p_worker text, p_number bigint, p_now bigint, p_low_lane text[], p_low_priority integer[], p_low_seq bigint[], p_inline integer, p_room bigint) RETURNS TABLE(kind text, id bytea, token bigint, task text, queue text, lane text, priority integer, attempt integer, epoch integer, crashes integer, early boolean, enqueued bigint, expires bigint, record bytea, turn bigint, note text)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    v_part record;
    v_got integer;
    v_left integer := p_n;
    v_room bigint;
begin
    for v_part in
        -- For each lane: (above the first known], then each known one, and [between it and the next).
        with known as (
            select l.lane, l.priority, l.seq from unnest(p_low_lane, p_low_priority, p_low_seq) as l(lane, priority, seq)
            where l.lane = any(p_lanes)
        )
        select k.lane, k.priority as top, k.priority as bottom, k.seq from known k
        union all
        select k.lane, k.priority - 1, coalesce(
            (select max(o.priority) + 1 from known o where o.lane = k.lane and o.priority < k.priority), -2147483648
        ), null from known k
        union all
        select k.lane, 2147483647, max(k.priority) + 1, null from known k group by k.lane
        order by top desc, lane
    loop
        exit when v_left <= 0;
        v_room := p_room - mainspring_stored.carried_v1(p_worker, p_number);
        exit when v_room <= 0;
        return query select t.* from mainspring_stored.claim_line_v1(
            v_part.lane, v_part.top, v_part.bottom, v_part.seq, v_left, p_worker, p_number, p_now, p_inline, v_room
        ) t;
        get diagnostics v_got = row_count;
        v_left := v_left - v_got;
    end loop;
end
$$;

CREATE FUNCTION mainspring_stored.claim_line_v1(p_lane text, p_top integer, p_bottom integer, p_from bigint, p_n integer, p_worker text, p_number bigint, p_now bigint, p_inline integer, p_room bigint) RETURNS TABLE(kind text, id bytea, token bigint, task text, queue text, lane text, priority integer, attempt integer, epoch integer, crashes integer, early boolean, enqueued bigint, expires bigint, record bytea, turn bigint, note text)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    v_now bigint := mainspring_stored.now_v1(p_now);
begin
    return query
    with one as (
        select j.ctid as at, j.priority, j.seq, octet_length(j.record) as bytes from mainspring_stored.jobs j
        where p_from is not null and j.state = 'ready' and j.lane = p_lane and j.priority = p_top and j.seq >= p_from
            and (j.expires is null or j.expires > v_now)
        order by j.seq limit p_n for update skip locked
    ), several as (
        select j.ctid as at, j.priority, j.seq, octet_length(j.record) as bytes from mainspring_stored.jobs j
        where p_from is null and j.state = 'ready' and j.lane = p_lane and j.priority <= p_top and j.priority >= p_bottom
            and (j.expires is null or j.expires > v_now)
        order by j.priority desc, j.seq limit p_n for update skip locked
    ), locked as (
        select * from one union all select * from several
    ), picked as (
        select l.at, sum(l.bytes) over (order by l.priority desc, l.seq) - l.bytes as before from locked l
    ), taken as (
        update mainspring_stored.jobs j
        set state = 'running', token = greatest(j.token + 1, v_now), worker = p_worker, turn = p_number,
            attempt = j.attempt + 1, started = greatest((select mainspring_stored.now_v1(p_now)), j.enqueued)
        from picked p where j.ctid = p.at and p.before < p_room
        returning j.*
    )
    select 'claim', t.id, t.token, t.task, t.queue, t.lane::text, t.priority, t.attempt, t.epoch,
        t.crashes, t.early, t.enqueued, t.expires, case when octet_length(t.record) <= p_inline then t.record end, t.turn, null
    from taken t order by t.priority desc, t.seq;
end
$$;

CREATE FUNCTION mainspring_stored.delete_v1(p_ids bytea[], p_now bigint) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
declare
    v_live bytea[];
begin
    with gone as (
        delete from mainspring_stored.jobs j where j.id = any(p_ids) returning j.id
    )
    select coalesce(array_agg(g.id), '{}') into v_live from gone g;
    delete from mainspring_stored.finished f where f.id = any(p_ids);
    delete from mainspring_stored.dead d where d.id = any(p_ids);
    delete from mainspring_stored.edges where child = any(v_live);
    perform mainspring_stored.forget_v1(p_ids);
    return mainspring_stored.resolve_v1(v_live, array_fill(false, array[cardinality(v_live)]), p_now);
end
$$;

CREATE FUNCTION mainspring_stored.drop_chunk_v1(p_name text, p_before bigint) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '100ms'
    AS $$
declare
    v_full boolean;
begin
    if exists (select 1 from mainspring_stored.chunks_v1() c where c.name = p_name and c.until <= p_before) then
        execute format('select exists (select 1 from mainspring_stored.%I)', p_name) into v_full;
        if not v_full then
            execute format('drop table mainspring_stored.%I', p_name);
        end if;
    end if;
end
$$;

CREATE FUNCTION mainspring_stored.enqueue_plain_v1(p_batch bytea, p_now bigint, p_id bytea[], p_task text[], p_queue text[], p_home text[], p_priority integer[], p_delay bigint[], p_run_at bigint[], p_expires_in bigint[], p_crash_limit integer[], p_early boolean[], p_record bytea[]) RETURNS TABLE(id bytea, answer bytea, woken text)
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS $$
#variable_conflict use_column
declare
    v_now bigint;
    v_over boolean[];
    v_made bytea[];
    v_take boolean[];
begin
    if mainspring_stored.is_late_v1(p_batch, false, p_now) then
        -- First the place that jobs leave, then, in a new statement, the one they go to: the other way round one is missed.
        v_made := array(select j.id from mainspring_stored.jobs j where j.id = any(p_id));
        v_over := mainspring_stored.among_v1(p_id, v_made || mainspring_stored.over_v1(p_id));
    end if;
    v_now := mainspring_stored.now_v1(p_now);
    with made as (
        insert into mainspring_stored.jobs (
            id, state, task, queue, home, lane, priority, seq, due, expires, crash_limit, early, enqueued, record
        )
        select n.id, case when n.later then 'scheduled' else 'ready' end, coalesce(n.task, p_task[1]),
            coalesce(n.queue, p_queue[1]), coalesce(n.home, p_home[1]), coalesce(n.home, p_home[1]),
            coalesce(n.priority, p_priority[1]), case when n.later then 0 else nextval('mainspring_stored.seq') end,
            case when n.later then n.due end, v_now + n.expires_in, coalesce(n.crash_limit, p_crash_limit[1]),
            coalesce(n.early, p_early[1]), v_now, n.record
        from (
            select u.*, d.due, d.due > v_now as later
            from unnest(
                p_id, p_task, p_queue, p_home, p_priority, p_delay, p_run_at, p_expires_in, p_crash_limit, p_early, p_record
            ) with ordinality as u(id, task, queue, home, priority, delay, run_at, expires_in, crash_limit, early, record, n)
            cross join lateral (select coalesce(u.run_at, v_now + coalesce(u.delay, p_delay[1])) as due) d
            where v_over is null or not v_over[u.n]
            order by u.n
        ) n
        on conflict (id) do nothing
        returning jobs.id
    )
    select coalesce(array_agg(m.id), '{}') into v_made from made m;
    if cardinality(v_made) < cardinality(p_id) then
        v_take := mainspring_stored.among_v1(p_id, v_made);
        return query select u.id, u.id, null from unnest(p_id, v_take) as u(id, made) where not u.made;
    end if;
    if cardinality(p_queue) = 1 then
        p_queue := array_fill(p_queue[1], array[cardinality(p_id)]);
    end if;
    perform mainspring_stored.refuse_draining_v1(p_queue, v_take);
end
$$;

CREATE FUNCTION mainspring_stored.enqueue_v1(p_batch bytea, p_retry boolean, p_now bigint, p_id bytea[], p_task text[], p_queue text[], p_home text[], p_priority integer[], p_delay bigint[], p_run_at bigint[], p_expires_in bigint[], p_crash_limit integer[], p_early boolean[], p_record bytea[], p_keep bigint[], p_on smallint[], p_names text[], p_sizes text[], p_key bytea[], p_window bigint[], p_conflict text[], p_bucket_at integer[], p_bucket text[], p_size integer[], p_child_at integer[], p_parent bytea[], p_parent_at integer[], p_policy text[], p_mark_at integer[], p_mark text[], p_follows jsonb) RETURNS TABLE(id bytea, answer bytea, woken text)
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS $$
#variable_conflict use_column
declare
    v_now bigint;
    v_late boolean;
    v_over boolean[];
    v_take boolean[];
    v_waits integer[] := '{}';
    v_broken bytea[] := '{}';
    v_losers bytea[] := '{}';
    v_answered boolean[] := array_fill(false, array[cardinality(p_id)]);
    v_made bytea[];
    v_row record;
begin
    v_late := mainspring_stored.is_late_v1(p_batch, p_retry, p_now);
    -- First the place that jobs leave, then, in a new statement, the one they go to: the other way round one is missed.
    v_take := array(
        select not exists (select 1 from mainspring_stored.jobs j where j.id = any(array[u.id]))
        from unnest(p_id) with ordinality as u(id, n) order by u.n
    );
    if v_late then
        v_over := mainspring_stored.among_v1(p_id, mainspring_stored.over_v1(p_id));
        v_take := array(
            select t.take and not t.over from unnest(v_take, v_over) with ordinality as t(take, over, n) order by t.n
        );
    end if;
    if cardinality(p_key) > 0 then
        for v_row in select * from mainspring_stored.take_keys_v1(p_id, p_task, v_take, p_key, p_window, p_conflict, p_now) loop
            if v_row.holder is not null then
                v_take[v_row.at] := false;
                v_answered[v_row.at] := true;
                return query select p_id[v_row.at], v_row.holder, null::text;
            elsif v_row.loser is not null then
                v_losers := v_losers || v_row.loser;
            elsif v_row.woken is not null then
                return query select null::bytea, null::bytea, v_row.woken;
            end if;
        end loop;
    end if;
    perform mainspring_stored.size_buckets_v1(v_take, p_bucket_at, p_bucket, p_size);
    if cardinality(p_child_at) > 0 then
        perform 1 from mainspring_stored.jobs j where j.id = any(p_parent) order by j.id for key share;
        v_waits := array_fill(0, array[cardinality(p_id)]);
        -- A new statement: a parent whose end we waited for is found where it went.
        for v_row in select * from mainspring_stored.weigh_v1(p_id, v_take, p_child_at, p_parent, p_parent_at, p_policy) loop
            v_waits[v_row.at] := v_row.n;
            if v_row.broken then
                v_broken := v_broken || p_id[v_row.at];
            end if;
        end loop;
    end if;
    v_now := mainspring_stored.now_v1(p_now);

    with made as (
        insert into mainspring_stored.jobs (
            id, state, task, queue, home, lane, priority, seq, due, expires, crash_limit, early, deps, keep, key, follows,
            buckets, sizes, enqueued, record
        )
        select n.id, n.state, n.task, n.queue, n.home, n.home, n.priority,
            case when n.state = 'ready' then nextval('mainspring_stored.seq') else 0 end,
            case when n.state <> 'ready' and n.due > v_now then n.due end, v_now + n.expires_in, n.crash_limit, n.early,
            n.waits, n.keep, n.key, coalesce(n.follows, 0), n.names::text[], n.sizes::integer[], v_now, n.record
        from (
            select u.*, d.due, coalesce(u.deps, 0) as waits,
                case when u.deps > 0 then 'blocked' when d.due > v_now then 'scheduled' else 'ready' end as state
            from unnest(
                p_id, p_task, p_queue, p_home, p_priority, p_delay, p_run_at, p_expires_in, p_crash_limit, p_early, p_record,
                p_keep, p_key, p_on, p_names, p_sizes, v_waits
            ) with ordinality as u(
                id, task, queue, home, priority, delay, run_at, expires_in, crash_limit, early, record, keep, key, follows,
                names, sizes, deps, n
            )
            cross join lateral (select coalesce(u.run_at, v_now + u.delay) as due) d
            where v_take[u.n]
            order by u.n
        ) n
        on conflict (id) do nothing
        returning jobs.id
    )
    select coalesce(array_agg(m.id), '{}') into v_made from made m;
    if cardinality(v_made) < cardinality(p_id) then
        v_take := mainspring_stored.among_v1(p_id, v_made);
        return query select u.id, u.id, null::text from unnest(p_id, v_take, v_answered) as u(id, made, answered)
        where not u.made and not u.answered;
    end if;
    perform mainspring_stored.refuse_draining_v1(p_queue, v_take);

    insert into mainspring_stored.marks (mark, job)
    select u.mark, p_id[u.at] from unnest(p_mark_at, p_mark) as u(at, mark) where v_take[u.at]
    on conflict do nothing;
    if p_follows is not null then
        insert into mainspring_stored.follows
        select p_id[f.at], f."on", f.n, decode(f.id, 'hex'), f.task, f.queue, f.home, f.priority, f.delay, f.run_at,
            f.expires_in, f.crashes, f.early, f.keep, f.marks, decode(f.record, 'hex')
        from jsonb_to_recordset(p_follows) as f(
            at integer, "on" text, n integer, id text, task text, queue text, home text, priority integer, delay bigint,
            run_at bigint, expires_in bigint, crashes integer, early boolean, keep bigint, marks text[], record text
        )
        where v_take[f.at]
        on conflict do nothing;
    end if;
    if cardinality(p_child_at) > 0 then
        insert into mainspring_stored.edges (parent, child, policy)
        select e.parent, p_id[e.at], min(e.policy) from unnest(p_child_at, p_parent, p_policy) as e(at, parent, policy)
        where v_take[e.at] and exists (select 1 from mainspring_stored.jobs j where j.id = any(array[e.parent]))
        group by e.parent, p_id[e.at];
    end if;
    return query select null::bytea, null::bytea, w.queue from unnest(
        mainspring_stored.finish_v1(
            array(
                select row(j.id, 'cancelled', 'parent', null, null, null, null, 0)::mainspring_stored.ending_v1
                from mainspring_stored.jobs j where j.id = any(v_broken)
            ), v_now
        )
    ) as w(queue);
    return query select null::bytea, null::bytea, w.queue from unnest(
        mainspring_stored.finish_v1(
            array(
                select row(j.id, 'cancelled', 'superseded', null, null, null, null, 0)::mainspring_stored.ending_v1
                from mainspring_stored.jobs j where j.id = any(v_losers) and j.state || '' <> 'running'
            ), v_now
        )
    ) as w(queue);
end
$$;

CREATE FUNCTION mainspring_stored.enter_v1(p_batch bytea[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    perform pg_advisory_xact_lock(k.key) from (
        select hashtextextended('mainspring_stored' || encode(u.batch, 'hex'), 0) as key from unnest(p_batch) as u(batch) order by 1
    ) k;
    -- One of them may be a first try that something held back until its retry had been here: then each goes by itself.
    if exists (select 1 from mainspring_stored.retried r where r.batch = any(p_batch)) then
        raise exception 'a batch of these was sent again before' using errcode = 'MS001';
    end if;
end
$$;

CREATE FUNCTION mainspring_stored.finish_v1(p_endings mainspring_stored.ending_v1[], p_now bigint) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
begin
    if coalesce(cardinality(p_endings), 0) = 0 then
        return '{}';
    end if;
    return mainspring_stored.move_v1(p_endings, p_now) || mainspring_stored.resolve_v1(
        array(select x.id from unnest(p_endings) x), array(select x.state = 'succeeded' from unnest(p_endings) x), p_now
    );
end
$$;

CREATE FUNCTION mainspring_stored.fit_v1(p_buckets text[], p_gates text[], p_room integer[]) RETURNS integer
    LANGUAGE plpgsql IMMUTABLE
    AS $$
declare
    v_fit integer := 2147483647;
    v_name text;
begin
    if p_buckets is null then
        return v_fit;
    end if;
    foreach v_name in array p_buckets loop
        v_fit := least(v_fit, coalesce(p_room[array_position(p_gates, v_name)], 0));
    end loop;
    return v_fit;
end
$$;

CREATE FUNCTION mainspring_stored.follow_v1(p_ended mainspring_stored.ended_v1[], p_now bigint) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
declare
    v_made bytea[];
    v_ready text[];
begin
    with made as (
        insert into mainspring_stored.jobs (
            id, state, task, queue, home, lane, priority, seq, due, expires, crash_limit, early, keep, enqueued, record
        )
        select n.own, case when n.due > p_now then 'scheduled' else 'ready' end, n.task, n.queue, n.home, n.home, n.priority,
            case when n.due > p_now then 0 else nextval('mainspring_stored.seq') end, case when n.due > p_now then n.due end,
            p_now + n.expires_in, n.crash_limit, n.early, n.keep, p_now, n.record
        from (
            select f.*, coalesce(f.run_at, p_now + f.delay) as due,
                substring(f.id from 1 for 14) || substring(int4send(x.epoch) from 3 for 2) as own
            from unnest(p_ended) x join mainspring_stored.follows f on f.job = any(array[x.id]) and f.state = x.state
            order by x.id, f.n
        ) n
        where not exists (select 1 from mainspring_stored.finished h where h.id = any(array[n.own]))
            and not exists (select 1 from mainspring_stored.dead d where d.id = any(array[n.own]))
        on conflict (id) do nothing
        returning id, queue, state
    )
    select array_agg(m.id), array_agg(m.queue) filter (where m.state = 'ready') into v_made, v_ready from made m;
    insert into mainspring_stored.marks (mark, job)
    select unnest(f.marks), substring(f.id from 1 for 14) || substring(int4send(x.epoch) from 3 for 2)
    from unnest(p_ended) x join mainspring_stored.follows f on f.job = any(array[x.id]) and f.state = x.state
    where cardinality(f.marks) > 0
        and substring(f.id from 1 for 14) || substring(int4send(x.epoch) from 3 for 2) = any(v_made)
    on conflict do nothing;
    return coalesce(v_ready, '{}');
end
$$;

CREATE FUNCTION mainspring_stored.forget_v1(p_ids bytea[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    delete from mainspring_stored.attempts where job = any(p_ids);
    delete from mainspring_stored.logs where job = any(p_ids);
    delete from mainspring_stored.progress where job = any(p_ids);
    delete from mainspring_stored.items where job = any(p_ids);
    delete from mainspring_stored.marks where job = any(p_ids);
    delete from mainspring_stored.follows where job = any(p_ids);
    delete from mainspring_stored.keys where job = any(p_ids);
end
$$;

CREATE FUNCTION mainspring_stored.gates_v1(p_lanes mainspring_stored.lane_v1[], p_acked bytea[]) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
declare
    v_lanes mainspring_stored.lane_v1[] := array(select l from unnest(p_lanes) l where l.buckets is not null);
    v_names text[];
begin
    insert into mainspring_stored.buckets (name, size)
    select u.name, max(u.size) from unnest(v_lanes) l cross join unnest(l.buckets, l.sizes) as u(name, size)
    where not exists (select 1 from mainspring_stored.buckets b where b.name = any(array[u.name]))
    group by u.name order by u.name collate "C"
    on conflict (name) do nothing;
    v_names := array(
        select b.name from unnest(v_lanes) l cross join unnest(l.buckets) as asked(name)
        join mainspring_stored.buckets b on b.name = any(array[asked.name])
        where b.size > (select count(*) from mainspring_stored.holds h where h.bucket = b.name)
        union
        select unnest(j.buckets) from mainspring_stored.jobs j where j.id = any(p_acked)
        union
        select unnest(c.buckets) from mainspring_stored.edges e join mainspring_stored.jobs c on c.id = any(array[e.child]) where e.parent = any(p_acked)
    );
    perform 1 from mainspring_stored.buckets b where b.name = any(v_names) order by b.name for update;
    return v_names;
end
$$;

CREATE FUNCTION mainspring_stored.guard_v1() RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'mainspring needs read committed, the transaction is %', current_setting('transaction_isolation')
            using errcode = 'MS001';
    end if;
end
$$;

CREATE FUNCTION mainspring_stored.guilt_v1(p_crashes integer, p_limit integer) RETURNS integer
    LANGUAGE sql IMMUTABLE
    AS $$
    select case when p_crashes = 0 then 0 when p_crashes >= p_limit - 1 then 2 else 1 end
$$;

CREATE FUNCTION mainspring_stored.hand_back_v1(p_acks mainspring_stored.ack_v1[], p_now bigint) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
declare
    v_back bytea[];
    v_woken text[];
begin
    perform mainspring_stored.attempted_v1(
        array(
            select a.id from unnest(p_acks) a join mainspring_stored.jobs j on j.id = any(array[a.id])
            where a."to" <> 'succeeded' or j.ordered is not null
        ), p_acks, null, p_now
    );
    v_back := array(
        select a.id from unnest(p_acks) a join mainspring_stored.jobs j on j.id = any(array[a.id])
        where j.ordered is null and a."to" in ('ready', 'retrying', 'scheduled')
    );
    if cardinality(v_back) = 0 then
        return '{}';
    end if;
    with placed as materialized (
        select u.*, case when u."to" = 'ready' then nextval('mainspring_stored.seq') end as seq
        from (select x.* from unnest(p_acks) x where x.id = any(v_back) order by x.n) u
    ), moved as (
        update mainspring_stored.jobs j
        set state = a."to",
            attempt = j.attempt - a.refund::integer,
            parked = j.parked or a.park,
            lane = mainspring_stored.lane_of_v1(j.home, j.task, j.crashes, j.crash_limit, j.parked or a.park),
            due = case when a."to" <> 'ready' then coalesce(a.due, p_now + a.delay) end,
            seq = coalesce(a.seq, j.seq),
            turn = null
        from placed a
        where j.id = any(array[a.id])
        returning j.queue, j.state
    )
    select array_agg(distinct m.queue) filter (where m.state = 'ready') into v_woken from moved m;
    delete from mainspring_stored.holds where job = any(v_back);
    return coalesce(v_woken, '{}');
end
$$;

CREATE FUNCTION mainspring_stored.heads_by_age_v1(p_lanes mainspring_stored.lane_v1[], p_n integer, p_now bigint) RETURNS TABLE(id bytea, buckets text[])
    LANGUAGE plpgsql
    AS $$
begin
    return query
    with recursive levels as (
        select l.lane, n.priority from unnest(p_lanes) l cross join lateral (
            select j.priority from mainspring_stored.jobs j where j.state = 'ready' and j.lane = l.lane
            order by j.priority desc limit 1
        ) n
        union all
        select v.lane, n.priority from levels v cross join lateral (
            select j.priority from mainspring_stored.jobs j
            where j.state = 'ready' and j.lane = v.lane and j.priority < v.priority
            order by j.priority desc limit 1
        ) n
    )
    select h.id, h.buckets from levels v cross join lateral (
        select j.id, j.buckets, j.seq from mainspring_stored.jobs j
        where j.state = 'ready' and j.lane = v.lane and j.priority = v.priority
            and (j.expires is null or j.expires > p_now)
        order by j.seq limit p_n
    ) h order by h.seq;
end
$$;

CREATE FUNCTION mainspring_stored.heads_v1(p_lanes text[]) RETURNS TABLE(lane text, priority integer, seq bigint)
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS $$
#variable_conflict use_column
declare
    v_last bigint := coalesce(pg_sequence_last_value('mainspring_stored.seq'::regclass), 0);
begin
    return query
    select l.lane, coalesce(h.priority, 0), coalesce(h.seq, v_last + 1) from unnest(p_lanes) as l(lane)
    left join lateral (
        select j.priority, j.seq from mainspring_stored.jobs j where j.state = 'ready' and j.lane = l.lane
        order by j.priority desc, j.seq limit 1
    ) h on true;
end
$$;

CREATE FUNCTION mainspring_stored.holder_v1(p_hash bytea, p_again boolean, p_now bigint) RETURNS bytea
    LANGUAGE plpgsql
    AS $$
begin
    return (
        select k.job from mainspring_stored.keys k
        where k.hash = p_hash and (
            p_again or k.until > p_now or exists (select 1 from mainspring_stored.jobs j where j.id = any(array[k.job]))
        )
    );
end
$$;

CREATE FUNCTION mainspring_stored.is_late_v1(p_batch bytea, p_retry boolean, p_now bigint) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
begin
    perform pg_advisory_xact_lock(hashtextextended('mainspring_stored' || encode(p_batch, 'hex'), 0));
    if p_retry then
        insert into mainspring_stored.retried (batch, at) values (p_batch, mainspring_stored.now_v1(p_now)) on conflict do nothing;
    end if;
    return p_retry or exists (select 1 from mainspring_stored.retried r where r.batch = p_batch);
end
$$;

CREATE FUNCTION mainspring_stored.lane_of_v1(p_home text, p_task text, p_crashes integer, p_limit integer, p_parked boolean) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
    select p_home || case when p_crashes > 0 and p_crashes >= p_limit - 1 then '!' else '' end
        || case when p_parked then '?' || p_task else '' end
$$;

CREATE FUNCTION mainspring_stored.lanes_v1(p_bases text[], p_tasks text[], p_known text[]) RETURNS mainspring_stored.lane_v1[]
    LANGUAGE plpgsql
    AS $$
declare
    v_lanes mainspring_stored.lane_v1[];
begin
    with recursive hops as (
        select b.base, n.* from (
            select distinct u.base, u.base || case when u.base = any(p_known) then chr(1) else '' end as start
            from unnest(p_bases) as u(base)
        ) b cross join lateral (
            select j.lane, j.crashes > 0 and j.crashes >= j.crash_limit - 1 as suspect, j.buckets, j.sizes, j.parked, j.task,
                j.priority, j.seq
            from mainspring_stored.jobs j
            where j.state = 'ready' and j.lane >= b.start and j.lane < b.base || '@'
            order by j.lane, j.priority desc, j.seq limit 1
        ) n
        union all
        select h.base, n.* from hops h cross join lateral (
            select j.lane, j.crashes > 0 and j.crashes >= j.crash_limit - 1 as suspect, j.buckets, j.sizes, j.parked, j.task,
                j.priority, j.seq
            from mainspring_stored.jobs j
            where j.state = 'ready' and j.lane > h.lane and j.lane < h.base || '@'
            order by j.lane, j.priority desc, j.seq limit 1
        ) n
    )
    select array_agg(row(h.lane, h.suspect, h.buckets, h.sizes, h.priority, h.seq)::mainspring_stored.lane_v1) into v_lanes
    from hops h where not h.parked or h.task = any(p_tasks);
    return coalesce(v_lanes, '{}');
end
$$;

CREATE FUNCTION mainspring_stored.let_go_v1(p_job bytea) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    update mainspring_stored.finished f set drop_at = case when f.keep is not null then f.finished + least(f.keep, 4611686018427387904) end
    where f.id = p_job and f.drop_at is not null;
    update mainspring_stored.dead d set drop_at = null where d.id = p_job and d.drop_at is not null;
end
$$;

CREATE FUNCTION mainspring_stored.lock_keys_of_v1(p_ids bytea[], p_make boolean, p_now bigint) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
declare
    v_hashes bytea[] := array(
        select j.key from mainspring_stored.jobs j where j.id = any(p_ids) and j.key is not null
        union
        select f.key from mainspring_stored.finished f where f.id = any(p_ids) and f.key is not null
        union
        select d.key from mainspring_stored.dead d where d.id = any(p_ids) and d.key is not null
    );
begin
    if cardinality(v_hashes) = 0 then
        return '{}';
    elsif p_make then
        return mainspring_stored.lock_keys_v1(v_hashes, p_now);
    end if;
    perform 1 from mainspring_stored.keys k where k.hash = any(v_hashes) order by k.hash for update;
    return '{}';
end
$$;

CREATE FUNCTION mainspring_stored.lock_keys_v1(p_hash bytea[], p_now bigint) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
declare
    v_hashes bytea[] := array(select distinct h from unnest(p_hash) h order by h);
    v_locked integer;
begin
    loop
        insert into mainspring_stored.keys (hash) select h from unnest(v_hashes) h on conflict do nothing;
        perform 1 from mainspring_stored.keys k where k.hash = any(v_hashes) order by k.hash for update;
        get diagnostics v_locked = row_count;
        exit when v_locked = cardinality(v_hashes);  -- else one was deleted with its job in between
    end loop;
    return mainspring_stored.finish_v1(
        array(
            select row(late.id, 'cancelled', 'expired', null, null, null, null, 0)::mainspring_stored.ending_v1 from (
                select j.id from mainspring_stored.keys k join mainspring_stored.jobs j on j.id = any(array[k.job])
                where k.hash = any(v_hashes) and j.state || '' <> 'running' and j.expires <= mainspring_stored.now_v1(p_now)
                order by j.id for update of j
            ) late
        ), mainspring_stored.now_v1(p_now)
    );
end
$$;

CREATE FUNCTION mainspring_stored.lows_v1(p_worker text, p_number bigint, p_lanes text[], p_low_lane text[], p_low_priority integer[], p_last bigint, p_n bigint) RETURNS TABLE(lane text, priority integer, seq bigint)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    v_got bigint;
begin
    select count(*) into v_got from mainspring_stored.jobs j where j.state = 'running' and j.worker = p_worker and j.turn = p_number;
    return query
    select k.lane, k.priority, coalesce(c.seq, p_last + 1) from (
        select l.lane, 0 as priority from unnest(p_lanes) as l(lane)
        union
        select l.lane, l.priority from unnest(p_low_lane, p_low_priority) as l(lane, priority) where l.lane = any(p_lanes)
        union
        select j.lane::text, j.priority from mainspring_stored.jobs j
        where j.state = 'running' and j.worker = p_worker and j.turn = p_number and j.lane = any(p_lanes)
    ) k left join lateral (
        select min(j.seq) as seq from mainspring_stored.jobs j
        where j.state = 'running' and j.worker = p_worker and j.turn = p_number and j.lane = k.lane and j.priority = k.priority
    ) c on true
    where c.seq is not null or v_got < p_n;
end
$$;

CREATE FUNCTION mainspring_stored.make_chunks_v1(p_from bigint, p_days integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '100ms'
    AS $$
declare
    c_day constant bigint := 86400000000;
    v_day bigint;
    v_name text;
    v_made integer := 0;
begin
    if not pg_try_advisory_xact_lock(hashtextextended('mainspring chunks mainspring_stored', 0)) then
        return 0;
    end if;
    for v_day in p_from / c_day .. p_from / c_day + least(p_days, 400) loop
        v_name := 'finished_' || to_char(to_timestamp(v_day * 86400) at time zone 'UTC', 'YYYYMMDD');
        continue when to_regclass('mainspring_stored.' || v_name) is not null;
        begin
            execute format('create table mainspring_stored.%I (like mainspring_stored.finished including defaults including constraints)', v_name);
            execute format(
                'alter table mainspring_stored.finished attach partition mainspring_stored.%I for values from (%s) to (%s)',
                v_name, v_day * c_day, (v_day + 1) * c_day
            );
            v_made := v_made + 1;
        exception
            -- jobs of that day lie among the rest already; or somebody is in the way
            when check_violation or lock_not_available then null;
        end;
    end loop;
    return v_made;
end
$$;

CREATE FUNCTION mainspring_stored.modes_lock_v1() RETURNS bigint
    LANGUAGE sql IMMUTABLE
    AS $$
    select hashtextextended('mainspring modes mainspring_stored', 0)
$$;

CREATE FUNCTION mainspring_stored.move_v1(p_endings mainspring_stored.ending_v1[], p_now bigint) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
declare
    v_ids bytea[] := array(select x.id from unnest(p_endings) x);
    v_followed mainspring_stored.ended_v1[];
begin
    with gone as (
        delete from mainspring_stored.jobs j using unnest(p_endings) x where j.id = any(array[x.id])
        returning j.*, x.state as final, x.reason, x.result, x.error, x.label, x.note, coalesce(x.refund, 0) as refund
    ), buried as (
        insert into mainspring_stored.dead (
            seq, token, enqueued, finished, priority, attempt, epoch, crashes, crash_limit, follows, early, id, state, task,
            queue, home, lane, record, worker, started, result, error, expires, keep, key, reason, note, label, buckets, sizes
        )
        select seq, token, enqueued, p_now, priority, attempt - refund, epoch, crashes, crash_limit, follows, early, id, final,
            task, queue, home, lane, record, worker, started, result, error, expires, keep, key, reason, note, label, buckets,
            sizes
        from gone where final = 'dead'
    ), kept as (
        insert into mainspring_stored.finished (
            seq, token, enqueued, finished, priority, attempt, epoch, crashes, crash_limit, follows, early, id, state, task,
            queue, home, lane, record, worker, started, result, error, expires, keep, drop_at, key, reason, note, buckets, sizes
        )
        select seq, token, enqueued, p_now, priority, attempt - refund, epoch, crashes, crash_limit, follows, early, id, final,
            task, queue, home, lane, record, worker, started, result, error, expires, keep,
            case when keep is not null then p_now + least(keep, 4611686018427387904) end, key, reason, note, buckets, sizes
        from gone where final <> 'dead'
    )
    select array_agg(row(id, epoch, final)::mainspring_stored.ended_v1) into v_followed from gone where follows > 0;
    delete from mainspring_stored.holds where job = any(v_ids);
    delete from mainspring_stored.edges where child = any(v_ids);
    return case when v_followed is null then '{}' else mainspring_stored.follow_v1(v_followed, p_now) end;
end
$$;

CREATE FUNCTION mainspring_stored.now_v1(p_now bigint) RETURNS bigint
    LANGUAGE sql
    AS $$
    select coalesce(p_now, (extract(epoch from clock_timestamp()) * 1000000)::bigint)
$$;

CREATE FUNCTION mainspring_stored.old_chunk_v1(p_before bigint, p_now bigint) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
    v_name text;
    v_held boolean;
begin
    for v_name in select c.name from mainspring_stored.chunks_v1() c where c.until <= p_before order by c.until loop
        execute format(
            'select exists (select 1 from mainspring_stored.%1$I where drop_at > $1) or exists ('
            'select 1 from mainspring_stored.keys k join mainspring_stored.%1$I f on f.id = k.job where k.until > $1)', v_name
        ) into v_held using mainspring_stored.now_v1(p_now);
        if not v_held then
            return v_name;
        end if;
    end loop;
    return null;
end
$_$;

CREATE FUNCTION mainspring_stored.oldest_snapshot_v1() RETURNS TABLE(pid integer, seconds double precision)
    LANGUAGE sql STABLE
    AS $$
    select a.pid, extract(epoch from clock_timestamp() - a.xact_start)::double precision from pg_stat_activity a
    where a.datname = current_database() and a.backend_xmin is not null and a.xact_start is not null and a.pid <> pg_backend_pid()
    order by age(a.backend_xmin) desc limit 1
$$;

CREATE FUNCTION mainspring_stored.over_v1(p_ids bytea[]) RETURNS bytea[]
    LANGUAGE plpgsql STABLE
    AS $$
begin
    return array(
        select f.id from mainspring_stored.finished f where f.id = any(p_ids)
        union all
        select d.id from mainspring_stored.dead d where d.id = any(p_ids)
    );
end
$$;

CREATE FUNCTION mainspring_stored.pick_v1(p_lanes mainspring_stored.lane_v1[], p_n integer, p_oldest integer, p_gates text[], p_now bigint) RETURNS bytea[]
    LANGUAGE plpgsql
    AS $$
declare
    v_limited boolean := exists (select 1 from unnest(p_lanes) l where l.buckets is not null);
    v_room integer[] := case when cardinality(p_gates) > 0 then mainspring_stored.room_v1(p_gates) end;
    v_head record;
    v_lane mainspring_stored.lane_v1;
    v_chosen bytea[] := '{}';
    v_fit integer;
    v_contended boolean;
    v_got bytea[];
    v_picked bytea[] := '{}';
    v_rest bytea[] := '{}';
begin
    if p_oldest > 0 then
        for v_head in
            select * from mainspring_stored.heads_by_age_v1(p_lanes, least(p_n, p_oldest), p_now)
        loop
            exit when cardinality(v_picked) >= least(p_n, p_oldest);
            if mainspring_stored.fit_v1(v_head.buckets, p_gates, v_room) > 0 then
                v_got := array(
                    select j.id from mainspring_stored.jobs j where j.id = v_head.id and j.state || '' = 'ready' for update skip locked
                );
                v_picked := v_picked || v_got;
                v_room := mainspring_stored.use_v1(v_head.buckets, cardinality(v_got), p_gates, v_room);
            end if;
        end loop;
    end if;

    if cardinality(p_lanes) > 1 and cardinality(v_picked) < p_n then
        if v_limited then
            for v_head in
                select h.* from unnest(p_lanes) l cross join lateral (
                    select j.id, j.buckets, j.priority, j.seq from mainspring_stored.jobs j
                    where j.state = 'ready' and j.lane = l.lane and (j.expires is null or j.expires > p_now)
                    order by j.priority desc, j.seq limit p_n
                ) h order by h.priority desc, h.seq
            loop
                exit when cardinality(v_picked) + cardinality(v_chosen) >= p_n;
                continue when v_head.id = any(v_picked);
                if mainspring_stored.fit_v1(v_head.buckets, p_gates, v_room) > 0 then
                    v_chosen := v_chosen || v_head.id;
                    v_room := mainspring_stored.use_v1(v_head.buckets, 1, p_gates, v_room);
                end if;
            end loop;
        else
            v_chosen := array(
                select h.id from unnest(p_lanes) l cross join lateral (
                    select j.id, j.priority, j.seq from mainspring_stored.jobs j
                    where j.state = 'ready' and j.lane = l.lane and (j.expires is null or j.expires > p_now)
                        and j.id <> all(v_picked)
                    order by j.priority desc, j.seq limit p_n
                ) h order by h.priority desc, h.seq limit p_n - cardinality(v_picked)
            );
        end if;
        v_rest := array(
            select j.id from mainspring_stored.jobs j where j.id = any(v_chosen) and j.state || '' = 'ready' for update skip locked
        );
    end if;

    -- One lane only, or others were quicker: go lane by lane past what they have locked. The room taken by a head
    -- that was lost to them is not given back here; the next turn sees it.
    v_contended := cardinality(p_lanes) = 1 or cardinality(v_rest) < cardinality(v_chosen);
    foreach v_lane in array p_lanes loop
        v_fit := least(p_n - cardinality(v_picked) - cardinality(v_rest), mainspring_stored.fit_v1(v_lane.buckets, p_gates, v_room));
        exit when not v_contended;
        continue when v_fit <= 0;
        v_got := array(
            select j.id from mainspring_stored.jobs j
            where j.state = 'ready' and j.lane = v_lane.lane and (j.expires is null or j.expires > p_now)
                and j.id <> all(v_picked || v_rest)
            order by j.priority desc, j.seq limit v_fit for update skip locked
        );
        v_rest := v_rest || v_got;
        v_room := mainspring_stored.use_v1(v_lane.buckets, cardinality(v_got), p_gates, v_room);
    end loop;

    return v_picked || array(
        select j.id from mainspring_stored.jobs j where j.id = any(v_rest) order by j.priority desc, j.seq
    );
end
$$;

CREATE FUNCTION mainspring_stored.promote_v1(p_limit integer, p_now bigint) RETURNS TABLE(now bigint, promoted integer, ended bytea[], queues text[], woken text[], next_due bigint)
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS $$
declare
    v_now bigint := mainspring_stored.now_v1(p_now);
    v_expired bytea[];
    v_due bytea[];
    v_queues text[];
    v_woken text[];
begin
    perform mainspring_stored.guard_v1();
    v_expired := array(
        select j.id from mainspring_stored.jobs j where j.expires is not null and j.state <> 'running' and j.expires <= v_now
        order by j.expires limit p_limit for update skip locked
    );
    v_woken := mainspring_stored.finish_v1(
        array(select row(x.id, 'cancelled', 'expired', null, null, null, null, 0)::mainspring_stored.ending_v1 from unnest(v_expired) x(id)), v_now
    );
    v_due := array(
        select j.id from mainspring_stored.jobs j where j.state in ('scheduled', 'retrying') and j.due <= v_now
            and (j.expires is null or j.expires > v_now)
        order by j.due, j.seq limit p_limit for update skip locked
    );
    with placed as materialized (  -- once and in order, whichever way the join goes
        select d.id, nextval('mainspring_stored.seq') as seq
        from (select * from unnest(v_due) with ordinality as x(id, n) order by x.n) d
    ), ready as (
        update mainspring_stored.jobs j set state = 'ready', due = null, seq = u.seq
        from placed u
        where j.id = any(array[u.id])
        returning j.queue
    )
    select array(select distinct r.queue from ready r order by r.queue) into v_queues;
    return query select v_now, cardinality(v_due), v_expired, v_queues, v_woken,
        least(
            (select j.due from mainspring_stored.jobs j where j.state in ('scheduled', 'retrying') order by j.due limit 1),
            (select j.expires from mainspring_stored.jobs j where j.expires is not null and j.state <> 'running'
             order by j.expires limit 1)
        );
end
$$;

CREATE FUNCTION mainspring_stored.prune_v1(p_limit integer, p_now bigint, p_keep bigint, p_keep_count integer, p_keep_at_least bigint, p_keep_dead bigint, p_keep_dead_count integer, p_keep_workers bigint) RETURNS integer
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS $$
declare
    c_rounds constant integer := 10;
    v_now bigint := mainspring_stored.now_v1(p_now);
    v_young bigint := v_now - p_keep_at_least;
    v_before bigint;
    v_dead_before bigint;
    v_ids bytea[];
    v_dead bytea[];
    v_gone bytea[];
    v_n integer := 0;
begin
    perform mainspring_stored.guard_v1();
    v_before := least(v_young, greatest(v_now - p_keep, case when p_keep_count <= 0 then v_now + 1 else (
        select f.finished from mainspring_stored.finished f where f.drop_at is null order by f.finished desc offset p_keep_count - 1 limit 1
    ) end));
    v_dead_before := least(v_young, greatest(v_now - p_keep_dead, case when p_keep_dead_count <= 0 then v_now + 1 else (
        select d.finished from mainspring_stored.dead d order by d.finished desc offset p_keep_dead_count - 1 limit 1
    ) end));
    for v_round in 1 .. c_rounds loop
        v_ids := array(select f.id from mainspring_stored.finished f where f.drop_at <= v_now order by f.drop_at limit p_limit - v_n);
        v_ids := v_ids || array(
            select f.id from mainspring_stored.finished f where f.finished < v_before and f.drop_at is null
            order by f.finished limit p_limit - v_n - cardinality(v_ids)
        );
        v_dead := array(
            select d.id from mainspring_stored.dead d where d.drop_at <= v_now
            order by d.drop_at limit p_limit - v_n - cardinality(v_ids)
        );
        v_dead := v_dead || array(
            select d.id from mainspring_stored.dead d where d.finished < v_dead_before and d.drop_at is null
            order by d.finished limit p_limit - v_n - cardinality(v_ids) - cardinality(v_dead)
        );
        exit when cardinality(v_ids) + cardinality(v_dead) = 0;
        perform mainspring_stored.lock_keys_of_v1(v_ids || v_dead, false, v_now);
        perform mainspring_stored.set_aside_v1(v_ids, v_dead, v_now);
        -- A new statement: somebody may have retried one meanwhile, or it took its key again.
        with ended as (
            delete from mainspring_stored.finished f
            where f.id = any(v_ids) and (f.drop_at is null or f.drop_at <= v_now) and (
                f.drop_at is not null and f.keep is not null or f.finished < v_before
            )
            returning f.id
        ), buried as (
            delete from mainspring_stored.dead d
            where d.id = any(v_dead) and (d.drop_at is null or d.drop_at <= v_now) and d.finished < v_dead_before
            returning d.id
        )
        select array(select id from ended union all select id from buried) into v_gone;
        perform mainspring_stored.forget_v1(v_gone);
        v_n := v_n + cardinality(v_gone);
        -- Those whose window is over and that are to be kept longer now than when they were set aside.
        update mainspring_stored.finished f set drop_at = null where f.id = any(v_ids) and f.drop_at <= v_now;
        update mainspring_stored.dead d set drop_at = null where d.id = any(v_dead) and d.drop_at <= v_now;
    end loop;
    perform mainspring_stored.tidy_v1(v_now, p_keep_workers);
    return v_n;
end
$$;

CREATE FUNCTION mainspring_stored.put_v1(p_kind text, p_name text, p_version bigint, p_data bytea) RETURNS TABLE(version bigint, data bytea)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
begin
    insert into mainspring_stored.docs (kind, name, version, data) values (p_kind, p_name, p_version, p_data)
    on conflict (kind, name) do update set version = excluded.version, data = excluded.data
    where excluded.version >= docs.version;
    return query select d.version, d.data from mainspring_stored.docs d where d.kind = p_kind and d.name = p_name;
end
$$;

CREATE FUNCTION mainspring_stored.refuse_draining_v1(p_queue text[], p_take boolean[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    v_queue text;
begin
    if not exists (select 1 from mainspring_stored.queues q where q.mode = 'draining') then
        return;
    end if;
    select u.queue into v_queue from unnest(p_queue) with ordinality as u(queue, n)
    where (p_take is null or p_take[u.n])
        and exists (select 1 from mainspring_stored.queues q where q.name = any(array[u.queue]) and q.mode = 'draining')
    limit 1;
    if v_queue is not null then
        raise exception '%', v_queue using errcode = 'MS003';
    end if;
end
$$;

CREATE FUNCTION mainspring_stored.release_v1(p_worker text, p_cause text, p_delays bigint[], p_now bigint) RETURNS TABLE(id bytea, state text, woken text)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    v_blamed integer;
    v_held integer;
    v_fates mainspring_stored.fate_v1[];
    v_ids bytea[];
begin
    perform 1 from mainspring_stored.jobs j where j.worker = p_worker and j.state = 'running' order by j.id for update;
    v_held := (select count(*) from mainspring_stored.jobs j where j.worker = p_worker and j.state = 'running');
    v_blamed := (
        select coalesce(min(mainspring_stored.guilt_v1(j.crashes, j.crash_limit)), 0) from mainspring_stored.jobs j
        where j.worker = p_worker and j.state = 'running' and j.crashes > 0
    );
    v_fates := array(
        select case
            when j.ordered is not null then row(j.id, 'cancelled', 'by_user', c.charged, null)::mainspring_stored.fate_v1
            when j.early or c.charged and c.named and j.crashes + 1 >= j.crash_limit
                then row(j.id, 'dead', 'crashed', c.charged, null)::mainspring_stored.fate_v1
            when c.charged and c.delay > 0 then row(j.id, 'retrying', null, true, p_now + c.delay)::mainspring_stored.fate_v1
            else row(j.id, 'ready', null, c.charged, null)::mainspring_stored.fate_v1 end
        from mainspring_stored.jobs j cross join lateral (
            select p_cause = 'crashed' and mainspring_stored.guilt_v1(j.crashes, j.crash_limit) = v_blamed as charged,
                mainspring_stored.guilt_v1(j.crashes, j.crash_limit) = 2 or v_held = 1 as named,
                p_delays[least(j.crashes + 1, cardinality(p_delays))] as delay
        ) c
        where j.worker = p_worker and j.state = 'running'
        order by j.seq
    );
    v_ids := array(select f.id from unnest(v_fates) f);
    perform mainspring_stored.attempted_v1(v_ids, null, p_cause, p_now);
    delete from mainspring_stored.holds where job = any(v_ids);
    -- The owner is forgotten, so that its own late ack is told "stale".
    return query
    with placed as materialized (
        select u.*, case when u.state = 'ready' then nextval('mainspring_stored.seq') end as seq from unnest(v_fates) u
    ), moved as (
        update mainspring_stored.jobs j
        set attempt = j.attempt - 1, crashes = j.crashes + f.charged::integer, worker = null, turn = null, due = f.due,
            lane = mainspring_stored.lane_of_v1(j.home, j.task, j.crashes + f.charged::integer, j.crash_limit, j.parked),
            state = case when f.state in ('ready', 'retrying') then f.state else 'ready' end, seq = coalesce(f.seq, j.seq)
        from placed f
        where j.id = any(array[f.id])
        returning j.queue, f.state
    )
    select distinct null::bytea, null, m.queue from moved m where m.state = 'ready';
    return query select null::bytea, null, w.queue from unnest(
        mainspring_stored.finish_v1(
            array(
                select row(f.id, f.state, f.reason, null, null, null, nullif(j.ordered, ''), 0)::mainspring_stored.ending_v1
                from unnest(v_fates) f join mainspring_stored.jobs j on j.id = any(array[f.id]) where f.state in ('dead', 'cancelled')
            ), p_now
        )
    ) as w(queue);
    return query select f.id, f.state, null from unnest(v_fates) f;
end
$$;

CREATE FUNCTION mainspring_stored.report_v1(p_worker text, p_id bytea[], p_token bigint[], p_progress bytea[], p_line_at integer[], p_when bigint[], p_level text[], p_text bytea[], p_item_at integer[], p_place bigint[], p_item bytea[], p_lines integer) RETURNS SETOF boolean
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS $$
declare
    v_last bigint;
begin
    perform mainspring_stored.guard_v1();
    -- Two reports of one job follow one another; a child that is added to it does not wait.
    perform 1 from mainspring_stored.jobs j where j.id = any(p_id) order by j.id for no key update;
    for v_at in 1 .. cardinality(p_id) loop
        if not exists (
            select 1 from mainspring_stored.jobs j join mainspring_stored.workers w on w.id = j.worker
            where j.id = p_id[v_at] and j.token = p_token[v_at] and j.worker || '' = p_worker and j.state || '' = 'running'
                and not w.lost
        ) then
            return next false;
            continue;
        end if;
        if p_progress[v_at] is not null then
            insert into mainspring_stored.progress (job, data) values (p_id[v_at], p_progress[v_at])
            on conflict (job) do update set data = excluded.data;
        end if;
        if v_at = any(p_line_at) then
            select coalesce(max(l.n), 0) into v_last from mainspring_stored.logs l where l.job = p_id[v_at];
            insert into mainspring_stored.logs (job, n, at, level, text)
            select p_id[v_at], v_last + u.n, u.at, u.level, u.text
            from (
                select row_number() over (order by x.n) as n, count(*) over () as total, x.at, x.level, x.text
                from unnest(p_line_at, p_when, p_level, p_text) with ordinality as x(report, at, level, text, n)
                where x.report = v_at
            ) u
            where u.n > u.total - p_lines;
            delete from mainspring_stored.logs l where l.job = p_id[v_at] and l.n <= (
                select max(o.n) from mainspring_stored.logs o where o.job = p_id[v_at]
            ) - p_lines;
        end if;
        insert into mainspring_stored.items (job, n, data)
        select p_id[v_at], x.place, x.data from unnest(p_item_at, p_place, p_item) as x(report, place, data)
        where x.report = v_at
        on conflict (job, n) do update set data = excluded.data;
        return next true;
    end loop;
end
$$;

CREATE FUNCTION mainspring_stored.reprioritise_v1(p_ids bytea[], p_priority integer) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
begin
    update mainspring_stored.jobs j set priority = p_priority where j.id = any(p_ids);
    return '{}';
end
$$;

CREATE FUNCTION mainspring_stored.rescue_v1(p_worker text, p_number bigint, p_cause text, p_delays bigint[], p_now bigint) RETURNS TABLE(id bytea, state text, woken text)
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS $$
#variable_conflict use_column
declare
    v_worker mainspring_stored.workers;
begin
    perform mainspring_stored.guard_v1();
    select * into v_worker from mainspring_stored.workers w where w.id = p_worker for update;
    if v_worker.id is null or v_worker.lost or v_worker.number <> p_number then
        return;
    end if;
    update mainspring_stored.workers w set lost = true where w.id = p_worker;
    return query select null::bytea, 'taken', null;
    return query select r.* from mainspring_stored.release_v1(p_worker, p_cause, p_delays, mainspring_stored.now_v1(p_now)) r;
end
$$;

CREATE FUNCTION mainspring_stored.resolve_v1(p_ids bytea[], p_good boolean[], p_now bigint) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
declare
    v_ids bytea[] := p_ids;
    v_good boolean[] := p_good;
    v_children bytea[];
    v_broken mainspring_stored.ending_v1[];
    v_ready text[];
    v_woken text[] := '{}';
begin
    loop
        v_children := array(select distinct e.child from mainspring_stored.edges e where e.parent = any(v_ids));
        exit when cardinality(v_children) = 0;
        perform 1 from mainspring_stored.jobs j where j.id = any(v_children) order by j.id for update;
        -- A new statement: it sees what the last holder of these rows wrote. Two acks of one join both get here, one after the other.
        with met as (
            delete from mainspring_stored.edges e using unnest(v_ids, v_good) as x(id, good) where e.parent = any(array[x.id])
            returning e.child, e.policy = 'fail' and not x.good as broken
        ), tally as (
            select child, count(*)::integer as n, bool_or(broken) as broken from met group by child
        ), placed as materialized (
            select t.child, t.n, nextval('mainspring_stored.seq') as seq
            from (select * from tally where not broken order by child) t
        ), freed as (
            update mainspring_stored.jobs j
            set deps = j.deps - t.n,
                state = case when j.deps > t.n then 'blocked' when j.due > p_now then 'scheduled' else 'ready' end,
                due = case when j.deps > t.n or j.due > p_now then j.due end,
                seq = case when j.deps > t.n or j.due > p_now then j.seq else t.seq end
            from placed t
            where j.id = any(array[t.child])
            returning j.queue, j.state
        )
        select array(
                select row(t.child, 'cancelled', 'parent', null, null, null, null, 0)::mainspring_stored.ending_v1
                from tally t where t.broken
            ), array(select distinct f.queue from freed f where f.state = 'ready')
        into v_broken, v_ready;
        v_woken := v_woken || v_ready;
        exit when cardinality(v_broken) = 0;
        v_woken := v_woken || mainspring_stored.move_v1(v_broken, p_now);
        v_ids := array(select x.id from unnest(v_broken) x);
        v_good := array_fill(false, array[cardinality(v_ids)]);
    end loop;
    return v_woken;
end
$$;

CREATE FUNCTION mainspring_stored.retire_v1(p_worker text, p_cause text, p_acks mainspring_stored.ack_v1[], p_delays bigint[], p_now bigint) RETURNS TABLE(id bytea, state text, woken text)
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS $$
#variable_conflict use_column
declare
    v_worker mainspring_stored.workers;
    v_now bigint;
begin
    perform mainspring_stored.guard_v1();
    select * into v_worker from mainspring_stored.workers w where w.id = p_worker for update;
    if v_worker.id is null or v_worker.lost then
        return;
    end if;
    v_now := mainspring_stored.now_v1(p_now);
    return query select null::bytea, null, a.queue from mainspring_stored.ack_v1(p_worker, p_acks, v_now) a where a.kind = 'woken';
    return query select null::bytea, 'taken', null;
    return query select r.* from mainspring_stored.release_v1(p_worker, p_cause, p_delays, v_now) r;
    delete from mainspring_stored.workers w where w.id = p_worker;
end
$$;

CREATE FUNCTION mainspring_stored.retry_v1(p_ids bytea[], p_now bigint) RETURNS TABLE(id bytea, holder bytea, woken text)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    v_job bytea;
    v_hash bytea;
    v_holder bytea;
    v_asked bytea[] := '{}';
    v_free bytea[] := '{}';
begin
    foreach v_job in array p_ids loop
        v_hash := coalesce(
            (select f.key from mainspring_stored.finished f where f.id = v_job), (select d.key from mainspring_stored.dead d where d.id = v_job)
        );
        if v_hash is not null then
            v_holder := mainspring_stored.holder_v1(v_hash, v_hash = any(v_asked), p_now);
            v_asked := v_asked || v_hash;
            if v_holder <> v_job then
                return query select v_job, v_holder, null::text;
                continue;
            end if;
            update mainspring_stored.keys k set job = v_job, until = case when v_holder is null then 0 else k.until end
            where k.hash = v_hash;
        end if;
        v_free := v_free || v_job;
    end loop;
    return query
    with ended as (
        delete from mainspring_stored.finished f where f.id = any(v_free) returning f.*
    ), buried as (
        delete from mainspring_stored.dead d where d.id = any(v_free) returning d.*
    ), revived as (
        insert into mainspring_stored.jobs (
            id, state, task, queue, home, lane, priority, seq, token, worker, epoch, crash_limit, early, follows, enqueued,
            expires, started, keep, key, buckets, sizes, record
        )
        select a.id, 'ready', a.task, a.queue, a.home, a.home, a.priority, nextval('mainspring_stored.seq'), a.token, a.worker, a.epoch + 1,
            a.crash_limit, a.early, a.follows, a.enqueued, case when a.expires > p_now then a.expires end, a.started, a.keep,
            a.key, a.buckets, a.sizes, a.record
        from (
            select b.* from (select * from ended union all select * from buried) b order by array_position(v_free, b.id)
        ) a
        returning jobs.queue
    )
    select distinct null::bytea, null::bytea, r.queue from revived r;
    delete from mainspring_stored.progress where job = any(v_free);
    delete from mainspring_stored.items where job = any(v_free);
end
$$;

CREATE FUNCTION mainspring_stored.room_v1(p_gates text[]) RETURNS integer[]
    LANGUAGE plpgsql
    AS $$
begin
    return array(
        select coalesce(b.size, 0) - (select count(*)::integer from mainspring_stored.holds h where h.bucket = g.name)
        from unnest(p_gates) with ordinality as g(name, n) left join mainspring_stored.buckets b on b.name = any(array[g.name])
        order by g.n
    );
end
$$;

CREATE FUNCTION mainspring_stored.run_now_v1(p_ids bytea[]) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
declare
    v_woken text[];
begin
    with placed as materialized (
        select o.id, nextval('mainspring_stored.seq') as seq
        from (select * from unnest(p_ids) with ordinality as x(id, n) order by x.n) o
    ), moved as (
        update mainspring_stored.jobs j set state = 'ready', due = null, seq = u.seq
        from placed u
        where j.id = any(array[u.id])
        returning j.queue
    )
    select array_agg(distinct m.queue) into v_woken from moved m;
    return coalesce(v_woken, '{}');
end
$$;

CREATE FUNCTION mainspring_stored.set_aside_v1(p_ids bytea[], p_dead bytea[], p_now bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    update mainspring_stored.finished f set drop_at = k.until from mainspring_stored.keys k
    where f.id = any(p_ids) and k.hash = f.key and k.job = f.id and k.until > p_now;
    update mainspring_stored.dead d set drop_at = k.until from mainspring_stored.keys k
    where d.id = any(p_dead) and k.hash = d.key and k.job = d.id and k.until > p_now;
end
$$;

CREATE FUNCTION mainspring_stored.set_mode_v1(p_queues text[], p_mode text, p_now bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    perform pg_advisory_xact_lock(mainspring_stored.modes_lock_v1());
    if p_mode = 'open' then
        delete from mainspring_stored.queues q where q.name = any(p_queues);
        return;
    end if;
    insert into mainspring_stored.queues (name, mode, since)
    select distinct u.name collate "C", p_mode, mainspring_stored.now_v1(p_now) from unnest(p_queues) as u(name) order by 1
    on conflict (name) do update set mode = excluded.mode, since = excluded.since
    where queues.mode <> excluded.mode;
end
$$;

CREATE FUNCTION mainspring_stored.size_buckets_v1(p_take boolean[], p_at integer[], p_bucket text[], p_size integer[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    if cardinality(p_bucket) = 0 then
        return;
    end if;
    insert into mainspring_stored.buckets (name, size)
    select u.name, u.size from (
        select distinct on (s.name collate "C") s.name, s.size
        from unnest(p_at, p_bucket, p_size) with ordinality as s(at, name, size, n)
        where p_take[s.at]
        order by s.name collate "C", s.n desc
    ) u
    where not exists (select 1 from mainspring_stored.buckets b where b.name = any(array[u.name]) and b.size = u.size)
    order by u.name collate "C"
    on conflict (name) do update set size = excluded.size;
end
$$;

CREATE FUNCTION mainspring_stored.strays_v1(p_lane text[], p_priority integer[], p_seq bigint[]) RETURNS TABLE(lane text, priority integer, seq bigint)
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS $$
#variable_conflict use_column
declare
    v_walked bigint := mainspring_stored.walked_v1();
begin
    return query
    select l.lane, l.priority, min(s.seq) from unnest(p_lane, p_priority, p_seq) as l(lane, priority, seq)
    cross join lateral (
        select j.seq from mainspring_stored.jobs j
        where j.state = 'ready' and j.lane = l.lane and j.priority = l.priority and j.seq < l.seq
        order by j.seq limit 100
    ) s
    group by l.lane, l.priority;
    return query select null, null::integer, mainspring_stored.walked_v1() - v_walked;
end
$$;

CREATE FUNCTION mainspring_stored.succeed_v1(p_worker text, p_id bytea[], p_token bigint[], p_result bytea[], p_error bytea[], p_now bigint) RETURNS mainspring_stored.moved_v1
    LANGUAGE plpgsql
    AS $$
declare
    v_done bytea[];
    v_token bigint[];
    v_woken text[] := '{}';
begin
    -- By primary key, state and worker as expressions: through the index on running(worker) this is a loop over all pairs.
    with gone as (
        delete from mainspring_stored.jobs j using unnest(p_id, p_token, p_result, p_error) as a(id, token, result, error)
        where j.id = any(array[a.id]) and j.token = a.token and j.state || '' = 'running' and j.worker || '' = p_worker
            and j.ordered is null and j.buckets is null and j.follows & 1 = 0
        returning j.seq, j.token, j.enqueued, j.priority, j.attempt, j.epoch, j.crashes, j.crash_limit, j.follows, j.early,
            j.id, j.task, j.queue, j.home, j.lane, j.record, j.started, j.expires, j.keep, j.key, a.result, a.error
    ), kept as (
        insert into mainspring_stored.finished (
            seq, token, enqueued, finished, priority, attempt, epoch, crashes, crash_limit, follows, early, id, state, task,
            queue, home, lane, record, worker, started, result, error, expires, keep, drop_at, key
        )
        select seq, token, enqueued, p_now, priority, attempt, epoch, crashes, crash_limit, follows, early, id, 'succeeded', task,
            queue, home, lane, record, p_worker, started, result, error, expires, keep,
            case when keep is not null then p_now + least(keep, 4611686018427387904) end, key
        from gone
        returning id, token
    )
    select coalesce(array_agg(kept.id), '{}'), coalesce(array_agg(kept.token), '{}') into v_done, v_token from kept;
    if exists (select 1 from mainspring_stored.edges e where e.parent = any(v_done)) then
        v_woken := mainspring_stored.resolve_v1(v_done, array_fill(true, array[cardinality(v_done)]), p_now);
    end if;
    return (v_done, v_token, v_woken);
end
$$;

CREATE FUNCTION mainspring_stored.sweep_chunk_v1(p_name text, p_after bytea, p_limit integer) RETURNS TABLE(n integer, last bytea)
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
    v_ids bytea[];
    v_gone bytea[];
begin
    execute format('select array(select id from mainspring_stored.%I where id > $1 order by id limit $2)', p_name)
    into v_ids using p_after, p_limit;
    perform mainspring_stored.lock_keys_of_v1(v_ids, false, null);
    -- A new statement: one that somebody retried meanwhile is not here any more.
    execute format(
        'with gone as (delete from mainspring_stored.%I where id = any($1) returning id) select array(select id from gone)', p_name
    ) into v_gone using v_ids;
    perform mainspring_stored.forget_v1(v_gone);
    return query select cardinality(v_ids), v_ids[cardinality(v_ids)];
end
$_$;

CREATE FUNCTION mainspring_stored.take_keys_v1(p_id bytea[], p_task text[], p_take boolean[], p_key bytea[], p_window bigint[], p_conflict text[], p_now bigint) RETURNS TABLE(at integer, holder bytea, loser bytea, woken text)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    v_new record;
    v_now bigint;
    v_holder bytea;
begin
    return query select null::integer, null::bytea, null::bytea, w.queue from unnest(
        mainspring_stored.lock_keys_v1(
            array(select k.hash from unnest(p_key) with ordinality as k(hash, n) where k.hash is not null and p_take[k.n]), p_now
        )
    ) as w(queue);
    if current_setting('transaction_isolation') <> 'read committed' then
        -- In a caller's transaction with an old snapshot a holder that has ended since looks alive: its lock tells.
        perform 1 from mainspring_stored.jobs j where j.id in (
            select k.job from unnest(p_key) as u(hash) join mainspring_stored.keys k on k.hash = any(array[u.hash])
        ) order by j.id for key share;
    end if;
    perform 1 from mainspring_stored.jobs j where j.state || '' <> 'running' and j.id in (
        select k.job from unnest(p_key, p_conflict) as u(hash, conflict) join mainspring_stored.keys k on k.hash = any(array[u.hash])
        where u.conflict = 'replace'
    ) order by j.id for update;
    v_now := mainspring_stored.now_v1(p_now);
    for v_new in
        select u.n::integer as at, u.*, row_number() over (partition by u.hash order by u.n) > 1 as again
        from unnest(p_key, p_window, p_conflict) with ordinality as u(hash, span, conflict, n)
        where u.hash is not null and p_take[u.n] order by u.n
    loop
        v_holder := mainspring_stored.holder_v1(v_new.hash, v_new.again, v_now);
        if v_holder is not null and v_new.conflict = 'error' then
            raise exception '%', encode(v_holder, 'hex') using errcode = 'MS002', detail = p_task[v_new.at];
        end if;
        if v_holder is not null and v_new.conflict = 'return' then
            return query select v_new.at, v_holder, null::bytea, null::text;
            continue;
        end if;
        if v_holder is not null then
            return query select v_new.at, null::bytea, v_holder, null::text;
            if not exists (select 1 from mainspring_stored.jobs j where j.id = v_holder) then
                perform mainspring_stored.let_go_v1(v_holder);
            end if;
        end if;
        update mainspring_stored.keys k
        set job = p_id[v_new.at], until = case when v_new.span > 0 then v_now + v_new.span else 0 end
        where k.hash = v_new.hash;
    end loop;
end
$$;

CREATE FUNCTION mainspring_stored.take_v1(p_ids bytea[], p_worker text, p_number bigint, p_now bigint, p_inline integer, p_room bigint) RETURNS TABLE(kind text, id bytea, token bigint, task text, queue text, lane text, priority integer, attempt integer, epoch integer, crashes integer, early boolean, enqueued bigint, expires bigint, record bytea, turn bigint, note text)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    v_ids bytea[];
    v_now bigint := mainspring_stored.now_v1(p_now);
begin
    if cardinality(p_ids) = 0 then
        return;
    end if;
    v_ids := array(
        select s.id from (
            select p.id, p.n, sum(octet_length(j.record)) over (order by p.n) - octet_length(j.record) as before
            from unnest(p_ids) with ordinality as p(id, n) join mainspring_stored.jobs j on j.id = any(array[p.id])
        ) s where s.before < p_room order by s.n
    );
    update mainspring_stored.jobs j
    set state = 'running', token = greatest(j.token + 1, v_now), worker = p_worker, turn = p_number,
        attempt = j.attempt + 1, started = greatest(v_now, j.enqueued)
    where j.id = any(v_ids);
    insert into mainspring_stored.holds (bucket, job)
    select unnest(j.buckets), j.id from mainspring_stored.jobs j where j.id = any(v_ids) and j.buckets is not null;
    return query select 'claim', j.id, j.token, j.task, j.queue, j.lane::text, j.priority, j.attempt, j.epoch,
        j.crashes, j.early, j.enqueued, j.expires, case when octet_length(j.record) <= p_inline then j.record end, j.turn, null
    from unnest(v_ids) with ordinality as p(id, n) join mainspring_stored.jobs j on j.id = any(array[p.id]) order by p.n;
end
$$;

CREATE FUNCTION mainspring_stored.tidy_v1(p_now bigint, p_keep_workers bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    v_named text[];
    v_idle text[];
begin
    delete from mainspring_stored.workers w where w.lost and w.seen < p_now - p_keep_workers;
    delete from mainspring_stored.retried r where r.at < p_now - 86400000000;
    if not exists (select 1 from mainspring_stored.buckets) then
        return;
    end if;
    with recursive hops as (
        (select j.lane, j.buckets from mainspring_stored.jobs j where j.state = 'ready' order by j.lane limit 1)
        union all
        select n.lane, n.buckets from hops h cross join lateral (
            select j.lane, j.buckets from mainspring_stored.jobs j where j.state = 'ready' and j.lane > h.lane order by j.lane limit 1
        ) n
    )
    select array_agg(distinct b.name) into v_named from hops h cross join unnest(h.buckets) as b(name);
    v_idle := array(
        select b.name from mainspring_stored.buckets b
        where b.name <> all(coalesce(v_named, '{}')) and not exists (select 1 from mainspring_stored.holds h where h.bucket = b.name)
        order by b.name for update skip locked
    );
    delete from mainspring_stored.buckets b
    where b.name = any(v_idle) and not exists (select 1 from mainspring_stored.holds h where h.bucket = b.name);
end
$$;

CREATE FUNCTION mainspring_stored.turn_v1(p_worker text, p_number bigint, p_seen bigint, p_now bigint, p_suspects integer, p_done bytea[], p_token bigint[], p_result bytea[], p_error bytea[], p_acks mainspring_stored.ack_v1[], p_want integer[], p_lane text[], p_n integer[], p_oldest integer[], p_held bytea[], p_held_token bigint[], p_inline integer, p_room bigint, p_low_lane text[] DEFAULT '{}'::text[], p_low_priority integer[] DEFAULT '{}'::integer[], p_low_seq bigint[] DEFAULT '{}'::bigint[]) RETURNS TABLE(kind text, id bytea, token bigint, task text, queue text, lane text, priority integer, attempt integer, epoch integer, crashes integer, early boolean, enqueued bigint, expires bigint, record bytea, turn bigint, note text)
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS $$
#variable_conflict use_column
declare
    v_worker mainspring_stored.workers;
    v_now bigint;
    v_repeat boolean;
    v_open boolean[];
    v_gates text[] := '{}';
    v_moved mainspring_stored.moved_v1;
    v_acks mainspring_stored.ack_v1[] := p_acks;
    v_suspects integer := p_suspects;
    v_lanes mainspring_stored.lane_v1[] := '{}';
    v_left integer;
    v_taken integer;
    v_room bigint := p_room;
    v_low integer;
    v_last bigint := coalesce(pg_sequence_last_value('mainspring_stored.seq'::regclass), 0);
    v_walked bigint := mainspring_stored.walked_v1();
    v_got bytea[];
begin
    perform mainspring_stored.guard_v1();
    select * into v_worker from mainspring_stored.workers w where w.id = p_worker for update;
    v_now := mainspring_stored.now_v1(p_now);
    kind := 'turn';
    token := v_now;
    early := v_worker.id is null or v_worker.lost;
    return next;
    if early then
        return;
    end if;
    if p_number < v_worker.turn then
        raise exception 'turn % of worker % comes after turn %', p_number, p_worker, v_worker.turn using errcode = 'MS001';
    end if;
    v_repeat := p_number = v_worker.turn;

    if not v_repeat and cardinality(p_lane) > 0 then
        -- Whoever pauses a queue waits for the turns that have looked already: none claims after that was confirmed.
        perform pg_advisory_xact_lock_shared(mainspring_stored.modes_lock_v1());
        v_open := array(
            select not exists (select 1 from mainspring_stored.queues q where q.name = split_part(u.lane, '/', 1) and q.mode = 'paused')
            from unnest(p_lane) with ordinality as u(lane, n) order by u.n
        );
        v_lanes := mainspring_stored.lanes_v1(
            array(select u.lane from unnest(p_lane, v_open) as u(lane, free) where u.free), v_worker.tasks, p_low_lane
        );
        if exists (select 1 from unnest(v_lanes) l where l.buckets is not null) or exists (select 1 from mainspring_stored.buckets) then
            v_gates := mainspring_stored.gates_v1(v_lanes, p_done || array(select a.id from unnest(p_acks) a));
        end if;
    end if;
    v_walked := mainspring_stored.walked_v1() - v_walked;
    if cardinality(p_done) > 0 then
        v_moved := mainspring_stored.succeed_v1(p_worker, p_done, p_token, p_result, p_error, v_now);
        if cardinality(v_moved.woken) > 0 then
            return query select 'woken', null::bytea, null::bigint, null, w.queue, null, null::integer, null::integer,
                null::integer, null::integer, null::boolean, null::bigint, null::bigint, null::bytea, null::bigint, null
            from unnest(v_moved.woken) as w(queue);
        end if;
        if cardinality(v_moved.done) < cardinality(p_done) then
            v_acks := p_acks || array(
                select row(
                    -u.n, u.id, u.token, 'succeeded', 'succeeded', null, 0, null, u.result, u.error, null, false, false
                )::mainspring_stored.ack_v1
                from unnest(p_done, p_token, p_result, p_error) with ordinality as u(id, token, result, error, n)
                where not exists (
                    select 1 from unnest(v_moved.done, v_moved.token) as d(id, token) where d.id = u.id and d.token = u.token
                )
            );
        end if;
    end if;
    if cardinality(v_acks) > 0 then
        return query select a.kind, a.id, a.token, null, a.queue, null, null::integer, null::integer, null::integer,
            null::integer, null::boolean, null::bigint, null::bigint, null::bytea, null::bigint, null
        from mainspring_stored.ack_v1(p_worker, v_acks, v_now) a;
    end if;
    if p_held is not null then
        return query select 'gone', h.id, h.token, null, null, null, null::integer, null::integer, null::integer,
            null::integer, null::boolean, null::bigint, null::bigint, null::bytea, null::bigint, null
        from unnest(p_held, p_held_token) as h(id, token)
        where not exists (
            select 1 from mainspring_stored.jobs j
            where j.id = any(array[h.id]) and j.token = h.token and j.state || '' = 'running' and j.worker || '' = p_worker
        ) and not exists (select 1 from unnest(p_acks) a where a.id = h.id and a.token = h.token)
            and not exists (select 1 from unnest(p_done, p_token) as d(id, token) where d.id = h.id and d.token = h.token);
    end if;

    if v_repeat or p_seen < v_worker.turn then
        return query select 'claim', j.id, j.token, j.task, j.queue, j.lane::text, j.priority, j.attempt, j.epoch,
            j.crashes, j.early, j.enqueued, j.expires, case when octet_length(j.record) <= p_inline then j.record end, j.turn, null
        from mainspring_stored.jobs j
        where j.state = 'running' and j.worker = p_worker and j.turn > least(p_seen, p_number - 1)
            and (p_held is null or not exists (
                select 1 from unnest(p_held, p_held_token) as h(id, token) where h.id = j.id and h.token = j.token
            ))
        order by j.turn, j.priority desc, j.seq;
    end if;
    v_walked := mainspring_stored.walked_v1() - v_walked; -- what the acks did there is no walk
    if v_repeat then
        v_room := p_room - mainspring_stored.carried_v1(p_worker, p_number);
    else
        for v_want in 1 .. cardinality(p_n) loop
            v_left := p_n[v_want];
            continue when v_left <= 0;
            if v_want > 1 then
                v_room := p_room - mainspring_stored.carried_v1(p_worker, p_number);
                exit when v_room <= 0;
            end if;
            if cardinality(p_n) > 1 or cardinality(v_acks) > 0 or cardinality(v_moved.woken) > 0 then
                v_lanes := mainspring_stored.lanes_v1(
                    array(
                        select u.lane from unnest(p_want, p_lane, v_open) as u(want, lane, free)
                        where u.want = v_want and u.free
                    ), v_worker.tasks, p_low_lane
                );
            end if;
            if cardinality(p_low_lane) > 0 then
                v_low := case when cardinality(v_lanes) = 0 then v_left else (v_left + p_number % 2) / 2 end;
                return query select t.* from mainspring_stored.claim_above_v1(
                    array(
                        select distinct u.lane from unnest(p_want, p_lane, v_open) as u(want, lane, free)
                        where u.want = v_want and u.free and u.lane = any(p_low_lane)
                    ), v_low, p_worker, p_number, p_now, p_low_lane, p_low_priority, p_low_seq, p_inline, p_room
                ) t;
                get diagnostics v_low = row_count;
                v_left := v_left - v_low;
                continue when v_left <= 0;
                v_room := p_room - mainspring_stored.carried_v1(p_worker, p_number);
                exit when v_room <= 0;
            end if;
            continue when cardinality(v_lanes) = 0;
            if cardinality(v_lanes) = 1 and p_oldest[v_want] = 0 and v_lanes[1].buckets is null and not v_lanes[1].suspect then
                return query select t.* from mainspring_stored.claim_line_v1(
                    v_lanes[1].lane, v_lanes[1].priority, v_lanes[1].priority, v_lanes[1].seq, v_left, p_worker, p_number, p_now,
                    p_inline, v_room
                ) t;
                get diagnostics v_taken = row_count;
                v_left := v_left - v_taken;
                continue when v_left = 0;
                v_room := p_room - mainspring_stored.carried_v1(p_worker, p_number);
                exit when v_room <= 0;
                return query select t.* from mainspring_stored.claim_line_v1(
                    v_lanes[1].lane, v_lanes[1].priority - 1, -2147483648, null, v_left, p_worker, p_number, p_now, p_inline, v_room
                ) t;
                get diagnostics v_taken = row_count;
                if v_taken > 0 and v_taken < v_left then
                    v_room := p_room - mainspring_stored.carried_v1(p_worker, p_number);
                    exit when v_room <= 0;
                end if;
                continue;
            end if;
            if v_suspects > 0 and exists (select 1 from unnest(v_lanes) l where l.suspect) then
                v_got := mainspring_stored.pick_v1(
                    array(select l from unnest(v_lanes) l where l.suspect), least(v_left, v_suspects), 0, v_gates, v_now
                );
                return query select t.* from mainspring_stored.take_v1(v_got, p_worker, p_number, p_now, p_inline, v_room) t;
                v_suspects := v_suspects - cardinality(v_got);
                v_left := v_left - cardinality(v_got);
                v_room := p_room - mainspring_stored.carried_v1(p_worker, p_number);
                exit when v_room <= 0;
            end if;
            v_got := mainspring_stored.pick_v1(
                array(select l from unnest(v_lanes) l where not l.suspect), v_left, p_oldest[v_want], v_gates, v_now
            );
            return query select t.* from mainspring_stored.take_v1(v_got, p_worker, p_number, p_now, p_inline, v_room) t;
            get diagnostics v_taken = row_count;
            if v_taken < cardinality(v_got) then
                v_room := 0;
                exit;
            end if;
        end loop;
        update mainspring_stored.workers w set turn = p_number, seen = v_now where w.id = p_worker;
        if cardinality(p_low_lane) > 0 or mainspring_stored.walked_v1() - v_walked > 2000 + 10 * p_n[1] then
            return query select 'low', null::bytea, l.seq, null, null, l.lane, l.priority, null::integer, null::integer,
                null::integer, null::boolean, null::bigint, null::bigint, null::bytea, null::bigint, null
            from mainspring_stored.lows_v1(
                p_worker, p_number, array(select u.lane from unnest(p_lane, v_open) as u(lane, free) where u.free),
                p_low_lane, p_low_priority, v_last, case when v_room > 0 then (select sum(n) from unnest(p_n) n) else 0 end
            ) l;
        end if;
    end if;
    if v_room <= 0 then
        kind := 'more';
        return next;
    end if;
    return query select 'order', j.id, j.token, null, null, null, null::integer, null::integer, null::integer,
        null::integer, null::boolean, null::bigint, null::bigint, null::bytea, null::bigint, j.ordered
    from mainspring_stored.jobs j where j.worker = p_worker and j.ordered is not null and j.state || '' = 'running';
end
$$;

CREATE FUNCTION mainspring_stored.use_v1(p_buckets text[], p_n integer, p_gates text[], p_room integer[]) RETURNS integer[]
    LANGUAGE plpgsql IMMUTABLE
    AS $$
declare
    v_room integer[] := p_room;
    v_name text;
begin
    if p_buckets is not null then
        foreach v_name in array p_buckets loop
            v_room[array_position(p_gates, v_name)] := v_room[array_position(p_gates, v_name)] - p_n;
        end loop;
    end if;
    return v_room;
end
$$;

CREATE FUNCTION mainspring_stored.walked_v1() RETURNS bigint
    LANGUAGE sql
    AS $$
    select pg_stat_get_xact_tuples_returned('mainspring_stored.jobs_ready'::regclass)
        + 20 * pg_stat_get_xact_blocks_fetched('mainspring_stored.jobs_ready'::regclass)
$$;

CREATE FUNCTION mainspring_stored.weigh_v1(p_id bytea[], p_take boolean[], p_child_at integer[], p_parent bytea[], p_parent_at integer[], p_policy text[]) RETURNS TABLE(at integer, n integer, broken boolean)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    v_child bytea;
    v_missing bytea;
begin
    select p_id[e.at], e.parent into v_child, v_missing
    from unnest(p_child_at, p_parent, p_parent_at) as e(at, parent, inside)
    where p_take[e.at] and (e.parent = p_id[e.at] or not coalesce(p_take[e.inside], false))
        and (e.parent = p_id[e.at] or not exists (select 1 from mainspring_stored.jobs j where j.id = any(array[e.parent])))
        and not exists (select 1 from mainspring_stored.finished f where f.id = any(array[e.parent]))
        and not exists (select 1 from mainspring_stored.dead d where d.id = any(array[e.parent]))
    limit 1;
    if v_missing is not null then
        raise exception 'job % waits for job %, which does not exist', encode(v_child, 'hex')::uuid, encode(v_missing, 'hex')::uuid
            using errcode = 'MS001', hint = 'Enqueue the parent first or in the same batch; was it deleted or pruned?';
    end if;
    -- A cancelled child is inserted as blocked and leaves by the same door as everybody.
    return query
    select v.at, greatest(v.n, v.broken::integer), v.broken from (
        select e.at, count(*) filter (where e.live)::integer as n, bool_or(not e.live and not e.good and e.policy = 'fail') as broken
        from (
            select u.at, u.parent, min(u.policy) as policy,
                bool_or(coalesce(p_take[u.inside], false)) or exists (select 1 from mainspring_stored.jobs j where j.id = any(array[u.parent])) as live,
                exists (select 1 from mainspring_stored.finished f where f.id = any(array[u.parent]) and f.state = 'succeeded') as good
            from unnest(p_child_at, p_parent, p_parent_at, p_policy) as u(at, parent, inside, policy)
            where p_take[u.at]
            group by u.at, u.parent
        ) e
        group by e.at
    ) v;
end
$$;

CREATE TABLE mainspring_stored.attempts (
    job bytea NOT NULL,
    token bigint NOT NULL,
    epoch integer NOT NULL,
    attempt integer NOT NULL,
    worker text NOT NULL,
    started bigint NOT NULL,
    ended bigint NOT NULL,
    outcome text NOT NULL,
    acked boolean NOT NULL,
    error bytea
);

CREATE TABLE mainspring_stored.buckets (
    name text NOT NULL COLLATE pg_catalog."C",
    size integer NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE mainspring_stored.dead (
    seq bigint CONSTRAINT finished_seq_not_null NOT NULL,
    token bigint CONSTRAINT finished_token_not_null NOT NULL,
    enqueued bigint CONSTRAINT finished_enqueued_not_null NOT NULL,
    finished bigint CONSTRAINT finished_finished_not_null NOT NULL,
    priority integer CONSTRAINT finished_priority_not_null NOT NULL,
    attempt integer CONSTRAINT finished_attempt_not_null NOT NULL,
    epoch integer CONSTRAINT finished_epoch_not_null NOT NULL,
    crashes integer CONSTRAINT finished_crashes_not_null NOT NULL,
    crash_limit integer CONSTRAINT finished_crash_limit_not_null NOT NULL,
    follows smallint CONSTRAINT finished_follows_not_null NOT NULL,
    early boolean CONSTRAINT finished_early_not_null NOT NULL,
    id bytea CONSTRAINT finished_id_not_null NOT NULL,
    state text CONSTRAINT finished_state_not_null NOT NULL,
    task text CONSTRAINT finished_task_not_null NOT NULL,
    queue text CONSTRAINT finished_queue_not_null NOT NULL,
    home text CONSTRAINT finished_home_not_null NOT NULL,
    lane text CONSTRAINT finished_lane_not_null NOT NULL,
    record bytea CONSTRAINT finished_record_not_null NOT NULL,
    worker text,
    started bigint,
    result bytea,
    error bytea,
    expires bigint,
    keep bigint,
    drop_at bigint,
    key bytea,
    reason text,
    note text,
    label text,
    buckets text[],
    sizes integer[],
    CONSTRAINT dead_check CHECK (((state = 'dead'::text) AND (reason IS NOT NULL)))
);

CREATE TABLE mainspring_stored.docs (
    kind text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    version bigint NOT NULL,
    data bytea NOT NULL
);

CREATE TABLE mainspring_stored.edges (
    parent bytea NOT NULL,
    child bytea NOT NULL,
    policy text NOT NULL,
    CONSTRAINT edges_policy_check CHECK ((policy = ANY (ARRAY['fail'::text, 'ignore'::text])))
);

CREATE TABLE mainspring_stored.finished (
    seq bigint NOT NULL,
    token bigint NOT NULL,
    enqueued bigint NOT NULL,
    finished bigint NOT NULL,
    priority integer NOT NULL,
    attempt integer NOT NULL,
    epoch integer NOT NULL,
    crashes integer NOT NULL,
    crash_limit integer NOT NULL,
    follows smallint NOT NULL,
    early boolean NOT NULL,
    id bytea NOT NULL,
    state text NOT NULL,
    task text NOT NULL,
    queue text NOT NULL,
    home text NOT NULL,
    lane text NOT NULL,
    record bytea NOT NULL,
    worker text,
    started bigint,
    result bytea,
    error bytea,
    expires bigint,
    keep bigint,
    drop_at bigint,
    key bytea,
    reason text,
    note text,
    label text,
    buckets text[],
    sizes integer[],
    CONSTRAINT finished_check CHECK (((state = 'cancelled'::text) = (reason IS NOT NULL))),
    CONSTRAINT finished_state_check CHECK ((state = ANY (ARRAY['succeeded'::text, 'cancelled'::text])))
)
PARTITION BY RANGE (finished);

CREATE TABLE mainspring_stored.finished_20261116 (
    seq bigint CONSTRAINT finished_seq_not_null NOT NULL,
    token bigint CONSTRAINT finished_token_not_null NOT NULL,
    enqueued bigint CONSTRAINT finished_enqueued_not_null NOT NULL,
    finished bigint CONSTRAINT finished_finished_not_null NOT NULL,
    priority integer CONSTRAINT finished_priority_not_null NOT NULL,
    attempt integer CONSTRAINT finished_attempt_not_null NOT NULL,
    epoch integer CONSTRAINT finished_epoch_not_null NOT NULL,
    crashes integer CONSTRAINT finished_crashes_not_null NOT NULL,
    crash_limit integer CONSTRAINT finished_crash_limit_not_null NOT NULL,
    follows smallint CONSTRAINT finished_follows_not_null NOT NULL,
    early boolean CONSTRAINT finished_early_not_null NOT NULL,
    id bytea CONSTRAINT finished_id_not_null NOT NULL,
    state text CONSTRAINT finished_state_not_null NOT NULL,
    task text CONSTRAINT finished_task_not_null NOT NULL,
    queue text CONSTRAINT finished_queue_not_null NOT NULL,
    home text CONSTRAINT finished_home_not_null NOT NULL,
    lane text CONSTRAINT finished_lane_not_null NOT NULL,
    record bytea CONSTRAINT finished_record_not_null NOT NULL,
    worker text,
    started bigint,
    result bytea,
    error bytea,
    expires bigint,
    keep bigint,
    drop_at bigint,
    key bytea,
    reason text,
    note text,
    label text,
    buckets text[],
    sizes integer[],
    CONSTRAINT finished_check CHECK (((state = 'cancelled'::text) = (reason IS NOT NULL))),
    CONSTRAINT finished_state_check CHECK ((state = ANY (ARRAY['succeeded'::text, 'cancelled'::text])))
);

CREATE TABLE mainspring_stored.finished_20261117 (
    seq bigint CONSTRAINT finished_seq_not_null NOT NULL,
    token bigint CONSTRAINT finished_token_not_null NOT NULL,
    enqueued bigint CONSTRAINT finished_enqueued_not_null NOT NULL,
    finished bigint CONSTRAINT finished_finished_not_null NOT NULL,
    priority integer CONSTRAINT finished_priority_not_null NOT NULL,
    attempt integer CONSTRAINT finished_attempt_not_null NOT NULL,
    epoch integer CONSTRAINT finished_epoch_not_null NOT NULL,
    crashes integer CONSTRAINT finished_crashes_not_null NOT NULL,
    crash_limit integer CONSTRAINT finished_crash_limit_not_null NOT NULL,
    follows smallint CONSTRAINT finished_follows_not_null NOT NULL,
    early boolean CONSTRAINT finished_early_not_null NOT NULL,
    id bytea CONSTRAINT finished_id_not_null NOT NULL,
    state text CONSTRAINT finished_state_not_null NOT NULL,
    task text CONSTRAINT finished_task_not_null NOT NULL,
    queue text CONSTRAINT finished_queue_not_null NOT NULL,
    home text CONSTRAINT finished_home_not_null NOT NULL,
    lane text CONSTRAINT finished_lane_not_null NOT NULL,
    record bytea CONSTRAINT finished_record_not_null NOT NULL,
    worker text,
    started bigint,
    result bytea,
    error bytea,
    expires bigint,
    keep bigint,
    drop_at bigint,
    key bytea,
    reason text,
    note text,
    label text,
    buckets text[],
    sizes integer[],
    CONSTRAINT finished_check CHECK (((state = 'cancelled'::text) = (reason IS NOT NULL))),
    CONSTRAINT finished_state_check CHECK ((state = ANY (ARRAY['succeeded'::text, 'cancelled'::text])))
);

CREATE TABLE mainspring_stored.finished_20261118 (
    seq bigint CONSTRAINT finished_seq_not_null NOT NULL,
    token bigint CONSTRAINT finished_token_not_null NOT NULL,
    enqueued bigint CONSTRAINT finished_enqueued_not_null NOT NULL,
    finished bigint CONSTRAINT finished_finished_not_null NOT NULL,
    priority integer CONSTRAINT finished_priority_not_null NOT NULL,
    attempt integer CONSTRAINT finished_attempt_not_null NOT NULL,
    epoch integer CONSTRAINT finished_epoch_not_null NOT NULL,
    crashes integer CONSTRAINT finished_crashes_not_null NOT NULL,
    crash_limit integer CONSTRAINT finished_crash_limit_not_null NOT NULL,
    follows smallint CONSTRAINT finished_follows_not_null NOT NULL,
    early boolean CONSTRAINT finished_early_not_null NOT NULL,
    id bytea CONSTRAINT finished_id_not_null NOT NULL,
    state text CONSTRAINT finished_state_not_null NOT NULL,
    task text CONSTRAINT finished_task_not_null NOT NULL,
    queue text CONSTRAINT finished_queue_not_null NOT NULL,
    home text CONSTRAINT finished_home_not_null NOT NULL,
    lane text CONSTRAINT finished_lane_not_null NOT NULL,
    record bytea CONSTRAINT finished_record_not_null NOT NULL,
    worker text,
    started bigint,
    result bytea,
    error bytea,
    expires bigint,
    keep bigint,
    drop_at bigint,
    key bytea,
    reason text,
    note text,
    label text,
    buckets text[],
    sizes integer[],
    CONSTRAINT finished_check CHECK (((state = 'cancelled'::text) = (reason IS NOT NULL))),
    CONSTRAINT finished_state_check CHECK ((state = ANY (ARRAY['succeeded'::text, 'cancelled'::text])))
);

CREATE TABLE mainspring_stored.finished_20261119 (
    seq bigint CONSTRAINT finished_seq_not_null NOT NULL,
    token bigint CONSTRAINT finished_token_not_null NOT NULL,
    enqueued bigint CONSTRAINT finished_enqueued_not_null NOT NULL,
    finished bigint CONSTRAINT finished_finished_not_null NOT NULL,
    priority integer CONSTRAINT finished_priority_not_null NOT NULL,
    attempt integer CONSTRAINT finished_attempt_not_null NOT NULL,
    epoch integer CONSTRAINT finished_epoch_not_null NOT NULL,
    crashes integer CONSTRAINT finished_crashes_not_null NOT NULL,
    crash_limit integer CONSTRAINT finished_crash_limit_not_null NOT NULL,
    follows smallint CONSTRAINT finished_follows_not_null NOT NULL,
    early boolean CONSTRAINT finished_early_not_null NOT NULL,
    id bytea CONSTRAINT finished_id_not_null NOT NULL,
    state text CONSTRAINT finished_state_not_null NOT NULL,
    task text CONSTRAINT finished_task_not_null NOT NULL,
    queue text CONSTRAINT finished_queue_not_null NOT NULL,
    home text CONSTRAINT finished_home_not_null NOT NULL,
    lane text CONSTRAINT finished_lane_not_null NOT NULL,
    record bytea CONSTRAINT finished_record_not_null NOT NULL,
    worker text,
    started bigint,
    result bytea,
    error bytea,
    expires bigint,
    keep bigint,
    drop_at bigint,
    key bytea,
    reason text,
    note text,
    label text,
    buckets text[],
    sizes integer[],
    CONSTRAINT finished_check CHECK (((state = 'cancelled'::text) = (reason IS NOT NULL))),
    CONSTRAINT finished_state_check CHECK ((state = ANY (ARRAY['succeeded'::text, 'cancelled'::text])))
);

CREATE TABLE mainspring_stored.finished_20261120 (
    seq bigint CONSTRAINT finished_seq_not_null NOT NULL,
    token bigint CONSTRAINT finished_token_not_null NOT NULL,
    enqueued bigint CONSTRAINT finished_enqueued_not_null NOT NULL,
    finished bigint CONSTRAINT finished_finished_not_null NOT NULL,
    priority integer CONSTRAINT finished_priority_not_null NOT NULL,
    attempt integer CONSTRAINT finished_attempt_not_null NOT NULL,
    epoch integer CONSTRAINT finished_epoch_not_null NOT NULL,
    crashes integer CONSTRAINT finished_crashes_not_null NOT NULL,
    crash_limit integer CONSTRAINT finished_crash_limit_not_null NOT NULL,
    follows smallint CONSTRAINT finished_follows_not_null NOT NULL,
    early boolean CONSTRAINT finished_early_not_null NOT NULL,
    id bytea CONSTRAINT finished_id_not_null NOT NULL,
    state text CONSTRAINT finished_state_not_null NOT NULL,
    task text CONSTRAINT finished_task_not_null NOT NULL,
    queue text CONSTRAINT finished_queue_not_null NOT NULL,
    home text CONSTRAINT finished_home_not_null NOT NULL,
    lane text CONSTRAINT finished_lane_not_null NOT NULL,
    record bytea CONSTRAINT finished_record_not_null NOT NULL,
    worker text,
    started bigint,
    result bytea,
    error bytea,
    expires bigint,
    keep bigint,
    drop_at bigint,
    key bytea,
    reason text,
    note text,
    label text,
    buckets text[],
    sizes integer[],
    CONSTRAINT finished_check CHECK (((state = 'cancelled'::text) = (reason IS NOT NULL))),
    CONSTRAINT finished_state_check CHECK ((state = ANY (ARRAY['succeeded'::text, 'cancelled'::text])))
);

CREATE TABLE mainspring_stored.finished_20261121 (
    seq bigint CONSTRAINT finished_seq_not_null NOT NULL,
    token bigint CONSTRAINT finished_token_not_null NOT NULL,
    enqueued bigint CONSTRAINT finished_enqueued_not_null NOT NULL,
    finished bigint CONSTRAINT finished_finished_not_null NOT NULL,
    priority integer CONSTRAINT finished_priority_not_null NOT NULL,
    attempt integer CONSTRAINT finished_attempt_not_null NOT NULL,
    epoch integer CONSTRAINT finished_epoch_not_null NOT NULL,
    crashes integer CONSTRAINT finished_crashes_not_null NOT NULL,
    crash_limit integer CONSTRAINT finished_crash_limit_not_null NOT NULL,
    follows smallint CONSTRAINT finished_follows_not_null NOT NULL,
    early boolean CONSTRAINT finished_early_not_null NOT NULL,
    id bytea CONSTRAINT finished_id_not_null NOT NULL,
    state text CONSTRAINT finished_state_not_null NOT NULL,
    task text CONSTRAINT finished_task_not_null NOT NULL,
    queue text CONSTRAINT finished_queue_not_null NOT NULL,
    home text CONSTRAINT finished_home_not_null NOT NULL,
    lane text CONSTRAINT finished_lane_not_null NOT NULL,
    record bytea CONSTRAINT finished_record_not_null NOT NULL,
    worker text,
    started bigint,
    result bytea,
    error bytea,
    expires bigint,
    keep bigint,
    drop_at bigint,
    key bytea,
    reason text,
    note text,
    label text,
    buckets text[],
    sizes integer[],
    CONSTRAINT finished_check CHECK (((state = 'cancelled'::text) = (reason IS NOT NULL))),
    CONSTRAINT finished_state_check CHECK ((state = ANY (ARRAY['succeeded'::text, 'cancelled'::text])))
);

CREATE TABLE mainspring_stored.finished_20261122 (
    seq bigint CONSTRAINT finished_seq_not_null NOT NULL,
    token bigint CONSTRAINT finished_token_not_null NOT NULL,
    enqueued bigint CONSTRAINT finished_enqueued_not_null NOT NULL,
    finished bigint CONSTRAINT finished_finished_not_null NOT NULL,
    priority integer CONSTRAINT finished_priority_not_null NOT NULL,
    attempt integer CONSTRAINT finished_attempt_not_null NOT NULL,
    epoch integer CONSTRAINT finished_epoch_not_null NOT NULL,
    crashes integer CONSTRAINT finished_crashes_not_null NOT NULL,
    crash_limit integer CONSTRAINT finished_crash_limit_not_null NOT NULL,
    follows smallint CONSTRAINT finished_follows_not_null NOT NULL,
    early boolean CONSTRAINT finished_early_not_null NOT NULL,
    id bytea CONSTRAINT finished_id_not_null NOT NULL,
    state text CONSTRAINT finished_state_not_null NOT NULL,
    task text CONSTRAINT finished_task_not_null NOT NULL,
    queue text CONSTRAINT finished_queue_not_null NOT NULL,
    home text CONSTRAINT finished_home_not_null NOT NULL,
    lane text CONSTRAINT finished_lane_not_null NOT NULL,
    record bytea CONSTRAINT finished_record_not_null NOT NULL,
    worker text,
    started bigint,
    result bytea,
    error bytea,
    expires bigint,
    keep bigint,
    drop_at bigint,
    key bytea,
    reason text,
    note text,
    label text,
    buckets text[],
    sizes integer[],
    CONSTRAINT finished_check CHECK (((state = 'cancelled'::text) = (reason IS NOT NULL))),
    CONSTRAINT finished_state_check CHECK ((state = ANY (ARRAY['succeeded'::text, 'cancelled'::text])))
);

CREATE TABLE mainspring_stored.finished_20261123 (
    seq bigint CONSTRAINT finished_seq_not_null NOT NULL,
    token bigint CONSTRAINT finished_token_not_null NOT NULL,
    enqueued bigint CONSTRAINT finished_enqueued_not_null NOT NULL,
    finished bigint CONSTRAINT finished_finished_not_null NOT NULL,
    priority integer CONSTRAINT finished_priority_not_null NOT NULL,
    attempt integer CONSTRAINT finished_attempt_not_null NOT NULL,
    epoch integer CONSTRAINT finished_epoch_not_null NOT NULL,
    crashes integer CONSTRAINT finished_crashes_not_null NOT NULL,
    crash_limit integer CONSTRAINT finished_crash_limit_not_null NOT NULL,
    follows smallint CONSTRAINT finished_follows_not_null NOT NULL,
    early boolean CONSTRAINT finished_early_not_null NOT NULL,
    id bytea CONSTRAINT finished_id_not_null NOT NULL,
    state text CONSTRAINT finished_state_not_null NOT NULL,
    task text CONSTRAINT finished_task_not_null NOT NULL,
    queue text CONSTRAINT finished_queue_not_null NOT NULL,
    home text CONSTRAINT finished_home_not_null NOT NULL,
    lane text CONSTRAINT finished_lane_not_null NOT NULL,
    record bytea CONSTRAINT finished_record_not_null NOT NULL,
    worker text,
    started bigint,
    result bytea,
    error bytea,
    expires bigint,
    keep bigint,
    drop_at bigint,
    key bytea,
    reason text,
    note text,
    label text,
    buckets text[],
    sizes integer[],
    CONSTRAINT finished_check CHECK (((state = 'cancelled'::text) = (reason IS NOT NULL))),
    CONSTRAINT finished_state_check CHECK ((state = ANY (ARRAY['succeeded'::text, 'cancelled'::text])))
);

CREATE TABLE mainspring_stored.finished_rest (
    seq bigint CONSTRAINT finished_seq_not_null NOT NULL,
    token bigint CONSTRAINT finished_token_not_null NOT NULL,
    enqueued bigint CONSTRAINT finished_enqueued_not_null NOT NULL,
    finished bigint CONSTRAINT finished_finished_not_null NOT NULL,
    priority integer CONSTRAINT finished_priority_not_null NOT NULL,
    attempt integer CONSTRAINT finished_attempt_not_null NOT NULL,
    epoch integer CONSTRAINT finished_epoch_not_null NOT NULL,
    crashes integer CONSTRAINT finished_crashes_not_null NOT NULL,
    crash_limit integer CONSTRAINT finished_crash_limit_not_null NOT NULL,
    follows smallint CONSTRAINT finished_follows_not_null NOT NULL,
    early boolean CONSTRAINT finished_early_not_null NOT NULL,
    id bytea CONSTRAINT finished_id_not_null NOT NULL,
    state text CONSTRAINT finished_state_not_null NOT NULL,
    task text CONSTRAINT finished_task_not_null NOT NULL,
    queue text CONSTRAINT finished_queue_not_null NOT NULL,
    home text CONSTRAINT finished_home_not_null NOT NULL,
    lane text CONSTRAINT finished_lane_not_null NOT NULL,
    record bytea CONSTRAINT finished_record_not_null NOT NULL,
    worker text,
    started bigint,
    result bytea,
    error bytea,
    expires bigint,
    keep bigint,
    drop_at bigint,
    key bytea,
    reason text,
    note text,
    label text,
    buckets text[],
    sizes integer[],
    CONSTRAINT finished_check CHECK (((state = 'cancelled'::text) = (reason IS NOT NULL))),
    CONSTRAINT finished_state_check CHECK ((state = ANY (ARRAY['succeeded'::text, 'cancelled'::text])))
);

CREATE TABLE mainspring_stored.follows (
    job bytea NOT NULL,
    state text NOT NULL,
    n integer NOT NULL,
    id bytea NOT NULL,
    task text NOT NULL,
    queue text NOT NULL,
    home text NOT NULL,
    priority integer NOT NULL,
    delay bigint NOT NULL,
    run_at bigint,
    expires_in bigint,
    crash_limit integer NOT NULL,
    early boolean NOT NULL,
    keep bigint,
    marks text[] NOT NULL,
    record bytea NOT NULL,
    CONSTRAINT follows_id_check CHECK ((length(id) = 16)),
    CONSTRAINT follows_state_check CHECK ((state = ANY (ARRAY['succeeded'::text, 'dead'::text, 'cancelled'::text])))
);

CREATE TABLE mainspring_stored.holds (
    bucket text NOT NULL COLLATE pg_catalog."C",
    job bytea NOT NULL
);

CREATE TABLE mainspring_stored.items (
    job bytea NOT NULL,
    n bigint NOT NULL,
    data bytea NOT NULL
);

CREATE TABLE mainspring_stored.jobs (
    seq bigint DEFAULT 0 NOT NULL,
    token bigint DEFAULT 0 NOT NULL,
    enqueued bigint NOT NULL,
    priority integer NOT NULL,
    attempt integer DEFAULT 0 NOT NULL,
    epoch integer DEFAULT 1 NOT NULL,
    crashes integer DEFAULT 0 NOT NULL,
    crash_limit integer NOT NULL,
    deps integer DEFAULT 0 NOT NULL,
    follows smallint DEFAULT 0 NOT NULL,
    early boolean NOT NULL,
    parked boolean DEFAULT false NOT NULL,
    id bytea NOT NULL,
    state text NOT NULL,
    task text NOT NULL,
    queue text NOT NULL,
    home text NOT NULL COLLATE pg_catalog."C",
    lane text NOT NULL COLLATE pg_catalog."C",
    record bytea NOT NULL,
    worker text,
    due bigint,
    expires bigint,
    started bigint,
    turn bigint,
    keep bigint,
    key bytea,
    ordered text,
    buckets text[],
    sizes integer[],
    CONSTRAINT jobs_check CHECK (((state <> 'running'::text) OR (worker IS NOT NULL))),
    CONSTRAINT jobs_check1 CHECK (((state = 'blocked'::text) = (deps > 0))),
    CONSTRAINT jobs_state_check CHECK ((state = ANY (ARRAY['blocked'::text, 'scheduled'::text, 'retrying'::text, 'ready'::text, 'running'::text])))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE mainspring_stored.keys (
    hash bytea NOT NULL,
    job bytea,
    until bigint DEFAULT 0 NOT NULL,
    CONSTRAINT keys_hash_check CHECK ((length(hash) = 16))
)
WITH (fillfactor='70');

CREATE TABLE mainspring_stored.logs (
    job bytea NOT NULL,
    n bigint NOT NULL,
    at bigint NOT NULL,
    level text NOT NULL,
    text bytea NOT NULL
);

CREATE TABLE mainspring_stored.marks (
    mark text NOT NULL COLLATE pg_catalog."C",
    job bytea NOT NULL
);

CREATE TABLE mainspring_stored.meta (
    id uuid NOT NULL
);

CREATE TABLE mainspring_stored.progress (
    job bytea NOT NULL,
    data bytea NOT NULL
)
WITH (fillfactor='70');

CREATE TABLE mainspring_stored.queues (
    name text NOT NULL COLLATE pg_catalog."C",
    mode text NOT NULL,
    since bigint NOT NULL,
    CONSTRAINT queues_mode_check CHECK ((mode = ANY (ARRAY['paused'::text, 'draining'::text])))
);

CREATE TABLE mainspring_stored.retried (
    batch bytea NOT NULL,
    at bigint NOT NULL
);

CREATE TABLE mainspring_stored.schema_version (
    version integer NOT NULL
);

CREATE SEQUENCE mainspring_stored.seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

CREATE TABLE mainspring_stored.workers (
    id text NOT NULL,
    number bigint NOT NULL,
    turn bigint DEFAULT 0 NOT NULL,
    lost boolean DEFAULT false NOT NULL,
    started bigint NOT NULL,
    seen bigint NOT NULL,
    queues text[] NOT NULL,
    tasks text[] NOT NULL,
    lease bigint NOT NULL,
    info bytea NOT NULL
)
WITH (fillfactor='50');

ALTER TABLE ONLY mainspring_stored.finished ATTACH PARTITION mainspring_stored.finished_20261116 FOR VALUES FROM ('1794787200000000') TO ('1794873600000000');

ALTER TABLE ONLY mainspring_stored.finished ATTACH PARTITION mainspring_stored.finished_20261117 FOR VALUES FROM ('1794873600000000') TO ('1794960000000000');

ALTER TABLE ONLY mainspring_stored.finished ATTACH PARTITION mainspring_stored.finished_20261118 FOR VALUES FROM ('1794960000000000') TO ('1795046400000000');

ALTER TABLE ONLY mainspring_stored.finished ATTACH PARTITION mainspring_stored.finished_20261119 FOR VALUES FROM ('1795046400000000') TO ('1795132800000000');

ALTER TABLE ONLY mainspring_stored.finished ATTACH PARTITION mainspring_stored.finished_20261120 FOR VALUES FROM ('1795132800000000') TO ('1795219200000000');

ALTER TABLE ONLY mainspring_stored.finished ATTACH PARTITION mainspring_stored.finished_20261121 FOR VALUES FROM ('1795219200000000') TO ('1795305600000000');

ALTER TABLE ONLY mainspring_stored.finished ATTACH PARTITION mainspring_stored.finished_20261122 FOR VALUES FROM ('1795305600000000') TO ('1795392000000000');

ALTER TABLE ONLY mainspring_stored.finished ATTACH PARTITION mainspring_stored.finished_20261123 FOR VALUES FROM ('1795392000000000') TO ('1795478400000000');

ALTER TABLE ONLY mainspring_stored.finished ATTACH PARTITION mainspring_stored.finished_rest DEFAULT;

INSERT INTO mainspring_stored.attempts VALUES ('\x01900000000070008000000000000007', 1794833099385601, 1, 1, 'hand-1-2a4b04', 1794833099387592, 1794833099391779, 'failed', true, '\x7b2274797065223a2256616c75654572726f72222c2274657874223a226e6f20f09f909b227d');
INSERT INTO mainspring_stored.attempts VALUES ('\x01900000000070008000000000000003', 1794833099385601, 1, 1, 'hand-1-2a4b04', 1794833099387592, 1794833099391779, 'failed', true, '\x7b2274797065223a2256616c75654572726f72222c2274657874223a226e6f20f09f909b227d');

INSERT INTO mainspring_stored.dead VALUES (2, 1794833099385601, 1794833099376545, 1794833099391779, 0, 1, 1, 0, 3, 0, false, '\x01900000000070008000000000000007', 'dead', 'shop.tasks.send', 'q', 'q/any', 'q/any', '\x7b7d', 'hand-1-2a4b04', 1794833099387592, NULL, '\x7b2274797065223a2256616c75654572726f72222c2274657874223a226e6f20f09f909b227d', NULL, NULL, NULL, NULL, 'not_retryable', NULL, 'ValueError', NULL, NULL);

INSERT INTO mainspring_stored.docs VALUES ('schedules', 'nightly', 1, '\x7b7d');

INSERT INTO mainspring_stored.edges VALUES ('\x01900000000070008000000000000004', '\x01900000000070008000000000000005', 'fail');

INSERT INTO mainspring_stored.finished_20261116 VALUES (1, 1794833099385601, 1794833099376545, 1794833099391779, 0, 1, 1, 0, 3, 0, false, '\x01900000000070008000000000000006', 'succeeded', 'shop.tasks.send', 'q', 'q/any', 'q/any', '\x7b7d', 'hand-1-2a4b04', 1794833099387592, '\x22646f6e6522', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO mainspring_stored.finished_20261116 VALUES (7, 0, 1794833099415655, 1794833099421668, 0, 0, 1, 0, 3, 0, false, '\x01900000000070008000000000000008', 'cancelled', 'shop.tasks.send', 'q', 'q/any', 'q/any', '\x7b7d', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'by_user', NULL, NULL, NULL, NULL);

INSERT INTO mainspring_stored.jobs VALUES (4, 1794833099385601, 1794833099376545, 0, 1, 1, 0, 3, 0, 0, false, false, '\x01900000000070008000000000000004', 'running', 'shop.tasks.send', 'q', 'q/any', 'q/any', '\x7b7d', 'hand-1-2a4b04', NULL, NULL, 1794833099387592, 1, NULL, NULL, NULL, NULL, NULL);
INSERT INTO mainspring_stored.jobs VALUES (3, 1794833099385601, 1794833099376545, 0, 1, 1, 0, 3, 0, 0, false, false, '\x01900000000070008000000000000003', 'retrying', 'shop.tasks.send', 'q', 'q/any', 'q/any', '\x7b7d', 'hand-1-2a4b04', 1794836699391779, NULL, 1794833099387592, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO mainspring_stored.jobs VALUES (5, 0, 1794833099415655, 0, 0, 1, 0, 3, 0, 0, false, false, '\x01900000000070008000000000000000', 'ready', 'shop.tasks.send', 'q', 'q/any', 'q/any', '\x7b2261726773223a5b315d7d', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO mainspring_stored.jobs VALUES (6, 0, 1794833099415655, 0, 0, 1, 0, 3, 0, 0, false, false, '\x01900000000070008000000000000001', 'ready', 'shop.tasks.send', 'q', 'q/any', 'q/any', '\x7b7d', NULL, NULL, NULL, NULL, NULL, NULL, '\x6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b', NULL, NULL, NULL);
INSERT INTO mainspring_stored.jobs VALUES (0, 0, 1794833099415655, 0, 0, 1, 0, 3, 0, 0, false, false, '\x01900000000070008000000000000002', 'scheduled', 'shop.tasks.send', 'q', 'q/any', 'q/any', '\x7b7d', NULL, 2794833099415655, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO mainspring_stored.jobs VALUES (0, 0, 1794833099415655, 0, 0, 1, 0, 3, 1, 0, false, false, '\x01900000000070008000000000000005', 'blocked', 'shop.tasks.send', 'q', 'q/any', 'q/any', '\x7b7d', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);

INSERT INTO mainspring_stored.keys VALUES ('\x6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b', '\x01900000000070008000000000000001', 0);

INSERT INTO mainspring_stored.marks VALUES ('tag:stored', '\x01900000000070008000000000000000');

INSERT INTO mainspring_stored.meta VALUES ('2ee3b759-3353-40e7-a333-f6f6f89950ae');

INSERT INTO mainspring_stored.progress VALUES ('\x01900000000070008000000000000004', '\x302e35');

INSERT INTO mainspring_stored.queues VALUES ('slow', 'paused', 1794833099426970);

INSERT INTO mainspring_stored.retried VALUES ('\x01900000000070008000000000000001', 1794833099404161);

INSERT INTO mainspring_stored.schema_version VALUES (1);

INSERT INTO mainspring_stored.workers VALUES ('hand-1-2a4b04', 1, 2, false, 1794833099371907, 1794833099391779, '{q}', '{shop.tasks.send}', 15000000, '\x7b7d');

SELECT pg_catalog.setval('mainspring_stored.seq', 7, true);

ALTER TABLE ONLY mainspring_stored.attempts
    ADD CONSTRAINT attempts_pkey PRIMARY KEY (job, token);

ALTER TABLE ONLY mainspring_stored.buckets
    ADD CONSTRAINT buckets_pkey PRIMARY KEY (name);

ALTER TABLE ONLY mainspring_stored.docs
    ADD CONSTRAINT docs_pkey PRIMARY KEY (kind, name);

ALTER TABLE ONLY mainspring_stored.edges
    ADD CONSTRAINT edges_pkey PRIMARY KEY (parent, child);

ALTER TABLE ONLY mainspring_stored.follows
    ADD CONSTRAINT follows_pkey PRIMARY KEY (job, state, n);

ALTER TABLE ONLY mainspring_stored.holds
    ADD CONSTRAINT holds_pkey PRIMARY KEY (bucket, job);

ALTER TABLE ONLY mainspring_stored.items
    ADD CONSTRAINT items_pkey PRIMARY KEY (job, n);

ALTER TABLE ONLY mainspring_stored.jobs
    ADD CONSTRAINT jobs_pkey PRIMARY KEY (id);

ALTER TABLE ONLY mainspring_stored.keys
    ADD CONSTRAINT keys_pkey PRIMARY KEY (hash);

ALTER TABLE ONLY mainspring_stored.logs
    ADD CONSTRAINT logs_pkey PRIMARY KEY (job, n);

ALTER TABLE ONLY mainspring_stored.marks
    ADD CONSTRAINT marks_pkey PRIMARY KEY (mark, job);

ALTER TABLE ONLY mainspring_stored.progress
    ADD CONSTRAINT progress_pkey PRIMARY KEY (job);

ALTER TABLE ONLY mainspring_stored.queues
    ADD CONSTRAINT queues_pkey PRIMARY KEY (name);

ALTER TABLE ONLY mainspring_stored.retried
    ADD CONSTRAINT retried_pkey PRIMARY KEY (batch);

ALTER TABLE ONLY mainspring_stored.workers
    ADD CONSTRAINT workers_pkey PRIMARY KEY (id);

CREATE INDEX dead_age ON mainspring_stored.dead USING btree (finished, state, drop_at);

CREATE INDEX dead_drop ON mainspring_stored.dead USING btree (drop_at) WHERE (drop_at IS NOT NULL);

CREATE INDEX dead_id ON mainspring_stored.dead USING btree (id);

CREATE INDEX dead_label ON mainspring_stored.dead USING btree (COALESCE(label, reason));

CREATE INDEX edges_child ON mainspring_stored.edges USING btree (child);

CREATE INDEX finished_drop ON ONLY mainspring_stored.finished USING btree (drop_at) WHERE (drop_at IS NOT NULL);

CREATE INDEX finished_20261116_drop_at_idx ON mainspring_stored.finished_20261116 USING btree (drop_at) WHERE (drop_at IS NOT NULL);

CREATE INDEX finished_age ON ONLY mainspring_stored.finished USING btree (finished, state, drop_at);

CREATE INDEX finished_20261116_finished_state_drop_at_idx ON mainspring_stored.finished_20261116 USING btree (finished, state, drop_at);

CREATE INDEX finished_id ON ONLY mainspring_stored.finished USING btree (id);

CREATE INDEX finished_20261116_id_idx ON mainspring_stored.finished_20261116 USING btree (id);

CREATE INDEX finished_20261117_drop_at_idx ON mainspring_stored.finished_20261117 USING btree (drop_at) WHERE (drop_at IS NOT NULL);

CREATE INDEX finished_20261117_finished_state_drop_at_idx ON mainspring_stored.finished_20261117 USING btree (finished, state, drop_at);

CREATE INDEX finished_20261117_id_idx ON mainspring_stored.finished_20261117 USING btree (id);

CREATE INDEX finished_20261118_drop_at_idx ON mainspring_stored.finished_20261118 USING btree (drop_at) WHERE (drop_at IS NOT NULL);

CREATE INDEX finished_20261118_finished_state_drop_at_idx ON mainspring_stored.finished_20261118 USING btree (finished, state, drop_at);

CREATE INDEX finished_20261118_id_idx ON mainspring_stored.finished_20261118 USING btree (id);

CREATE INDEX finished_20261119_drop_at_idx ON mainspring_stored.finished_20261119 USING btree (drop_at) WHERE (drop_at IS NOT NULL);

CREATE INDEX finished_20261119_finished_state_drop_at_idx ON mainspring_stored.finished_20261119 USING btree (finished, state, drop_at);

CREATE INDEX finished_20261119_id_idx ON mainspring_stored.finished_20261119 USING btree (id);

CREATE INDEX finished_20261120_drop_at_idx ON mainspring_stored.finished_20261120 USING btree (drop_at) WHERE (drop_at IS NOT NULL);

CREATE INDEX finished_20261120_finished_state_drop_at_idx ON mainspring_stored.finished_20261120 USING btree (finished, state, drop_at);

CREATE INDEX finished_20261120_id_idx ON mainspring_stored.finished_20261120 USING btree (id);

CREATE INDEX finished_20261121_drop_at_idx ON mainspring_stored.finished_20261121 USING btree (drop_at) WHERE (drop_at IS NOT NULL);

CREATE INDEX finished_20261121_finished_state_drop_at_idx ON mainspring_stored.finished_20261121 USING btree (finished, state, drop_at);

CREATE INDEX finished_20261121_id_idx ON mainspring_stored.finished_20261121 USING btree (id);

CREATE INDEX finished_20261122_drop_at_idx ON mainspring_stored.finished_20261122 USING btree (drop_at) WHERE (drop_at IS NOT NULL);

CREATE INDEX finished_20261122_finished_state_drop_at_idx ON mainspring_stored.finished_20261122 USING btree (finished, state, drop_at);

CREATE INDEX finished_20261122_id_idx ON mainspring_stored.finished_20261122 USING btree (id);

CREATE INDEX finished_20261123_drop_at_idx ON mainspring_stored.finished_20261123 USING btree (drop_at) WHERE (drop_at IS NOT NULL);

CREATE INDEX finished_20261123_finished_state_drop_at_idx ON mainspring_stored.finished_20261123 USING btree (finished, state, drop_at);

CREATE INDEX finished_20261123_id_idx ON mainspring_stored.finished_20261123 USING btree (id);

CREATE INDEX finished_rest_drop_at_idx ON mainspring_stored.finished_rest USING btree (drop_at) WHERE (drop_at IS NOT NULL);

CREATE INDEX finished_rest_finished_state_drop_at_idx ON mainspring_stored.finished_rest USING btree (finished, state, drop_at);

CREATE INDEX finished_rest_id_idx ON mainspring_stored.finished_rest USING btree (id);

CREATE INDEX holds_job ON mainspring_stored.holds USING btree (job);

CREATE INDEX jobs_expiring ON mainspring_stored.jobs USING btree (expires) WHERE ((expires IS NOT NULL) AND (state <> 'running'::text));

CREATE INDEX jobs_later ON mainspring_stored.jobs USING btree (due, seq, state) WHERE (state = ANY (ARRAY['scheduled'::text, 'retrying'::text]));

CREATE INDEX jobs_ordered ON mainspring_stored.jobs USING btree (worker) WHERE (ordered IS NOT NULL);

CREATE INDEX jobs_ready ON mainspring_stored.jobs USING btree (lane, priority DESC, seq) WHERE (state = 'ready'::text);

CREATE INDEX jobs_running ON mainspring_stored.jobs USING btree (worker, turn) WHERE (state = 'running'::text);

CREATE INDEX keys_job ON mainspring_stored.keys USING btree (job);

CREATE INDEX marks_job ON mainspring_stored.marks USING btree (job);

CREATE INDEX retried_at ON mainspring_stored.retried USING btree (at);

ALTER INDEX mainspring_stored.finished_drop ATTACH PARTITION mainspring_stored.finished_20261116_drop_at_idx;

ALTER INDEX mainspring_stored.finished_age ATTACH PARTITION mainspring_stored.finished_20261116_finished_state_drop_at_idx;

ALTER INDEX mainspring_stored.finished_id ATTACH PARTITION mainspring_stored.finished_20261116_id_idx;

ALTER INDEX mainspring_stored.finished_drop ATTACH PARTITION mainspring_stored.finished_20261117_drop_at_idx;

ALTER INDEX mainspring_stored.finished_age ATTACH PARTITION mainspring_stored.finished_20261117_finished_state_drop_at_idx;

ALTER INDEX mainspring_stored.finished_id ATTACH PARTITION mainspring_stored.finished_20261117_id_idx;

ALTER INDEX mainspring_stored.finished_drop ATTACH PARTITION mainspring_stored.finished_20261118_drop_at_idx;

ALTER INDEX mainspring_stored.finished_age ATTACH PARTITION mainspring_stored.finished_20261118_finished_state_drop_at_idx;

ALTER INDEX mainspring_stored.finished_id ATTACH PARTITION mainspring_stored.finished_20261118_id_idx;

ALTER INDEX mainspring_stored.finished_drop ATTACH PARTITION mainspring_stored.finished_20261119_drop_at_idx;

ALTER INDEX mainspring_stored.finished_age ATTACH PARTITION mainspring_stored.finished_20261119_finished_state_drop_at_idx;

ALTER INDEX mainspring_stored.finished_id ATTACH PARTITION mainspring_stored.finished_20261119_id_idx;

ALTER INDEX mainspring_stored.finished_drop ATTACH PARTITION mainspring_stored.finished_20261120_drop_at_idx;

ALTER INDEX mainspring_stored.finished_age ATTACH PARTITION mainspring_stored.finished_20261120_finished_state_drop_at_idx;

ALTER INDEX mainspring_stored.finished_id ATTACH PARTITION mainspring_stored.finished_20261120_id_idx;

ALTER INDEX mainspring_stored.finished_drop ATTACH PARTITION mainspring_stored.finished_20261121_drop_at_idx;

ALTER INDEX mainspring_stored.finished_age ATTACH PARTITION mainspring_stored.finished_20261121_finished_state_drop_at_idx;

ALTER INDEX mainspring_stored.finished_id ATTACH PARTITION mainspring_stored.finished_20261121_id_idx;

ALTER INDEX mainspring_stored.finished_drop ATTACH PARTITION mainspring_stored.finished_20261122_drop_at_idx;

ALTER INDEX mainspring_stored.finished_age ATTACH PARTITION mainspring_stored.finished_20261122_finished_state_drop_at_idx;

ALTER INDEX mainspring_stored.finished_id ATTACH PARTITION mainspring_stored.finished_20261122_id_idx;

ALTER INDEX mainspring_stored.finished_drop ATTACH PARTITION mainspring_stored.finished_20261123_drop_at_idx;

ALTER INDEX mainspring_stored.finished_age ATTACH PARTITION mainspring_stored.finished_20261123_finished_state_drop_at_idx;

ALTER INDEX mainspring_stored.finished_id ATTACH PARTITION mainspring_stored.finished_20261123_id_idx;

ALTER INDEX mainspring_stored.finished_drop ATTACH PARTITION mainspring_stored.finished_rest_drop_at_idx;

ALTER INDEX mainspring_stored.finished_age ATTACH PARTITION mainspring_stored.finished_rest_finished_state_drop_at_idx;

ALTER INDEX mainspring_stored.finished_id ATTACH PARTITION mainspring_stored.finished_rest_id_idx;

