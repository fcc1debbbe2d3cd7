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
	unstarted boolean,
	park boolean,
	slow bigint,
	spent jsonb,
	buckets jsonb,
	ran bigint,
	delays bigint[]
);

CREATE TYPE mainspring_stored.capacity_v1 AS (
	name text,
	kind text,
	size bigint,
	used bigint,
	available bigint,
	cap bigint,
	unit bigint
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
	refund integer,
	ran bigint
);

CREATE TYPE mainspring_stored.examined_v1 AS (
	eligible bigint[],
	examined bigint[],
	locked text[],
	capacities mainspring_stored.capacity_v1[],
	more boolean
);

CREATE TYPE mainspring_stored.held_back_v1 AS (
	queues text[],
	next_at bigint
);

CREATE TYPE mainspring_stored.judged_edge_v1 AS (
	at integer,
	parent bytea,
	policy text,
	effect text
);

CREATE TYPE mainspring_stored.lane_head_v1 AS (
	lane text,
	priority integer,
	seq bigint,
	lane_set text,
	queue text,
	buckets text[]
);

CREATE TYPE mainspring_stored.lane_v1 AS (
	lane text,
	suspect boolean,
	buckets text[],
	costs bigint[],
	priority integer,
	seq bigint,
	keyed boolean
);

CREATE TYPE mainspring_stored.limit_locks_v1 AS (
	exclusive text[],
	shared text[],
	skipped text[],
	plentiful text[],
	ahead text[],
	lanes mainspring_stored.lane_v1[],
	now bigint
);

CREATE TYPE mainspring_stored.met_edge_v1 AS (
	parent bytea,
	child bytea,
	effect text,
	counted text
);

CREATE TYPE mainspring_stored.met_v1 AS (
	endings mainspring_stored.ending_v1[],
	counted bytea[],
	first_deaths bytea[],
	woken text[]
);

CREATE TYPE mainspring_stored.moved_v1 AS (
	done bytea[],
	token bigint[],
	woken text[],
	parents boolean
);

CREATE TYPE mainspring_stored.parent_end_v1 AS (
	id bytea,
	how text
);

CREATE TYPE mainspring_stored.picked_v1 AS (
	ids bytea[],
	examined bigint[],
	locked text[],
	more boolean
);

CREATE TYPE mainspring_stored.replaced_v1 AS (
	at integer,
	enqueued bigint,
	epoch integer,
	seq bigint,
	queue text,
	leaves text
);

CREATE TYPE mainspring_stored.settled_v1 AS (
	rechecked bigint[],
	next_at bigint
);

CREATE TYPE mainspring_stored.taken_back_v1 AS (
	id bytea,
	state text,
	reason text,
	charged boolean,
	due bigint
);

CREATE TYPE mainspring_stored.waits_v1 AS (
	waits integer[],
	broken bytea[],
	bypassed bytea[],
	edge_at integer[],
	edge_parent bytea[],
	edge_policy text[]
);

CREATE FUNCTION mainspring_stored.accept_jobs_v1(p_ids bytea[]) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
declare
    v_queue mainspring_stored.queues;
begin
    if not exists (select 1 from mainspring_stored.queues q where q.special) then
        return false;
    end if;
    select q.* into v_queue from mainspring_stored.queues q
    where (q.mode = 'draining' or q.disabled = 'reject')
        and exists (select 1 from mainspring_stored.jobs j where j.id = any(p_ids) and j.queue = q.name)
    order by q.name limit 1;
    if v_queue.mode = 'draining' then
        raise exception '%', v_queue.name using errcode = 'MS003';
    elsif v_queue.name is not null then
        raise exception '%', v_queue.name using errcode = 'MS004', detail = v_queue.disabled_by;
    end if;
    perform mainspring_stored.apply_settings_v1(p_ids);
    return true;
end
$$;

CREATE FUNCTION mainspring_stored.ack_successes_v1(p_worker text, p_id bytea[], p_token bigint[], p_result bytea[], p_error bytea[], p_ran bigint[], p_limited boolean, p_now bigint) RETURNS mainspring_stored.moved_v1
    LANGUAGE plpgsql
    AS $$
declare
    v_done bytea[];
    v_token bigint[];
begin
    -- By primary key; state and worker are expressions (see docs/internals/postgres-plans.md).
    with gone as (
        delete from mainspring_stored.jobs j using unnest(p_id, p_token, p_result, p_error, p_ran) as a(id, token, result, error, ran)
        where j.id = any(array[a.id]) and j.token = a.token and j.state || '' = 'running' and j.worker || '' = p_worker
            and j.ordered is null and (j.buckets is null or j.buckets = '{}' or p_limited) and j.followed & 1 = 0
        returning j.seq, j.token, j.enqueued, j.priority, j.attempt, j.epoch, j.crashes, j.crash_limit, j.followed, j.early,
            j.id, j.task, j.queue, j.home, j.lane, j.record, j.started, j.expires, j.keep, j.key, j.buckets,
            j.costs, a.result, a.error, a.ran
    ), kept as (
        insert into mainspring_stored.finished (
            seq, token, enqueued, finished, priority, attempt, epoch, crashes, crash_limit, followed, early, id, state, task,
            queue, home, lane, record, worker, started, ran, result, error, expires, keep, drop_at, key, buckets, costs
        )
        select seq, token, enqueued, p_now, priority, attempt, epoch, crashes, crash_limit, followed, early, id,
            'succeeded', task,
            queue, home, lane, record, p_worker, started, ran, result, error, expires, keep,
            case when keep is not null then p_now + least(keep, 4611686018427387904) end, key, buckets, costs
        from gone
        returning id, token, buckets
    ), freed as (
        select b.name, sum(k.n) as n from (
            select kept.buckets, count(*) as n from kept where p_limited group by kept.buckets
        ) k cross join unnest(k.buckets) as b(name) group by b.name
    ), empty as (
        delete from mainspring_stored.bucket_uses u using freed f where u.bucket = any(array[f.name]) and u.worker = p_worker
            and u.n <= f.n
    ), fewer as (
        update mainspring_stored.bucket_uses u set n = u.n - f.n from freed f
        where u.bucket = any(array[f.name]) and u.worker = p_worker and u.n > f.n
    )
    select coalesce(array_agg(kept.id), '{}'), coalesce(array_agg(kept.token), '{}')
    into v_done, v_token from kept;
    return (v_done, v_token, '{}'::text[], exists (select 1 from mainspring_stored.edges e where e.parent = any(v_done)));
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
    v_joins bytea[];
    v_woken text[] := '{}';
    v_row record;
begin
    perform mainspring_stored.guard_v1();
    if p_action in ('retry', 'delete') then
        v_woken := mainspring_stored.lock_keys_of_v1(p_ids, p_action = 'retry', p_now);
    end if;
    if p_action in ('cancel', 'delete') then
        perform mainspring_stored.lock_with_dependents_v1(p_ids);
    end if;
    perform mainspring_stored.lock_jobs_v1(p_ids);
    v_now := mainspring_stored.now_v1(p_now);
    perform mainspring_stored.follow_clock_v1(v_now);
    v_found := mainspring_stored.find_matching_v1(
        p_ids, p_states, p_queues, p_tasks, p_marks, p_reasons, p_errors, p_since, p_until, p_ended_before
    );
    return query select 'refused', x.id, x.state, null::bytea from unnest(v_found) x where x.state <> all(p_sources);
    v_able := array(select x.id from unnest(v_found) x where x.state = any(p_sources));
    if p_action = 'retry' then -- a join is retried with its members, by retry_flow
        v_joins := array(select o.id from mainspring_stored.joins o where o.id = any(v_able));
        return query select 'refused', x.id, x.state, null::bytea from unnest(v_found) x where x.id = any(v_joins);
        v_able := array(select u.id from unnest(v_able) as u(id) where u.id <> all(v_joins));
    end if;
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

CREATE FUNCTION mainspring_stored.add_before_v1(p_id bytea[], p_take boolean[], p_before_at integer[], p_before bytea[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    with made as (
        insert into mainspring_stored.edges (parent, child, policy)
        select p_id[b.at], b.child, case when o.id is not null then 'member' else 'fail' end
        from unnest(p_before_at, p_before) as b(at, child)
        left join lateral (select x.id from mainspring_stored.joins x where x.id = any(array[b.child])) o on true
        where p_take[b.at]
        on conflict do nothing
        returning child
    ), tally as (
        select m.child, count(*)::integer as n from made m group by m.child
    ), waiting as (
        update mainspring_stored.jobs j set deps = j.deps + t.n from tally t where j.id = any(array[t.child])
    )
    update mainspring_stored.joins o set total = o.total + t.n from tally t where o.id = any(array[t.child]);
end
$$;

CREATE FUNCTION mainspring_stored.add_buckets_to_jobs_v1(p_acks mainspring_stored.ack_v1[], p_ids bytea[]) RETURNS bytea[]
    LANGUAGE plpgsql
    AS $$
declare
    v_changed bytea[];
begin
    with more as (
        select o.id, o.home, o.queue, m.pair ->> 0 as name, (m.pair ->> 1)::bigint as cost, m.pair ->> 2 as label
        from unnest(p_acks) a join mainspring_stored.jobs o on o.id = any(array[a.id])
            cross join jsonb_array_elements(a.buckets) as m(pair)
        where a.id = any(p_ids) and a."to" = 'ready' and not exists (
            select 1 from unnest(o.buckets) as b(name) where split_part(b.name, '=', 1) = split_part(m.pair ->> 0, '=', 1)
        )
    ), named as (
        select s.id, bool_or(s.cost <> 1) as costly, array_agg(s.name order by s.name collate "C") as names,
            array_agg(s.cost order by s.name collate "C") as costs
        from (
            select n.id, n.name, n.cost from more n
            union all
            select o.id, b.name, coalesce(b.cost, 1) from mainspring_stored.jobs o cross join unnest(o.buckets, o.costs) as b(name, cost)
            where o.id = any(array(select n.id from more n))
        ) s group by s.id
    ), placed as (
        select n.id, mainspring_stored.lane_with_limits_v1(n.home, n.queue, jsonb_agg(n.label)) as home
            from more n group by n.id, n.home, n.queue
    ), moved as (
        update mainspring_stored.jobs j
        set home = p.home, lane = mainspring_stored.job_lane_v1(p.home, j.task, j.crashes, j.crash_limit, j.parked),
            buckets = n.names, costs = case when n.costly then n.costs end
        from placed p join named n on n.id = p.id
        where j.id = any(array[p.id])
        returning j.id
    )
    select coalesce(array_agg(m.id), '{}') into v_changed from moved m;
    return v_changed;
end
$$;

CREATE FUNCTION mainspring_stored.add_buckets_v1(p_names text[], p_wait boolean) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    c_most constant integer := 64;
    v_new text[] := array(
        select distinct u.name collate "C" from unnest(p_names) as u(name)
        where not exists (select 1 from mainspring_stored.buckets b where b.name = any(array[u.name]))
    );
begin
    if cardinality(v_new) = 0 then
        return;
    elsif p_wait then
        perform pg_advisory_xact_lock(k.key) from (
            select distinct hashtextextended('mainspring_stored bucket ' || u.name, 0) as key from unnest(v_new) as u(name) order by 1
        ) k;
    else
        v_new := array(
            select u.name from unnest(v_new[1:c_most]) as u(name)
            where pg_try_advisory_xact_lock(hashtextextended('mainspring_stored bucket ' || u.name, 0))
        );
    end if;
    insert into mainspring_stored.buckets (name) select u.name from unnest(v_new) as u(name) order by u.name collate "C"
    on conflict (name) do nothing;
end
$$;

CREATE FUNCTION mainspring_stored.add_details_v1(p_id bytea[], p_take boolean[], p_mark_at integer[], p_mark text[], p_follow_ups jsonb) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    insert into mainspring_stored.marks (mark, job)
    select u.mark, p_id[u.at] from unnest(p_mark_at, p_mark) as u(at, mark) where p_take[u.at]
    on conflict do nothing;
    if p_follow_ups is not null then
        perform mainspring_stored.store_follow_ups_v1(p_id[f.at], f.rows, false) from (
            select (r.value ->> 'at')::integer as at, jsonb_agg(r.value) as rows
            from jsonb_array_elements(p_follow_ups) as r group by 1
        ) f
        where p_take[f.at];
    end if;
end
$$;

CREATE FUNCTION mainspring_stored.add_edges_v1(p_id bytea[], p_take boolean[], p_waits mainspring_stored.waits_v1, p_join_at integer[], p_open boolean[], p_lenient boolean[], p_before_at integer[], p_before bytea[], p_now bigint) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
begin
    insert into mainspring_stored.edges (parent, child, policy)
    select e.parent, p_id[e.at], e.policy
    from unnest(p_waits.edge_at, p_waits.edge_parent, p_waits.edge_policy) as e(at, parent, policy) where p_take[e.at];
    if cardinality(p_join_at) > 0 then
        insert into mainspring_stored.joins as o (id, open, lenient)
        select p_id[u.at], u.open, u.lenient from unnest(p_join_at, p_open, p_lenient) as u(at, open, lenient) where p_take[u.at]
        on conflict (id) do update set open = excluded.open, lenient = excluded.lenient, total = 0, succeeded = 0, dead = 0,
            cancelled = 0, bypassed = 0, last_end = 0;
        insert into mainspring_stored.edges (parent, child, policy)
        select p_id[u.at], p_id[u.at], 'hold' from unnest(p_join_at) as u(at) where p_take[u.at];
    end if;
    if cardinality(p_before_at) > 0 then
        perform mainspring_stored.add_before_v1(p_id, p_take, p_before_at, p_before);
    end if;
    if cardinality(p_waits.broken) + cardinality(p_waits.bypassed) = 0 then
        return '{}';
    end if;
    return mainspring_stored.cancel_waiting_v1(p_waits.broken, 'parent', null, p_now)
        || mainspring_stored.cancel_waiting_v1(p_waits.bypassed, 'bypassed', null, p_now);
end
$$;

CREATE FUNCTION mainspring_stored.add_holder_v1(p_holder bytea, p_names text[], p_costs bigint[], p_until bigint, p_info bytea, p_fenced boolean, p_now bigint) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
declare
    v_token bigint := case when p_fenced then mainspring_stored.next_token_v1(p_names, p_now) else 0 end;
begin
    insert into mainspring_stored.holders (holder, bucket, cost, until, token, since, info)
    select p_holder, u.name, u.cost, p_until, v_token, p_now, p_info from unnest(p_names, p_costs) as u(name, cost);
    perform mainspring_stored.charge_rates_v1(
        '', array(select u.name from unnest(p_names) with ordinality as u(name, n) order by u.n),
        array(
            select least(u.cost, r.unit) from unnest(p_names, p_costs) with ordinality as u(name, cost, n)
            join unnest(mainspring_stored.read_capacities_v1(p_names, p_now)) r on r.name = u.name order by u.n
        ), null, p_now
    );
    return v_token;
end
$$;

CREATE FUNCTION mainspring_stored.add_lane_rows_v1(p_ids bytea[], p_open boolean) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    v_heads mainspring_stored.lane_head_v1[] := array(
        select row(
            j.lane, j.priority, min(j.seq), left(j.home, k.at) || substr(j.lane, length(j.home) + 1), j.queue, j.buckets
        )::mainspring_stored.lane_head_v1
        from mainspring_stored.jobs j cross join lateral (select mainspring_stored.key_position_v1(j.home, j.queue) as at) k
        where j.id = any(p_ids) and j.buckets is not null and k.at > 0 and j.state || '' = 'ready'
        group by j.lane, j.priority, j.home, k.at, j.queue, j.buckets
    );
    v_present mainspring_stored.lane_head_v1[] := '{}';
begin
    if cardinality(v_heads) = 0 then
        return;
    end if;
    if not p_open and current_setting('transaction_isolation') = 'read committed' then
        v_present := array(
            select row(l.lane, l.priority, 0, null, null, null)::mainspring_stored.lane_head_v1
                from unnest(v_heads) n join mainspring_stored.keyed_lanes l
                on l.lane = any(array[n.lane]) and l.priority = n.priority and l.seq <= n.seq
            for key share of l
        );
    end if;
    -- Grouped: to search a list for each lane of a large batch takes longer than a call may.
    insert into mainspring_stored.keyed_lanes (lane, priority, seq, lane_set, queue, buckets, step, vtime)
    select a.*, f.step, mainspring_stored.first_vtime_v1(a.queue, a.priority, f.step)
    from (
        select s.lane, s.priority, max(s.seq) as seq, max(s.lane_set) as lane_set, max(s.queue) as queue,
            max(s.buckets) as buckets
        from (
            select n.*, false as there from unnest(v_heads) n union all select t.*, true from unnest(v_present) t
        ) s
        group by s.lane, s.priority having not bool_or(s.there)
    ) a cross join lateral (select mainspring_stored.fair_step_v1(a.lane, a.queue) as step offset 0) f;
end
$$;

CREATE FUNCTION mainspring_stored.add_limits_v1(p_limits jsonb) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    insert into mainspring_stored.limits (name, kind, size, per, burst, share, span)
    select u.name, u.kind, u.size, u.per, u.burst, u.share, u.span
    from jsonb_to_recordset(p_limits)
        as u(name text, kind text, size bigint, per bigint, burst bigint, share bigint, span bigint)
    where not exists (select 1 from mainspring_stored.limits l where l.name = any(array[u.name]))
    order by u.name collate "C"
    on conflict (name) do nothing;
end
$$;

CREATE FUNCTION mainspring_stored.advance_flows_v1(p_limit integer, p_now bigint) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
declare
    v_work mainspring_stored.flow_work;
    v_woken text[];
begin
    select w.* into v_work from mainspring_stored.flow_work w where w.at <= p_now order by w.at, w.id limit 1 for update skip locked;
    if v_work.id is null then
        return '{}';
    elsif v_work.work <> 'release' then
        return mainspring_stored.sweep_flow_v1(v_work, p_limit, p_now);
    end if;
    v_woken := mainspring_stored.resolve_dependents_v1(
        array[row(v_work.id, v_work.how)::mainspring_stored.parent_end_v1], p_limit, p_now
    );
    if not exists (select 1 from mainspring_stored.edges e where e.parent = v_work.id) then
        delete from mainspring_stored.flow_work w where w.id = v_work.id and w.work = v_work.work;
    end if;
    return v_woken;
end
$$;

CREATE FUNCTION mainspring_stored.answer_found_v1(p_id bytea[], p_new boolean[], p_answers bytea[]) RETURNS bytea[]
    LANGUAGE plpgsql
    AS $$
begin
    return array(
        select coalesce(u.answer, case when not u.new then u.id end)
        from unnest(p_id, p_new, p_answers) with ordinality as u(id, new, answer, n) order by u.n
    );
end
$$;

CREATE FUNCTION mainspring_stored.apply_acks_v1(p_worker text, p_acks mainspring_stored.ack_v1[], p_now bigint, p_ended mainspring_stored.parent_end_v1[] DEFAULT '{}'::mainspring_stored.parent_end_v1[]) RETURNS TABLE(kind text, id bytea, token bigint, queue text)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    v_ids bytea[] := array(select a.id from unnest(p_acks) a);
    v_applicable mainspring_stored.ack_v1[];
    v_applied integer[];
    v_crashed mainspring_stored.taken_back_v1[] := '{}';
    v_woken text[];
begin
    -- A transaction that moves running rows holds the row of their worker, as this one does; only a cancel order can
    -- still come between.
    perform 1 from mainspring_stored.jobs j where j.id = any(v_ids) order by j.id for update;
    v_applicable := array(
        select a from unnest(p_acks) a join mainspring_stored.jobs j on j.id = any(array[a.id])
        where j.token = a.token and j.state || '' = 'running' and j.worker || '' = p_worker
    );
    v_applied := array(select g.n from unnest(v_applicable) g);
    perform mainspring_stored.correct_acked_costs_v1(v_applicable, p_now);
    v_woken := mainspring_stored.hand_back_v1(p_worker, v_applicable, p_now);
    if exists (select 1 from unnest(v_applicable) a where a.outcome = 'crashed') then
        v_crashed := mainspring_stored.plan_crashes_v1(v_applicable, p_now);
        perform mainspring_stored.release_uses_v1(p_worker, mainspring_stored.list_buckets_v1(array(select c.id from unnest(v_crashed) c)));
        v_woken := v_woken || mainspring_stored.place_taken_back_v1(v_crashed, p_worker);
    end if;
    v_woken := v_woken || mainspring_stored.finish_v1(
        mainspring_stored.list_taken_ends_v1(v_crashed, v_applicable) || array(
            select case when j.ordered is null
                then row(a.id, a."to", a.reason, a.result, a.error, a.label, null, a.refund::integer, a.ran)::mainspring_stored.ending_v1
                else row(
                    a.id, 'cancelled', 'by_user', null, a.error, null, nullif(j.ordered, ''), a.refund::integer, a.ran
                )::mainspring_stored.ending_v1 end
            from unnest(v_applicable) a join mainspring_stored.jobs j on j.id = any(array[a.id])
            where j.token = a.token and j.state || '' = 'running' and a.outcome <> 'crashed'
        ), p_now, p_ended
    );
    return query select 'woken', null::bytea, null::bigint, w.queue from unnest(v_woken) w(queue);

    if cardinality(v_applicable) < cardinality(p_acks) then
        return query
        select case when coalesce(
                (
                    select t.worker = p_worker and t.acked and t.outcome = a.outcome from mainspring_stored.attempts t
                    where t.job = any(array[a.id]) and t.token = a.token
                ),
                -- A plain success leaves no attempt: its row in history has the facts, or the live row of the next
                -- epoch.
                a.outcome = 'succeeded' and (exists (
                    select 1 from mainspring_stored.finished f
                    where f.id = any(array[a.id]) and f.token = a.token and f.worker = p_worker and f.state = 'succeeded'
                ) or exists (
                    select 1 from mainspring_stored.jobs j
                    where j.id = any(array[a.id]) and j.token = a.token and j.worker || '' = p_worker
                        and j.state || '' <> 'running'
                ))
            ) then 'already' else 'stale' end, a.id, a.token, null
        from unnest(p_acks) a where a.n <> all(v_applied);
    end if;
end
$$;

CREATE FUNCTION mainspring_stored.apply_settings_v1(p_ids bytea[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    update mainspring_stored.jobs j
    set seq = n.seq, counted = n.counted, home = n.home, lane = n.home, buckets = n.buckets, costs = n.costs
    from (
        select o.id, q.bounded and o.followed & 4 = 0 as counted,
            case when q.settings ->> 'order' = 'lifo' then -greatest(o.seq, 1) else o.seq end as seq,
            case when m.names is null then o.home else mainspring_stored.lane_with_limits_v1(o.home, o.queue,
                q.settings -> 'labels') end as home,
            coalesce(m.names, o.buckets) as buckets, case when m.names is null then o.costs when m.costly
                then m.costs end as costs
        from mainspring_stored.jobs o join mainspring_stored.queues q on q.name = any(array[o.queue]) and q.settings is not null
        cross join lateral (
            select array_agg(x.name order by x.name collate "C") as names, bool_or(x.cost <> 1) as costly,
                array_agg(x.cost order by x.name collate "C") as costs
            from (
                select b.name, coalesce(b.cost, 1) as cost from unnest(o.buckets, o.costs) as b(name, cost)
                union all
                select l.pair ->> 0, (l.pair ->> 1)::bigint from jsonb_array_elements(q.settings -> 'limits') as l(pair)
                where o.buckets is null or l.pair ->> 0 <> all(o.buckets)
            ) x
            where jsonb_array_length(q.settings -> 'limits') > 0
        ) m
        where o.id = any(p_ids)
    ) n
    where j.id = any(array[n.id]);
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

CREATE FUNCTION mainspring_stored.bring_back_limits_v1(p_step bigint, p_now bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    perform 1 from mainspring_stored.buckets b where b.tat > p_now or b.blocked_until > p_now
        or exists (select 1 from mainspring_stored.rate_starts s where s.bucket = b.name and s.last > p_now)
        or exists (select 1 from mainspring_stored.breakers r where r.name = b.name and r.opened > p_now)
    order by b.name for update;
    -- New statements: they see what the turns wrote that had locked the buckets before.
    update mainspring_stored.rate_starts s set first = least(s.first, p_now), last = p_now where s.last > p_now;
    update mainspring_stored.buckets b
    set tat = least(b.tat, p_now + greatest(l.per, mainspring_stored.smooth_time_v1(greatest(l.burst, 1), l.per, z.size))),
        blocked_until = least(b.blocked_until, greatest(p_now, b.blocked_until - p_step))
    from mainspring_stored.limits l cross join lateral (select coalesce(l.set_size, l.size) as size) z
    where l.name = any(array[split_part(b.name, '=', 1)]) and (b.tat > p_now or b.blocked_until > p_now);
    update mainspring_stored.breakers r
    set until = case when r.until = 4503599627370496 then r.until
            else p_now + greatest(0, least(r.until - r.opened, r.until - p_step - p_now)) end,
        opened = p_now
    where r.opened > p_now;
    update mainspring_stored.keyed_lanes l set recheck_at = p_now where l.recheck_at > p_now;
end
$$;

CREATE FUNCTION mainspring_stored.buckets_v1(p_names text[], p_costs bigint[], p_now bigint) RETURNS TABLE(at bigint, kind text, size bigint, used bigint, next_at bigint, holders bytea[], breaker text)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    v_now bigint := mainspring_stored.now_v1(p_now);
begin
    return query
    select u.n, r.kind, r.size,
        -- While all places are taken, the reserved next place is none of them.
        r.used - (r.kind = 'concurrency' and r.used > r.size and exists (
            select 1 from mainspring_stored.holders g where g.holder = 'next' and g.bucket = u.name and g.until > v_now
        ))::integer,
        mainspring_stored.find_next_start_v1(u.name, u.cost, v_now), array(
        select j.id from mainspring_stored.bucket_uses x cross join lateral (
            select o.id, o.started from mainspring_stored.jobs o
            where o.state = 'running' and o.worker = x.worker and u.name = any(o.buckets)
        ) j
        where x.bucket = u.name order by j.started, j.id limit 10
    ), case when r.kind = 'breaker' then mainspring_stored.read_breaker_v1(u.name, v_now) end
    from unnest(p_names, p_costs) with ordinality as u(name, cost, n)
    cross join lateral (select ((mainspring_stored.read_capacities_v1(array[u.name], v_now))[1]).*) r
    where r.kind is not null order by u.n;
end
$$;

CREATE FUNCTION mainspring_stored.cancel_v1(p_ids bytea[], p_reason text, p_now bigint) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
begin
    update mainspring_stored.jobs j set ordered = coalesce(j.ordered, p_reason) where j.id = any(p_ids) and j.state || '' = 'running';
    return mainspring_stored.finish_v1(
        array(
            select row(j.id, 'cancelled', 'by_user', null, null, null, nullif(p_reason, ''), 0, null)::mainspring_stored.ending_v1
            from mainspring_stored.jobs j where j.id = any(p_ids) and j.state || '' <> 'running'
        ), p_now
    );
end
$$;

CREATE FUNCTION mainspring_stored.cancel_waiting_v1(p_ids bytea[], p_reason text, p_note text, p_now bigint) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
begin
    return mainspring_stored.finish_v1(
        array(
            select row(j.id, 'cancelled', p_reason, null, null, null, p_note, 0, null)::mainspring_stored.ending_v1
            from mainspring_stored.jobs j where j.id = any(p_ids) and j.state || '' <> 'running'
        ), p_now
    );
end
$$;

CREATE FUNCTION mainspring_stored.charge_fair_lanes_v1(p_ids bytea[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    with took as (
        select j.lane, j.priority, j.queue, count(*) as n, max(j.seq) as last
        from mainspring_stored.jobs j where j.id = any(p_ids) and j.buckets is not null
        group by j.lane, j.priority, j.queue
    ), behind as (
        select l.id, t.*, l.step, m.seq as more,
            greatest(l.vtime, c.vtime) + (t.n - 1) * l.step as at
        from took t
        join mainspring_stored.keyed_lanes l on l.lane = any(array[t.lane]) and l.priority = t.priority and l.step is not null
        left join mainspring_stored.fair_clocks c on c.queue = any(array[t.queue]) and c.priority = t.priority
        left join lateral (
            select j.seq from mainspring_stored.jobs j
            where j.state = 'ready' and j.lane = t.lane and j.priority = t.priority and j.seq > t.last order by j.seq limit 1
        ) m on true
    ), put_back as (
        update mainspring_stored.keyed_lanes l set vtime = b.at + b.step from behind b where l.id = any(array[b.id]) and b.more is not null
    )
    insert into mainspring_stored.fair_clocks (queue, priority, vtime)
    select b.queue, b.priority, max(b.at) from behind b group by b.queue, b.priority
    on conflict (queue, priority) do update set vtime = greatest(fair_clocks.vtime, excluded.vtime);
end
$$;

CREATE FUNCTION mainspring_stored.charge_rates_v1(p_worker text, p_names text[], p_amounts bigint[], p_times bigint[], p_now bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    with used as materialized (
        select u.name, u.amount, l.per, s.at, coalesce((p_now - s.first) * 1000 < l.per, false) as joins
        from unnest(p_names, p_amounts) as u(name, amount)
        join mainspring_stored.limits l on l.name = any(array[split_part(u.name, '=', 1)]) and l.kind = 'rate'
        left join lateral (
            select x.ctid as at, x.first from mainspring_stored.rate_starts x
            where x.bucket = u.name and x.worker = p_worker and (p_now - x.last) * 1000 < l.per
                order by x.last desc limit 1
        ) s on true
    ), joined as (
        update mainspring_stored.rate_starts x set last = greatest(x.last, p_now), n = x.n + u.amount
        from used u where x.ctid = u.at and u.joins
    ), over as (
        delete from mainspring_stored.rate_starts x using used u
        where not u.joins and x.ctid = any(array(
            select o.ctid from mainspring_stored.rate_starts o where o.bucket = u.name and o.last <= p_now - u.per for update skip locked
        ))
    )
    insert into mainspring_stored.rate_starts (bucket, worker, first, last, n)
    select u.name, p_worker, p_now, p_now, u.amount from used u where not u.joins;
    update mainspring_stored.buckets b
    set tat = greatest(b.tat, p_now)
        + coalesce(u.time, mainspring_stored.smooth_time_v1(u.amount, l.per, coalesce(l.set_size, l.size)))
    from unnest(p_names, p_amounts, p_times) as u(name, amount, time)
    join mainspring_stored.limits l on l.name = any(array[split_part(u.name, '=', 1)]) and l.kind = 'smooth'
    where b.name = any(array[u.name]);
end
$$;

CREATE FUNCTION mainspring_stored.claim_above_v1(p_lanes text[], p_n integer, p_worker text, p_number bigint, p_now bigint, p_low_lane text[], p_low_priority integer[], p_low_seq bigint[], p_inline integer, p_max_bytes bigint) RETURNS TABLE(kind text, id bytea, token bigint, task text, queue text, lane text, priority integer, attempt integer, epoch integer, crashes integer, early boolean, enqueued bigint, expires bigint, record bytea, turn bigint, note text)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    v_level record;
    v_got integer;
    v_left integer := p_n;
    v_bytes_left bigint := p_max_bytes;
    v_contended boolean := false;
begin
    <<again>>
    loop
        for v_level in
            select l.*, lead(mainspring_stored.order_key_v1(l.seq, l.priority)) over w as following
            from mainspring_stored.find_levels_above_v1(p_lanes, p_low_lane, p_low_priority, p_low_seq, mainspring_stored.now_v1(p_now)) l
            window w as (order by mainspring_stored.order_key_v1(l.seq, l.priority), l.lane, l.priority)
            order by mainspring_stored.order_key_v1(l.seq, l.priority), l.lane, l.priority
        loop
            exit again when v_left <= 0;
            v_bytes_left := p_max_bytes - mainspring_stored.count_claimed_bytes_v1(p_worker, p_number);
            exit again when v_bytes_left <= 0;
            -- Two first jobs with the same key: + 1, so that a step takes at least one job.
            return query select t.* from mainspring_stored.claim_lane_v1(
                v_level.lane, v_level.priority, v_level.seq, case when not v_contended then v_level.following + 1 end,
                v_left, p_worker, p_number, p_now, p_inline, v_bytes_left
            ) t;
            get diagnostics v_got = row_count;
            v_left := v_left - v_got;
            v_contended := v_contended or v_got = 0;
            exit when not v_contended;
        end loop;
        exit when v_contended or not found;
    end loop;
end
$$;

CREATE FUNCTION mainspring_stored.claim_jobs_v1(p_ids bytea[], p_worker text, p_number bigint, p_now bigint, p_inline integer, p_max_bytes bigint) RETURNS TABLE(kind text, id bytea, token bigint, task text, queue text, lane text, priority integer, attempt integer, epoch integer, crashes integer, early boolean, enqueued bigint, expires bigint, record bytea, turn bigint, note text)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    v_ids bytea[];
    v_now bigint := mainspring_stored.now_v1(p_now);
    v_names text[];
    v_costs bigint[];
    v_numbers bigint[];
begin
    if cardinality(p_ids) = 0 then
        return;
    end if;
    v_ids := array(
        select s.id from (
            select p.id, p.n, sum(octet_length(j.record)) over (order by p.n) - octet_length(j.record) as before
            from unnest(p_ids) with ordinality as p(id, n) join mainspring_stored.jobs j on j.id = any(array[p.id])
        ) s where s.before < p_max_bytes order by s.n
    );
    with taken as (
        update mainspring_stored.jobs j
        set state = 'running', token = greatest(j.token + 1, v_now), worker = p_worker, turn = p_number,
            attempt = j.attempt + 1, started = greatest(v_now, j.enqueued)
        where j.id = any(v_ids)
        returning j.buckets, j.costs
    )
    select array_agg(s.name), array_agg(s.cost), array_agg(s.n) into v_names, v_costs, v_numbers from (
        select u.name, u.cost, count(*) as n from taken t cross join unnest(t.buckets, t.costs) as u(name, cost) group by 1, 2
    ) s;
    if v_names is not null then
        perform mainspring_stored.record_starts_v1(p_worker, v_names, v_costs, v_numbers, v_now);
    end if;
    return query select 'claim', j.id, j.token, j.task, j.queue, j.lane::text, j.priority, j.attempt, j.epoch,
        j.crashes, j.early, j.enqueued, j.expires, case when octet_length(j.record) <= p_inline then j.record end, j.turn,
        null::text
    from unnest(v_ids) with ordinality as p(id, n) join mainspring_stored.jobs j on j.id = any(array[p.id]) order by p.n;
end
$$;

CREATE FUNCTION mainspring_stored.claim_lane_v1(p_lane text, p_priority integer, p_from bigint, p_before bigint, p_n integer, p_worker text, p_number bigint, p_now bigint, p_inline integer, p_max_bytes bigint) RETURNS TABLE(kind text, id bytea, token bigint, task text, queue text, lane text, priority integer, attempt integer, epoch integer, crashes integer, early boolean, enqueued bigint, expires bigint, record bytea, turn bigint, note text)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    v_now bigint := mainspring_stored.now_v1(p_now);
    v_end bigint := coalesce(p_before + p_priority * 3600000000, 9223372036854775807);
begin
    return query
    with locked as (
        select j.ctid as at, j.seq, octet_length(j.record) as bytes,
            case when j.costs is null then 0 else p_max_bytes end as costly from mainspring_stored.jobs j
        where j.state = 'ready' and j.lane = p_lane and j.priority = p_priority and j.seq >= p_from and j.seq < v_end
            and (j.expires is null or j.expires > v_now)
        order by j.seq limit p_n for update skip locked
    ), picked as (
        select l.at, sum(l.bytes + l.costly) over (order by l.seq) - l.bytes as before from locked l
    ), taken as (
        update mainspring_stored.jobs j
        set state = 'running', token = greatest(j.token + 1, v_now), worker = p_worker, turn = p_number,
            attempt = j.attempt + 1, started = greatest((select mainspring_stored.now_v1(p_now)), j.enqueued)
        from picked p where j.ctid = p.at and p.before < p_max_bytes
        returning j.*
    )
    select 'claim', t.id, t.token, t.task, t.queue, t.lane::text, t.priority, t.attempt, t.epoch,
        t.crashes, t.early, t.enqueued, t.expires, case when octet_length(t.record) <= p_inline then t.record end, t.turn,
        null::text
    from taken t order by t.seq;
end
$$;

CREATE FUNCTION mainspring_stored.claimable_ahead_v1(p_lanes mainspring_stored.lane_v1[], p_plentiful text[]) RETURNS mainspring_stored.lane_v1[]
    LANGUAGE plpgsql
    AS $$
begin
    return array(
        select l from unnest(p_lanes) l
        where l.buckets is null or mainspring_stored.is_unlimited_fair_set_v1(l.lane) or not l.keyed and l.buckets <@ p_plentiful
    );
end
$$;

CREATE FUNCTION mainspring_stored.close_join_v1(p_join bytea, p_now bigint) RETURNS TABLE(id bytea, open boolean, total bigint, succeeded bigint, dead bigint, cancelled bigint, bypassed bigint, woken text[])
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
    v_woken text[] := '{}';
begin
    perform mainspring_stored.guard_v1();
    perform mainspring_stored.lock_dependents_v1(array[row(null, p_join, null, null)::mainspring_stored.met_edge_v1], 1);
    v_now := mainspring_stored.now_v1(p_now);
    perform mainspring_stored.follow_clock_v1(v_now);
    update mainspring_stored.joins o set open = false where o.id = p_join and o.open;
    if found then
        v_woken := mainspring_stored.release_v1(array[p_join], v_now);
    end if;
    return query
    select o.id, o.open, o.total, o.succeeded, o.dead, o.cancelled, o.bypassed, v_woken from mainspring_stored.joins o where o.id = p_join;
end
$$;

CREATE FUNCTION mainspring_stored.compare_print_v1(p_hash bytea, p_print text, p_task text, p_holder bytea, p_job bytea) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    if (select k.print <> decode(p_print, 'hex') from mainspring_stored.keys k where k.hash = p_hash) then
        raise exception '% %', encode(p_holder, 'hex'), encode(p_job, 'hex')
            using errcode = 'MS006', detail = p_task;
    end if;
end
$$;

CREATE TABLE mainspring_stored.buckets (
    name text NOT NULL COLLATE pg_catalog."C",
    tat bigint DEFAULT 0 NOT NULL,
    blocked_until bigint DEFAULT 0 NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE mainspring_stored.limits (
    name text NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL,
    size bigint NOT NULL,
    per bigint NOT NULL,
    burst bigint NOT NULL,
    share bigint DEFAULT 0 NOT NULL,
    span bigint DEFAULT 0 NOT NULL,
    set_size bigint,
    CONSTRAINT limits_kind_check CHECK ((kind = ANY (ARRAY['concurrency'::text, 'rate'::text, 'smooth'::text, 'breaker'::text])))
);

CREATE FUNCTION mainspring_stored.compute_capacity_v1(p_name text, p_limit mainspring_stored.limits, p_bucket mainspring_stored.buckets, p_used bigint, p_now bigint) RETURNS mainspring_stored.capacity_v1
    LANGUAGE plpgsql IMMUTABLE
    AS $$
declare
    v_size bigint := coalesce(p_limit.set_size, p_limit.size);
    v_burst bigint := greatest(p_limit.burst, 1);
    v_after bigint;
begin
    if p_limit.kind is null then
        return row(p_name, null, null, 0, 4611686018427387904, 1, 0)::mainspring_stored.capacity_v1;
    elsif p_limit.kind = 'concurrency' then
        return row(p_name, p_limit.kind, v_size, p_used, v_size - p_used, 1, 0)::mainspring_stored.capacity_v1;
    elsif p_limit.kind = 'smooth' then
        v_after := greatest(p_bucket.tat - mainspring_stored.smooth_slack_v1(p_limit) - p_now, 0);
        p_used := div(v_after::numeric * greatest(v_size, 0) + greatest(p_limit.per, 1) - 1, greatest(p_limit.per, 1));
    end if;
    if v_size <= 0 or p_bucket.blocked_until > p_now then
        return row(p_name, p_limit.kind, v_size, p_used, 0, greatest(v_size, 1), greatest(v_size, 0))::mainspring_stored.capacity_v1;
    elsif p_limit.kind = 'rate' then
        return row(p_name, p_limit.kind, v_size, p_used, v_size - p_used, v_size, v_size)::mainspring_stored.capacity_v1;
    end if;
    return row(
        p_name, p_limit.kind, v_size, p_used, greatest(v_burst - p_used, 0), least(v_burst, v_size), v_size
    )::mainspring_stored.capacity_v1;
end
$$;

CREATE FUNCTION mainspring_stored.compute_headroom_v1(p_capacity mainspring_stored.capacity_v1) RETURNS bigint
    LANGUAGE plpgsql IMMUTABLE
    AS $$
begin
    return case
        when strpos(p_capacity.name, '=') > 0 or p_capacity.kind in ('rate', 'smooth') then 0
        when p_capacity.kind is null then p_capacity.available
        -- capacity of a closed one: twice that
        when p_capacity.kind = 'breaker' then p_capacity.available - 2305843009213693952
        else p_capacity.available - greatest(p_capacity.size / 2, 100)
    end;
end
$$;

CREATE FUNCTION mainspring_stored.configure_queue_v1(p_queue text, p_settings jsonb, p_declared boolean) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    insert into mainspring_stored.queues (name, mode, since) values (p_queue, 'open', 0) on conflict (name) do nothing;
    update mainspring_stored.queues q
    set declared = case when p_declared then p_settings else q.declared end,
        given = case when p_declared then q.given else p_settings end
    where q.name = p_queue;
    perform mainspring_stored.forget_queues_v1(array[p_queue]);
end
$$;

CREATE FUNCTION mainspring_stored.correct_acked_costs_v1(p_acks mainspring_stored.ack_v1[], p_now bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    v_ack record;
begin
    for v_ack in
        select case when a.buckets is null then a.spent else mainspring_stored.zero_costs_v1(j.buckets) end as spent, a.slow,
            j.buckets, j.costs
        from unnest(p_acks) a join mainspring_stored.jobs j on j.id = any(array[a.id])
        where (a.slow > 0 or a.spent is not null or a.buckets is not null) and j.buckets is not null
    loop
        perform mainspring_stored.correct_costs_v1(v_ack.buckets, v_ack.costs, v_ack.spent, coalesce(v_ack.slow, 0), p_now);
    end loop;
end
$$;

CREATE FUNCTION mainspring_stored.correct_costs_v1(p_names text[], p_costs bigint[], p_spent jsonb, p_slow bigint, p_now bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    v_charge record;
    v_back bigint;
    v_start record;
begin
    for v_charge in
        select u.name, l.kind, c.spent - c.cost as more,
            mainspring_stored.smooth_time_v1(c.spent, l.per, s.size) - mainspring_stored.smooth_time_v1(c.cost, l.per, s.size) as time
        from unnest(p_names, p_costs) as u(name, cost)
        join mainspring_stored.limits l on l.name = any(array[split_part(u.name, '=', 1)]) and l.kind in ('rate', 'smooth')
        cross join lateral (select coalesce(l.set_size, l.size) as size) s
        cross join lateral (
            select least(coalesce(u.cost, 1), s.size) as cost,
                case when (p_spent ->> l.name) is not null then greatest((p_spent ->> l.name)::bigint, 0) end as spent
        ) c
    loop
        if p_slow > 0 then
            update mainspring_stored.buckets b set blocked_until = greatest(b.blocked_until, p_now + p_slow) where b.name = v_charge.name;
        end if;
        continue when v_charge.more is null;
        if v_charge.kind = 'smooth' then
            update mainspring_stored.buckets b set tat = greatest(b.tat, p_now) + v_charge.time where b.name = v_charge.name;
        elsif v_charge.more > 0 then
            perform mainspring_stored.charge_rates_v1('', array[v_charge.name], array[v_charge.more], null, p_now);
        else
            v_back := -v_charge.more;
            for v_start in
                select s.ctid as at, s.n from mainspring_stored.rate_starts s where s.bucket = v_charge.name and v_back > 0
                    order by s.last desc
            loop
                exit when v_back <= 0;
                update mainspring_stored.rate_starts s set n = s.n - least(v_back, v_start.n) where s.ctid = v_start.at;
                v_back := v_back - v_start.n;
            end loop;
        end if;
    end loop;
end
$$;

CREATE FUNCTION mainspring_stored.count_claimed_bytes_v1(p_worker text, p_number bigint) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
begin
    return (
        select coalesce(sum(octet_length(j.record)), 0) from mainspring_stored.jobs j
        where j.state = 'running' and j.worker = p_worker and j.turn = p_number
    );
end
$$;

CREATE FUNCTION mainspring_stored.count_for_depth_v1(p_queue text, p_after bytea, p_limit integer) RETURNS bytea
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS $$
declare
    v_ids bytea[];
begin
    if not exists (select 1 from mainspring_stored.queues q where q.name = p_queue and q.bounded) then
        return null;
    end if;
    v_ids := array(
        select j.id from mainspring_stored.jobs j where j.id > p_after and j.queue = p_queue and not j.counted
            and j.followed & 4 = 0 order by j.id limit p_limit
    );
    perform 1 from mainspring_stored.jobs j where j.id = any(v_ids) order by j.id for update;
    update mainspring_stored.jobs j set counted = true where j.id = any(v_ids);
    return case when cardinality(v_ids) = p_limit then v_ids[p_limit] end;
end
$$;

CREATE FUNCTION mainspring_stored.count_probes_v1(p_name text, p_since bigint, p_now bigint) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
begin
    return (
        select count(*) from mainspring_stored.bucket_uses x cross join lateral (
            select from mainspring_stored.jobs o
            where o.state = 'running' and o.worker = x.worker and p_name = any(o.buckets) and o.started >= p_since
        ) j
        where x.bucket = p_name
    ) + (select count(*) from mainspring_stored.holders g where g.bucket = p_name and g.until > p_now);
end
$$;

CREATE FUNCTION mainspring_stored.count_walked_v1() RETURNS bigint
    LANGUAGE sql
    AS $$
    select pg_stat_get_xact_tuples_returned('mainspring_stored.jobs_ready'::regclass)
        + 20 * pg_stat_get_xact_blocks_fetched('mainspring_stored.jobs_ready'::regclass)
$$;

CREATE FUNCTION mainspring_stored.declare_limits_v1(p_limits jsonb) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
declare
    v_changed text[] := array(
        select u.name from jsonb_to_recordset(p_limits)
            as u(name text, kind text, size bigint, per bigint, burst bigint, share bigint, span bigint)
        where not exists (
            select 1 from mainspring_stored.limits l
            where l.name = any(array[u.name])
                and (l.kind, l.size, l.per, l.burst, l.share, l.span) = (u.kind, u.size, u.per, u.burst, u.share, u.span)
        )
    );
begin
    perform mainspring_stored.guard_v1();
    if cardinality(v_changed) = 0 then
        return '{}';
    end if;
    insert into mainspring_stored.limits (name, kind, size, per, burst, share, span)
    select u.name, u.kind, u.size, u.per, u.burst, u.share, u.span
    from jsonb_to_recordset(p_limits)
        as u(name text, kind text, size bigint, per bigint, burst bigint, share bigint, span bigint)
    where u.name = any(v_changed)
    order by u.name collate "C"
    on conflict (name) do update
    set kind = excluded.kind, size = excluded.size, per = excluded.per, burst = excluded.burst, share = excluded.share,
        span = excluded.span;
    return mainspring_stored.request_rechecks_v1(v_changed);
end
$$;

CREATE FUNCTION mainspring_stored.declare_missing_v1(p_limits jsonb, p_queues jsonb) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    if p_limits is not null then
        perform mainspring_stored.add_limits_v1(p_limits);
    end if;
    if p_queues is not null then
        perform mainspring_stored.declare_queues_v1(p_queues);
    end if;
end
$$;

CREATE FUNCTION mainspring_stored.declare_queues_v1(p_queues jsonb) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    insert into mainspring_stored.queues (name, mode, since, declared)
    select n.pair ->> 0, 'open', 0, n.pair -> 1 from jsonb_array_elements(p_queues) as n(pair)
    where not exists (select 1 from mainspring_stored.queues q where q.name = any(array[n.pair ->> 0]) and q.declared is not null)
    order by 1
    on conflict (name) do update set declared = excluded.declared where queues.declared is null;
end
$$;

CREATE FUNCTION mainspring_stored.delete_details_v1(p_ids bytea[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    v_left mainspring_stored.keys[];
begin
    delete from mainspring_stored.attempts where job = any(p_ids);
    delete from mainspring_stored.logs where job = any(p_ids);
    delete from mainspring_stored.progress where job = any(p_ids);
    delete from mainspring_stored.items where job = any(p_ids);
    delete from mainspring_stored.marks where job = any(p_ids);
    delete from mainspring_stored.follow_ups where job = any(p_ids);
    delete from mainspring_stored.joins where id = any(p_ids);
    with gone as (
        delete from mainspring_stored.keys k where k.job = any(p_ids) returning k
    )
    select array_agg(g.k) filter (where (g.k).previous is not null) into v_left from gone g;
    if v_left is not null then
        insert into mainspring_stored.keys (hash, job, span, mode)
        select l.hash, l.previous, l.span, l.mode from unnest(v_left) l
        where exists (select 1 from mainspring_stored.jobs j where j.id = any(array[l.previous]))
            or l.previous = any(mainspring_stored.find_ended_v1(array[l.previous]));
    end if;
end
$$;

CREATE FUNCTION mainspring_stored.delete_empty_lane_rows_v1(p_ids bigint[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    v_empty bigint[];
begin
    v_empty := array(
        select l.id from unnest(p_ids) as i(id) join mainspring_stored.keyed_lanes l on l.id = any(array[i.id])
            for update of l skip locked
    );
    -- A new statement: it sees the jobs of transactions that had locked a row before.
    delete from mainspring_stored.keyed_lanes l using unnest(v_empty) as i(id) where l.id = any(array[i.id]) and (
        not exists (select 1 from mainspring_stored.jobs j where j.state = 'ready' and j.lane = l.lane and j.priority = l.priority)
        or exists (
            select 1 from mainspring_stored.keyed_lanes o
            where o.lane = l.lane and o.priority = l.priority and o.id < l.id and o.id <> all(p_ids)
        )
    );
    -- Rows that an enqueue has locked move to the end of the order, so that claims do not meet them first
    -- meanwhile.
    update mainspring_stored.keyed_lanes l set seq = pg_sequence_last_value('mainspring_stored.seq'::regclass) from unnest(p_ids) as i(id)
    where l.id = any(array[i.id]) and l.id <> all(v_empty);
end
$$;

CREATE FUNCTION mainspring_stored.delete_ended_v1(p_ids bytea[], p_now bigint) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
declare
    v_locked bytea[];
begin
    if cardinality(p_ids) = 0 then
        return '{}';
    end if;
    perform mainspring_stored.lock_keys_of_v1(p_ids, false, p_now);
    v_locked := array(select f.id from mainspring_stored.finished f where f.id = any(p_ids) for update skip locked);
    v_locked := v_locked || array(select d.id from mainspring_stored.dead d where d.id = any(p_ids) for update skip locked);
    return mainspring_stored.delete_v1(v_locked, p_now);
end
$$;

CREATE FUNCTION mainspring_stored.delete_v1(p_ids bytea[], p_now bigint) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
declare
    v_gone bytea[];
    v_left text[];
    v_woken text[];
begin
    with gone as (
        delete from mainspring_stored.jobs j where j.id = any(p_ids) returning j.id, j.lane, j.state, j.buckets
    )
    select coalesce(array_agg(g.id), '{}'), array_agg(distinct g.lane) filter (where g.state = 'ready' and g.buckets is not null)
    into v_gone, v_left from gone g;
    if v_left is not null then
        perform mainspring_stored.recheck_left_lanes_v1(v_left);
    end if;
    delete from mainspring_stored.finished f where f.id = any(p_ids);
    with buried as (
        delete from mainspring_stored.dead d where d.id = any(p_ids) returning d.id
    )
    select v_gone || array_agg(b.id) into v_gone from buried b;
    delete from mainspring_stored.edges where child = any(v_gone);
    v_woken := mainspring_stored.resolve_deleted_v1(v_gone, p_now);
    perform mainspring_stored.end_flows_v1(array(select o.id from mainspring_stored.joins o where o.id = any(p_ids)), 'delete', p_now);
    perform mainspring_stored.delete_details_v1(p_ids);
    return v_woken;
end
$$;

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
    followed smallint DEFAULT 0 NOT NULL,
    early boolean NOT NULL,
    parked boolean DEFAULT false NOT NULL,
    counted boolean DEFAULT false NOT NULL,
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
    costs bigint[],
    CONSTRAINT jobs_check CHECK (((state <> 'running'::text) OR (worker IS NOT NULL))),
    CONSTRAINT jobs_check1 CHECK (((state = 'blocked'::text) = (deps > 0))),
    CONSTRAINT jobs_state_check CHECK ((state = ANY (ARRAY['blocked'::text, 'scheduled'::text, 'retrying'::text, 'ready'::text, 'running'::text])))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE FUNCTION mainspring_stored.describe_replaced_v1(p_at integer, p_job mainspring_stored.jobs) RETURNS mainspring_stored.replaced_v1
    LANGUAGE sql IMMUTABLE
    AS $$
    select row(
        p_at, p_job.enqueued, p_job.epoch, case when p_job.state = 'ready' then p_job.seq end, p_job.queue,
        case when p_job.state = 'ready' and p_job.buckets is not null then p_job.lane end
    )::mainspring_stored.replaced_v1
$$;

CREATE FUNCTION mainspring_stored.disable_queues_v1(p_queues text[], p_how text, p_by text, p_now bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    perform pg_advisory_xact_lock(mainspring_stored.queue_modes_lock_v1());
    if p_how is null then
        update mainspring_stored.queues q set disabled = null, disabled_at = 0, disabled_by = '' where q.name = any(p_queues);
        perform mainspring_stored.forget_queues_v1(p_queues);
        return;
    end if;
    insert into mainspring_stored.queues (name, mode, since, disabled, disabled_at, disabled_by)
    select distinct u.name collate "C", 'open', 0, p_how, mainspring_stored.now_v1(p_now), p_by
        from unnest(p_queues) as u(name) order by 1
    on conflict (name) do update
    set disabled = excluded.disabled, disabled_at = excluded.disabled_at, disabled_by = excluded.disabled_by
    where queues.disabled is distinct from excluded.disabled;
end
$$;

CREATE FUNCTION mainspring_stored.drop_partition_v1(p_name text, p_before bigint) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '100ms'
    AS $$
declare
    v_full boolean;
begin
    if exists (select 1 from mainspring_stored.list_partitions_v1() c where c.name = p_name and c.until <= p_before) then
        execute format('select exists (select 1 from mainspring_stored.%I)', p_name) into v_full;
        if not v_full then
            execute format('drop table mainspring_stored.%I', p_name);
        end if;
    end if;
end
$$;

CREATE FUNCTION mainspring_stored.due_schedules_v1(p_limit bigint, p_now bigint) RETURNS TABLE(now bigint, name text, rev bigint, look bigint, doc bytea)
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
    v_now bigint := mainspring_stored.now_v1(p_now);
begin
    return query select v_now, null::text, null::bigint, (
        select s.look from mainspring_stored.schedules s where s.look > v_now order by s.look, s.name limit 1
    ), null::bytea;
    return query select v_now, s.name::text, s.rev, s.look, s.doc from mainspring_stored.schedules s where s.look <= v_now
    order by s.look, s.name limit p_limit + 1;
end
$$;

CREATE FUNCTION mainspring_stored.edge_effect_v1(p_policy text, p_how text, p_dead boolean) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
    select case
        when p_how in ('first_death', 'unheld') or p_policy in ('member', 'ignore') then null
        when p_policy = 'dead' then case when not p_dead and p_how <> 'dead' then 'bypassed' end
        when p_policy = 'failed' then case when p_how in ('succeeded', 'bypassed') then 'bypassed' end
        when p_how in ('succeeded', 'bypassed') then null
        when p_policy = 'wait' and p_how = 'dead' then 'stays'
        when p_policy = 'skip' then 'bypassed'
        else 'parent'
    end
$$;

CREATE FUNCTION mainspring_stored.end_flows_v1(p_roots bytea[], p_work text, p_now bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    insert into mainspring_stored.flow_work (id, work, at)
    select u.id, p_work, p_now from unnest(p_roots) as u(id)
    where exists (select 1 from mainspring_stored.marks m where m.mark = any(array[mainspring_stored.flow_mark_v1(u.id)]))
    on conflict do nothing;
end
$$;

CREATE FUNCTION mainspring_stored.end_joins_v1(p_joins bytea[], p_counted bytea[], p_now bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    update mainspring_stored.joins o set open = false where o.id = any(p_joins) and o.open;
    perform mainspring_stored.end_flows_v1(array(select u.id from unnest(p_joins) as u(id) where u.id <> all(p_counted)), 'cancel', p_now);
end
$$;

CREATE FUNCTION mainspring_stored.enforce_depth_v1(p_ids bytea[], p_stayed bytea[], p_accepted boolean, p_now bigint) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
declare
    v_queue record;
    v_woken text[] := '{}';
begin
    for v_queue in
        select q.*, n.ids from mainspring_stored.queues q
        join (
            select j.queue, array_agg(j.id) as ids from mainspring_stored.jobs j
            where j.id = any(p_ids) and j.id <> all(p_stayed) group by j.queue
        ) n on n.queue = q.name
        where q.special order by q.name
    loop
        if v_queue.disabled = 'skip' then
            v_woken := v_woken || mainspring_stored.cancel_waiting_v1(
                v_queue.ids, 'skipped', 'queue ''' || v_queue.name || ''' is disabled'
                    || case when v_queue.disabled_by = '' then '' else ' by ' || v_queue.disabled_by end, p_now
            );
        elsif v_queue.bounded and not p_accepted then
            perform pg_advisory_xact_lock(hashtextextended('mainspring_stored depth ' || v_queue.name, 0));
            v_woken := v_woken || mainspring_stored.enforce_max_depth_v1(
                v_queue.name, (v_queue.settings ->> 'max_depth')::bigint, coalesce(v_queue.settings ->> 'on_full', 'error'),
                v_queue.ids, p_stayed, p_now
            );
        end if;
    end loop;
    return v_woken;
end
$$;

CREATE FUNCTION mainspring_stored.enforce_max_depth_v1(p_queue text, p_most bigint, p_on_full text, p_ids bytea[], p_stayed bytea[], p_now bigint) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
declare
    v_depth bigint;
    v_first bigint;
    v_old bytea[];
    v_woken text[] := '{}';
begin
    loop
        select count(*), min(j.enqueued) into v_depth, v_first from mainspring_stored.jobs j
        where j.counted and j.state <> 'running' and j.queue = p_queue;
        exit when v_depth <= p_most;
        if p_on_full = 'drop_oldest' then
            v_old := array(
                select j.id from mainspring_stored.jobs j
                where j.counted and j.state <> 'running' and j.queue = p_queue and j.id <> all(p_ids || p_stayed)
                order by j.enqueued, j.id limit v_depth - p_most
            );
        end if;
        if coalesce(cardinality(v_old), 0) < v_depth - p_most then
            raise exception '%', p_queue using errcode = 'MS005', detail = jsonb_build_object(
                'max_depth', p_most, 'on_full', p_on_full, 'depth', v_depth - cardinality(p_ids),
                'excess', v_depth - p_most, 'age', p_now - v_first
            )::text;
        end if;
        -- A job that a claim had locked runs by now: then the next oldest is ended. A job that was replaced is another
        -- row.
        v_old := array(select j.id from mainspring_stored.jobs j where j.id = any(v_old) order by j.id for update);
        v_woken := v_woken || mainspring_stored.cancel_waiting_v1(
            v_old, 'superseded', 'dropped: queue ''' || p_queue || ''' was full (max_depth ' || p_most || ')', p_now
        );
    end loop;
    return v_woken;
end
$$;

CREATE FUNCTION mainspring_stored.enqueue_alike_v1(p_batch bytea, p_now bigint, p_id bytea[], p_task text, p_queue text, p_home text, p_priority integer, p_crash_limit integer, p_early boolean, p_record bytea[]) RETURNS TABLE(id bytea, answer bytea, woken text)
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $$
#variable_conflict use_column
declare
    v_new boolean := not mainspring_stored.lock_batch_v1(p_batch, false, p_now);
    v_now bigint := mainspring_stored.now_v1(p_now);
begin
    if v_new then
        perform mainspring_stored.follow_clock_v1(v_now);
        begin
            insert into mainspring_stored.jobs (
                id, state, task, queue, home, lane, priority, seq, crash_limit, early, enqueued, record
            )
            select u.id, 'ready', p_task, p_queue, p_home, p_home, p_priority, nextval('mainspring_stored.seq'), p_crash_limit,
                p_early, v_now, u.record
            from unnest(p_id, p_record) as u(id, record);  -- alone in its statement, so in the order of the batch
        exception when unique_violation then
            v_new := false;
        end;
    end if;
    if not v_new then
        return query select * from mainspring_stored.enqueue_plain_v1(
            p_batch, p_now, p_id, array[p_task], array[p_queue], array[p_home], array[p_priority], array[0::bigint],
            '{}', '{}', array[p_crash_limit], array[p_early], p_record
        );
    elsif mainspring_stored.accept_jobs_v1(p_id) then
        return query select null::bytea, null::bytea, w.queue
            from unnest(mainspring_stored.enforce_depth_v1(p_id, '{}', false, v_now)) as w(queue);
    end if;
end
$$;

CREATE FUNCTION mainspring_stored.enqueue_follow_ups_v1(p_ended mainspring_stored.ended_v1[], p_now bigint) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
declare
    v_made bytea[];
    v_ready text[];
    v_special boolean;
begin
    with made as (
        insert into mainspring_stored.jobs (
            id, state, task, queue, home, lane, priority, seq, due, expires, crash_limit, early, keep, enqueued, record,
            followed
        )
        select n.own, case when n.due > p_now then 'scheduled' else 'ready' end, n.task, n.queue, n.home, n.home, n.priority,
            case when n.due > p_now then 0 else nextval('mainspring_stored.seq') end, case when n.due > p_now then n.due end,
            p_now + n.expires_in, n.crash_limit, n.early, n.keep, p_now, n.record, n.followed
        from (
            select f.*, coalesce(f.run_at, p_now + f.delay) as due,
                substring(f.id from 1 for 14) || substring(int4send(x.epoch) from 3 for 2) as own
            from unnest(p_ended) x join mainspring_stored.follow_ups f on f.job = any(array[x.id]) and f.state = x.state
            order by x.id, f.n
        ) n
        where not exists (select 1 from mainspring_stored.finished h where h.id = any(array[n.own]))
            and not exists (select 1 from mainspring_stored.dead d where d.id = any(array[n.own]))
        on conflict (id) do nothing
        returning id, queue, state
    )
    select array_agg(m.id), array_agg(m.queue) filter (where m.state = 'ready'),
        exists (select 1 from mainspring_stored.queues q where q.settings is not null)
    into v_made, v_ready, v_special from made m;
    if v_special then
        perform mainspring_stored.apply_settings_v1(v_made);
    end if;
    insert into mainspring_stored.marks (mark, job)
    select unnest(f.marks), substring(f.id from 1 for 14) || substring(int4send(x.epoch) from 3 for 2)
    from unnest(p_ended) x join mainspring_stored.follow_ups f on f.job = any(array[x.id]) and f.state = x.state
    where cardinality(f.marks) > 0
        and substring(f.id from 1 for 14) || substring(int4send(x.epoch) from 3 for 2) = any(v_made)
    on conflict do nothing;
    perform mainspring_stored.store_follow_ups_v1(n.own, n.follows, true) from (
        select f.follows, substring(f.id from 1 for 14) || substring(int4send(x.epoch) from 3 for 2) as own
        from unnest(p_ended) x join mainspring_stored.follow_ups f on f.job = any(array[x.id]) and f.state = x.state
        where f.follows is not null
    ) n
    where n.own = any(v_made);
    return coalesce(v_ready, '{}');
end
$$;

CREATE FUNCTION mainspring_stored.enqueue_one_v1(p_batch bytea, p_now bigint, p_id bytea, p_task text, p_queue text, p_home text, p_priority integer, p_crash_limit integer, p_early boolean, p_record bytea) RETURNS TABLE(id bytea, answer bytea, woken text)
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $$
#variable_conflict use_column
declare
    v_new boolean := not mainspring_stored.lock_batch_v1(p_batch, false, p_now);
    v_now bigint := mainspring_stored.now_v1(p_now);
begin
    if v_new then
        perform mainspring_stored.follow_clock_v1(v_now);
        insert into mainspring_stored.jobs (
            id, state, task, queue, home, lane, priority, seq, crash_limit, early, enqueued, record
        )
        values (
            p_id, 'ready', p_task, p_queue, p_home, p_home, p_priority, nextval('mainspring_stored.seq'), p_crash_limit, p_early,
            v_now, p_record
        )
        on conflict (id) do nothing;
        v_new := found;
    end if;
    if not v_new then
        return query select * from mainspring_stored.enqueue_plain_v1(
            p_batch, p_now, array[p_id], array[p_task], array[p_queue], array[p_home], array[p_priority],
            array[0::bigint], '{}', '{}', array[p_crash_limit], array[p_early], array[p_record]
        );
    elsif mainspring_stored.accept_jobs_v1(array[p_id]) then
        return query select null::bytea, null::bytea, w.queue
            from unnest(mainspring_stored.enforce_depth_v1(array[p_id], '{}', false, v_now)) as w(queue);
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
    if mainspring_stored.lock_batch_v1(p_batch, false, p_now) then
        -- First the table that jobs leave, then, in a new statement, the table they go to: in the other order a job is
        -- missed.
        v_made := array(select j.id from mainspring_stored.jobs j where j.id = any(p_id));
        v_over := mainspring_stored.mark_members_v1(p_id, v_made || mainspring_stored.find_ended_v1(p_id));
    end if;
    v_now := mainspring_stored.now_v1(p_now);
    perform mainspring_stored.follow_clock_v1(v_now);
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
        v_take := mainspring_stored.mark_members_v1(p_id, v_made);
        return query select u.id, u.id, null from unnest(p_id, v_take) as u(id, made) where not u.made;
    end if;
    if mainspring_stored.accept_jobs_v1(v_made) then
        return query select null::bytea, null::bytea, w.queue
            from unnest(mainspring_stored.enforce_depth_v1(v_made, '{}', false, v_now)) as w(queue);
    end if;
end
$$;

CREATE FUNCTION mainspring_stored.enqueue_v1(p_batch bytea, p_retry boolean, p_now bigint, p_id bytea[], p_task text[], p_queue text[], p_home text[], p_priority integer[], p_delay bigint[], p_run_at bigint[], p_expires_in bigint[], p_crash_limit integer[], p_early boolean[], p_record bytea[], p_keep bigint[], p_on smallint[], p_names text[], p_costs text[], p_key bytea[], p_window bigint[], p_conflict text[], p_modes jsonb, p_limits jsonb, p_queues jsonb, p_accepted boolean, p_open boolean, p_child_at integer[], p_parent bytea[], p_parent_at integer[], p_policy text[], p_join_at integer[], p_join_open boolean[], p_join_lenient boolean[], p_before_at integer[], p_before bytea[], p_before_in integer[], p_mark_at integer[], p_mark text[], p_follow_ups jsonb) RETURNS TABLE(id bytea, answer bytea, woken text)
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS $$
declare
    v_late boolean := mainspring_stored.lock_batch_v1(p_batch, p_retry, p_now);
    v_id bytea[] := p_id;
    v_take boolean[];
    v_answers bytea[];
    v_replaced mainspring_stored.replaced_v1[] := '{}';
    v_waits mainspring_stored.waits_v1;
    v_now bigint;
    v_new bytea[];
    v_special boolean;
    v_stayed bytea[] := '{}';
    v_losers bytea[] := '{}';
    v_woken text[] := '{}';
begin
    v_take := mainspring_stored.find_new_jobs_v1(p_id, v_late);
    if cardinality(p_key) + cardinality(p_child_at) + cardinality(p_before_at) > 0 and not p_accepted then
        perform mainspring_stored.lock_depths_v1(p_queue);
    end if;
    if cardinality(p_key) > 0 then
        select k.* into v_take, v_answers, v_losers, v_woken
        from mainspring_stored.take_keys_v1(p_id, p_task, v_take, p_key, p_window, p_conflict, p_modes, p_now) k;
    end if;
    if p_modes is not null then
        select r.* into p_now, v_id, v_take, v_answers, p_run_at, p_child_at, p_parent, p_parent_at, p_policy, v_replaced
        from mainspring_stored.replace_waiting_v1(p_key, p_modes, p_now, p_id, v_take, v_answers, p_run_at, p_child_at, p_parent,
            p_parent_at, p_policy) r;
    end if;
    if p_limits is not null or p_queues is not null then
        perform mainspring_stored.declare_missing_v1(p_limits, p_queues);
    end if;
    if cardinality(p_child_at) + cardinality(p_join_at) + cardinality(p_before_at) > 0 then
        v_waits := mainspring_stored.wait_for_parents_v1(v_id, v_take, p_child_at, p_parent, p_parent_at, p_policy, p_join_at);
        perform mainspring_stored.lock_before_v1(v_take, p_before_at, p_before, p_before_in, p_accepted);
    end if;
    v_now := mainspring_stored.now_v1(p_now);
    perform mainspring_stored.follow_clock_v1(v_now);
    v_new := mainspring_stored.insert_jobs_v1(v_id, v_take, p_task, p_queue, p_home, p_priority, p_delay, p_run_at, p_expires_in,
        p_crash_limit, p_early, p_record, p_keep, p_on, p_names, p_costs, p_key, v_waits.waits, v_now);
    if cardinality(v_new) < cardinality(p_id) then
        v_take := mainspring_stored.mark_members_v1(v_id, v_new);
        v_answers := mainspring_stored.answer_found_v1(v_id, v_take, v_answers);
    end if;
    v_special := mainspring_stored.accept_jobs_v1(v_new);
    if cardinality(v_replaced) > 0 then
        v_stayed := mainspring_stored.keep_places_v1(v_id, p_queue, v_replaced, p_open);
    end if;
    if cardinality(p_names) > 0 then
        perform mainspring_stored.add_lane_rows_v1(v_new, p_open);
    end if;
    if cardinality(p_mark_at) > 0 or p_follow_ups is not null then
        perform mainspring_stored.add_details_v1(v_id, v_take, p_mark_at, p_mark, p_follow_ups);
    end if;
    if v_waits.waits is not null then
        v_woken := v_woken || mainspring_stored.add_edges_v1(v_id, v_take, v_waits, p_join_at, p_join_open, p_join_lenient,
            p_before_at, p_before, v_now);
    end if;
    if cardinality(v_losers) > 0 then
        v_woken := v_woken || mainspring_stored.cancel_waiting_v1(v_losers, 'superseded', null, v_now);
    end if;
    if v_special then
        v_woken := v_woken || mainspring_stored.enforce_depth_v1(v_new, v_stayed, p_accepted, v_now);
    end if;
    if cardinality(p_join_at) > 0 then
        v_woken := v_woken || mainspring_stored.release_new_v1(v_id, v_take, p_join_at, p_join_open, v_now);
    end if;
    return query select u.id, u.answer, null::text from unnest(p_id, v_answers) as u(id, answer) where u.answer is not null;
    return query select null::bytea, null::bytea, w.queue from unnest(v_woken) as w(queue);
end
$$;

CREATE FUNCTION mainspring_stored.examine_lane_rows_v1(p_lane_sets text[], p_n integer, p_examined bigint[], p_locked text[], p_full text[], p_now bigint, p_fair boolean DEFAULT false) RETURNS mainspring_stored.examined_v1
    LANGUAGE plpgsql
    AS $$
declare
    c_most constant integer := 128;
    v_reply mainspring_stored.examined_v1 := row('{}', p_examined, p_locked, '{}', false);
    v_size integer := p_n;
    v_rows bigint[];
    v_new text[];
    v_full text[];
    v_eligible bigint[];
    v_behind bigint[];
    v_empty bigint[];
    v_seqs bigint[];
    v_again integer := 0;
begin
    loop
        v_size := least(v_size, c_most + cardinality(p_examined) - cardinality(v_reply.examined) - v_again);
        v_rows := case when p_fair then mainspring_stored.next_fair_rows_v1(p_lane_sets, v_size, v_reply.examined)
            else mainspring_stored.next_lane_rows_v1(p_lane_sets, v_size, v_reply.examined) end;
        exit when cardinality(v_rows) = 0;
        v_reply.examined := v_reply.examined || v_rows;
        v_new := mainspring_stored.try_lock_buckets_v1(
            array(
                select distinct b.name from mainspring_stored.read_lane_rows_v1(v_rows) l
                cross join unnest(l.buckets) as b(name) where b.name <> all(v_reply.locked)
            )
        );
        v_reply.locked := v_reply.locked || v_new;
        -- A new statement: it counts what other transactions did to these buckets before they were locked.
        v_reply.capacities := v_reply.capacities || mainspring_stored.read_capacities_v1(v_new, p_now);
        v_full := p_full || array(select r.name from unnest(v_reply.capacities) r where r.available <= 0);
        select v_reply.eligible || coalesce(array_agg(l.id) filter (where h.seq <= l.seq), '{}'),
            coalesce(array_agg(l.id) filter (where h.seq > l.seq), '{}'), array_agg(h.seq) filter (where h.seq > l.seq),
            coalesce(array_agg(l.id) filter (where h.seq is null), '{}')
        into v_eligible, v_behind, v_seqs, v_empty from mainspring_stored.read_lane_rows_v1(v_rows) l left join lateral (
            select j.seq from mainspring_stored.jobs j
            where j.state = 'ready' and j.lane = l.lane and j.priority = l.priority and (j.expires is null or j.expires > p_now)
            order by j.seq limit 1
        ) h on true
        where l.buckets <@ v_reply.locked and not l.buckets && v_full and not exists (
            -- A row before it in its lane waits for a rate: this job may cost less, but no job overtakes in a lane. It
            -- will wait too.
            select 1 from mainspring_stored.keyed_lanes o where o.lane = l.lane and o.priority <> l.priority
                and mainspring_stored.order_key_v1(o.seq, o.priority) < mainspring_stored.order_key_v1(l.seq, l.priority)
                and mainspring_stored.waits_for_rate_v1(o)
        );
        v_reply.eligible := v_eligible;
        if cardinality(v_behind || v_empty) > 0 then
            -- Their first jobs were cancelled or got another priority: they move to their new place, and are examined
            -- when their turn comes, or are empty. Lanes that were not rechecked because these rows were before them
            -- may come first.
            update mainspring_stored.keyed_lanes l set seq = u.seq from unnest(v_behind, v_seqs) as u(id, seq)
                where l.id = any(array[u.id]);
            perform mainspring_stored.recheck_lanes_v1(
                array(
                    select distinct b.name from mainspring_stored.read_lane_rows_v1(v_behind || v_empty) l
                    cross join unnest(l.buckets) as b(name)
                ), false, p_now
            );
            v_reply.examined := array(select u.id from unnest(v_reply.examined) as u(id) where u.id <> all(v_behind));
            v_again := v_again + cardinality(v_behind);
        end if;
        v_reply.more := v_reply.more or exists (
            select 1 from mainspring_stored.read_lane_rows_v1(v_rows) l
            where not l.buckets <@ v_reply.locked
        );
        -- A row that was moved, and a lane that was rechecked, may come before rows that were found eligible.
        exit when cardinality(v_reply.eligible) >= p_n and cardinality(v_behind || v_empty) = 0;
        if cardinality(v_reply.examined) - cardinality(p_examined) + v_again >= c_most then
            v_reply.more := true;
            exit;
        end if;
        v_size := v_size * 2;
    end loop;
    return v_reply;
end
$$;

CREATE FUNCTION mainspring_stored.fair_step_v1(p_lane text, p_queue text) RETURNS double precision
    LANGUAGE sql IMMUTABLE
    AS $$
    select case when mainspring_stored.is_fair_lane_v1(p_lane, p_queue)
        then 1 / split_part(substr(p_lane, mainspring_stored.key_position_v1(p_lane, p_queue) + 1), '*', 1)::double precision end
$$;

CREATE FUNCTION mainspring_stored.find_ended_v1(p_ids bytea[]) RETURNS bytea[]
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

CREATE FUNCTION mainspring_stored.find_fair_heads_v1(p_rows bigint[], p_n integer, p_all boolean, p_names text[], p_available bigint[], p_now bigint) RETURNS TABLE(id bytea, lane text, buckets text[], costs bigint[], priority integer, seq bigint, keyed boolean, nth bigint)
    LANGUAGE plpgsql
    AS $$
begin
    if cardinality(p_rows) = 0 then
        return;
    end if;
    return query
    with rows as (
        select l.lane, l.priority, l.queue, l.vtime, l.step, greatest(l.vtime, c.vtime) as behind, least(p_n, (
            select greatest(coalesce(min(p_available[array_position(p_names, b.name)]), p_n), 0) from unnest(l.buckets) as b(name)
        )) as most
        from mainspring_stored.read_lane_rows_v1(p_rows) l
        left join mainspring_stored.fair_clocks c on c.queue = l.queue and c.priority = l.priority
    ), cuts as (
        select r.queue, r.priority, max(r.vtime) + case when count(*) >= p_n then 0 else p_n / sum(1 / r.step) end as cut
        from rows r group by r.queue, r.priority
    ), heads as (
        select x.*, r.queue, case when x.n = 1 then r.vtime else r.behind + (x.n - 1) * r.step end as vtime
        from rows r join cuts c on c.queue = r.queue and c.priority = r.priority
        cross join lateral (
            select j.id, j.lane::text, j.buckets, j.costs, j.priority, j.seq, row_number() over (order by j.seq) as n
            from (
                select * from mainspring_stored.jobs j
                where j.state = 'ready' and j.lane = r.lane and j.priority = r.priority
                    and (j.expires is null or j.expires > p_now)
                order by j.seq
                limit case when p_all then r.most else least(r.most, 1 + floor((c.cut - r.vtime) / r.step)) end
            ) j
        ) x
    )
    select h.id, h.lane, h.buckets, h.costs, h.priority,
        max(h.seq) over w, true, row_number() over w
    from heads h window w as (partition by h.queue, h.priority order by h.vtime, h.seq);
end
$$;

CREATE FUNCTION mainspring_stored.find_first_jobs_v1(p_lanes text[]) RETURNS TABLE(lane text, priority integer, seq bigint)
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

CREATE FUNCTION mainspring_stored.find_first_jobs_v1(p_examined bigint[], p_locked text[], p_capacities mainspring_stored.capacity_v1[], p_now bigint) RETURNS TABLE(id bigint, lane text, buckets text[], seq bigint, head bigint, name text, moment bigint, by_rate boolean, again boolean, place bigint)
    LANGUAGE sql STABLE
    AS $$
    select l.id, l.lane, l.buckets, l.seq, h.seq, coalesce(a.name, f.name),
        case when a.name is null then f.moment else a.moment end, a.name is not null or f.by_rate,
        row_number() over (partition by l.lane, l.priority order by l.id) > 1,
        mainspring_stored.order_key_v1(coalesce(h.seq, l.seq), l.priority)
    from mainspring_stored.read_lane_rows_v1(p_examined) l
    left join lateral (
        select j.seq, j.costs from mainspring_stored.jobs j
        where j.state = 'ready' and j.lane = l.lane and j.priority = l.priority order by j.seq limit 1
    ) h on true
    left join lateral (
        -- A full unkeyed bucket holds back the whole lane set: its lanes stay in the order.
        select r.name, mainspring_stored.find_recheck_time_v1(r.name, r.kind, coalesce(h.costs[u.n], 1), p_now) as moment,
            r.unit > 0 as by_rate
        from unnest(l.buckets) with ordinality as u(name, n) join unnest(p_capacities) r on r.name = u.name
        where h.seq is not null and r.available < greatest(1, least(coalesce(h.costs[u.n], 1), r.cap))
            and (r.available > 0 or strpos(r.name, '=') > 0)
        order by 2 desc nulls first limit 1
    ) f on true
    left join lateral (
        select o.waits_for as name, o.recheck_at as moment from mainspring_stored.keyed_lanes o
        where h.seq is not null and o.lane = l.lane and o.priority <> l.priority and mainspring_stored.waits_for_rate_v1(o)
            and mainspring_stored.order_key_v1(o.seq, o.priority) < mainspring_stored.order_key_v1(h.seq, l.priority)
        order by mainspring_stored.order_key_v1(o.seq, o.priority) limit 1
    ) a on true
    where l.buckets <@ p_locked
$$;

CREATE FUNCTION mainspring_stored.find_full_buckets_v1(p_names text[], p_costs bigint[], p_now bigint, OUT at integer, OUT next_at bigint, OUT names text[], OUT counts boolean) RETURNS record
    LANGUAGE plpgsql
    AS $$
begin
    select min(u.n), case when bool_and(m.at is not null) then max(m.at) end, array_agg(u.name),
        bool_and(r.kind = 'concurrency')
    into at, next_at, names, counts
    from unnest(p_names, p_costs) with ordinality as u(name, cost, n)
    join unnest(mainspring_stored.read_capacities_v1(p_names, p_now)) r on r.name = u.name
    cross join lateral (select mainspring_stored.find_next_start_v1(u.name, u.cost, p_now) as at) m
    where r.available < greatest(1, least(u.cost, r.cap));
end
$$;

CREATE FUNCTION mainspring_stored.find_gone_v1(p_worker text, p_ids bytea[], p_tokens bigint[]) RETURNS TABLE(id bytea, token bigint)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
begin
    return query select h.id, h.token from unnest(p_ids, p_tokens) as h(id, token) where not exists (
        select 1 from mainspring_stored.jobs j
        where j.id = any(array[h.id]) and j.token = h.token and j.state || '' = 'running' and j.worker || '' = p_worker
    );
end
$$;

CREATE FUNCTION mainspring_stored.find_heads_v1(p_lanes mainspring_stored.lane_v1[], p_rows bigint[], p_n integer, p_names text[], p_available bigint[], p_now bigint) RETURNS TABLE(id bytea, lane text, buckets text[], costs bigint[], priority integer, seq bigint, keyed boolean)
    LANGUAGE plpgsql
    AS $$
begin
    return query
    select a.*, false as keyed from mainspring_stored.find_lane_heads_v1(p_lanes, p_n, p_now) a
    union all
    select x.*, true from mainspring_stored.read_lane_rows_v1(p_rows) l cross join lateral (
        select least(p_n, (
            select greatest(min(p_available[array_position(p_names, b.name)]), 0) from unnest(l.buckets) as b(name)
        )) as most
    ) m cross join lateral (
        select j.id, j.lane::text, j.buckets, j.costs, j.priority, j.seq from mainspring_stored.jobs j
        where j.state = 'ready' and j.lane = l.lane and j.priority = l.priority and (j.expires is null or j.expires > p_now)
        order by j.seq limit m.most
    ) x;
end
$$;

CREATE FUNCTION mainspring_stored.find_key_holder_v1(p_hash bytea, p_again boolean, p_now bigint) RETURNS bytea
    LANGUAGE plpgsql
    AS $$
begin
    return (
        select case
            when p_again or k.until > p_now or exists (select 1 from mainspring_stored.jobs j where j.id = any(array[k.job])) then k.job
            when k.mode <> '' then mainspring_stored.find_later_holder_v1(k, p_now)
        end
        from mainspring_stored.keys k where k.hash = p_hash
    );
end
$$;

CREATE FUNCTION mainspring_stored.find_lane_heads_v1(p_lanes mainspring_stored.lane_v1[], p_n integer, p_now bigint) RETURNS TABLE(id bytea, lane text, buckets text[], costs bigint[], priority integer, seq bigint)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
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
    select h.* from levels v cross join lateral (
        select j.id, j.lane::text, j.buckets, j.costs, j.priority, j.seq from mainspring_stored.jobs j
        where j.state = 'ready' and j.lane = v.lane and j.priority = v.priority
            and (j.expires is null or j.expires > p_now)
        order by j.seq limit p_n
    ) h order by mainspring_stored.order_key_v1(h.seq, h.priority), h.seq;
end
$$;

CREATE FUNCTION mainspring_stored.find_lane_sets_v1(p_keyed mainspring_stored.lane_v1[], p_tasks text[]) RETURNS mainspring_stored.lane_v1[]
    LANGUAGE plpgsql
    AS $$
begin
    return array(
        with recursive hops as (
            select k.lane as start, k.buckets, n.lane_set from unnest(p_keyed) k cross join lateral (
                select l.lane_set from mainspring_stored.keyed_lanes l
                    where l.waits_for is null and l.lane_set >= k.lane || '=' and l.lane_set < k.lane || '>'
                order by l.lane_set limit 1
            ) n
            union all
            select h.start, h.buckets, n.lane_set from hops h cross join lateral (
                select l.lane_set from mainspring_stored.keyed_lanes l
                    where l.waits_for is null and l.lane_set > h.lane_set and l.lane_set < h.start || '>'
                order by l.lane_set limit 1
            ) n
        )
        select row(
            h.lane_set, starts_with(m.marks, '!'),
            -- A claim from lanes with fair keys holds the lock of their queue.
            array(select b.name from unnest(h.buckets) as b(name) where strpos(b.name, '=') = 0) || case
                when mainspring_stored.is_fair_lane_v1(h.start, split_part(h.start, '/', 1)) then array['*' || split_part(h.start, '/', 1)]
            end,
            null, null, null, true
        )::mainspring_stored.lane_v1
        from hops h cross join lateral (select substr(h.lane_set, length(h.start) + 2) as marks) m
        where strpos(m.marks, '?') = 0 or substr(m.marks, strpos(m.marks, '?') + 1) = any(p_tasks)
    );
end
$$;

CREATE FUNCTION mainspring_stored.find_lanes_v1(p_bases text[], p_tasks text[], p_known text[]) RETURNS mainspring_stored.lane_v1[]
    LANGUAGE plpgsql
    AS $$
declare
    v_lanes mainspring_stored.lane_v1[];
    v_keyed mainspring_stored.lane_v1[];
begin
    with recursive hops as (
        select b.base, n.* from (
            select distinct u.base, u.base || case when u.base = any(p_known) then chr(1) else '' end as start
            from unnest(p_bases) as u(base)
        ) b cross join lateral (
            select j.lane, j.crashes > 0 and j.crashes >= j.crash_limit - 1 as suspect, j.buckets, j.costs, j.parked, j.task,
                j.priority, j.seq, k.at,
                (case when k.at > 0 then left(j.home, k.at - 1) || '>' else j.lane end) collate "C" as behind
            from mainspring_stored.jobs j
            cross join lateral (select case when j.buckets is null
                then 0 else mainspring_stored.key_position_v1(j.home, j.queue) end as at) k
            where j.state = 'ready' and j.lane >= b.start and j.lane < b.base || '@'
            order by j.lane, j.priority desc, j.seq limit 1
        ) n
        union all
        select h.base, n.* from hops h cross join lateral (
            select j.lane, j.crashes > 0 and j.crashes >= j.crash_limit - 1 as suspect, j.buckets, j.costs, j.parked, j.task,
                j.priority, j.seq, k.at,
                (case when k.at > 0 then left(j.home, k.at - 1) || '>' else j.lane end) collate "C" as behind
            from mainspring_stored.jobs j
            cross join lateral (select case when j.buckets is null
                then 0 else mainspring_stored.key_position_v1(j.home, j.queue) end as at) k
            where j.state = 'ready' and j.lane > h.behind and j.lane < h.base || '@'
            order by j.lane, j.priority desc, j.seq limit 1
        ) n
    )
    select array_agg(row(h.lane, h.suspect, h.buckets, h.costs, h.priority, h.seq, false)::mainspring_stored.lane_v1)
            filter (where h.at = 0 and (not h.parked or h.task = any(p_tasks))),
        array_agg(row(left(h.behind, h.at - 1), null, h.buckets, null, null, null,
            true)::mainspring_stored.lane_v1) filter (where h.at > 0)
    into v_lanes, v_keyed from hops h;
    if v_keyed is null then
        return coalesce(v_lanes, '{}');
    end if;
    return coalesce(v_lanes, '{}') || mainspring_stored.find_lane_sets_v1(v_keyed, p_tasks);
end
$$;

CREATE TABLE mainspring_stored.keys (
    hash bytea NOT NULL,
    job bytea,
    until bigint DEFAULT 0 NOT NULL,
    span bigint DEFAULT 0 NOT NULL,
    mode text DEFAULT ''::text NOT NULL,
    print bytea,
    previous bytea,
    replaced_by bytea,
    CONSTRAINT keys_hash_check CHECK ((length(hash) = 16))
)
WITH (fillfactor='70');

CREATE FUNCTION mainspring_stored.find_later_holder_v1(p_key mainspring_stored.keys, p_now bigint) RETURNS bytea
    LANGUAGE plpgsql
    AS $$
begin
    if p_key.mode = 'keep_last' then
        return (select j.id from mainspring_stored.jobs j where j.id = p_key.previous);
    elsif p_key.mode = 'keep' then
        return (
            select f.id from mainspring_stored.finished f
            where f.id = p_key.job and mainspring_stored.key_until_v1(p_key, f.state, f.started, f.finished) > p_now
        );
    end if;
    return null;
end
$$;

CREATE FUNCTION mainspring_stored.find_levels_above_v1(p_lanes text[], p_low_lane text[], p_low_priority integer[], p_low_seq bigint[], p_now bigint) RETURNS TABLE(lane text, priority integer, seq bigint)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
begin
    return query
    with recursive known as (
        select l.lane, l.priority, l.seq from unnest(p_low_lane, p_low_priority, p_low_seq) as l(lane, priority, seq)
        where l.lane = any(p_lanes)
    ), gaps as (  -- the priorities between a mark and the next, and those above the first mark
        select k.lane, k.priority - 1 as top, coalesce(
            (select max(o.priority) + 1 from known o where o.lane = k.lane and o.priority < k.priority), -2147483648
        ) as bottom from known k
        union all
        select k.lane, 2147483647, max(k.priority) + 1 from known k group by k.lane
    ), levels as (
        select g.lane, g.bottom, n.priority, n.seq from gaps g cross join lateral (
            select j.priority, j.seq from mainspring_stored.jobs j
            where j.state = 'ready' and j.lane = g.lane and j.priority <= g.top and j.priority >= g.bottom
                and (j.expires is null or j.expires > p_now)
            order by j.priority desc, j.seq limit 1
        ) n
        union all
        select v.lane, v.bottom, n.priority, n.seq from levels v cross join lateral (
            select j.priority, j.seq from mainspring_stored.jobs j
            where j.state = 'ready' and j.lane = v.lane and j.priority < v.priority and j.priority >= v.bottom
                and (j.expires is null or j.expires > p_now)
            order by j.priority desc, j.seq limit 1
        ) n
    )
    select v.lane, v.priority, v.seq from levels v
    union all
    select k.lane, k.priority, n.seq from known k cross join lateral (
        select j.seq from mainspring_stored.jobs j
        where j.state = 'ready' and j.lane = k.lane and j.priority = k.priority and j.seq >= k.seq
            and (j.expires is null or j.expires > p_now)
        order by j.seq limit 1
    ) n;
end
$$;

CREATE FUNCTION mainspring_stored.find_low_marks_v1(p_worker text, p_number bigint, p_lanes text[], p_low_lane text[], p_low_priority integer[], p_last bigint, p_n bigint) RETURNS TABLE(lane text, priority integer, seq bigint)
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
    where (c.seq is not null or v_got < p_n)
        -- In a lifo queue the newest jobs lie below every mark.
        and coalesce(c.seq, 0) >= 0 and not exists (
            select 1 from mainspring_stored.queues q where q.name = split_part(k.lane, '/', 1) and q.settings ->> 'order' = 'lifo'
        );
end
$$;

CREATE FUNCTION mainspring_stored.find_matching_v1(p_ids bytea[], p_states text[], p_queues text[], p_tasks text[], p_marks text[], p_reasons text[], p_errors text[], p_since bigint, p_until bigint, p_ended_before bigint) RETURNS mainspring_stored.ended_v1[]
    LANGUAGE plpgsql
    AS $$
begin
    return array(
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
                where not exists (select 1 from mainspring_stored.marks m
                    where m.mark = any(array[asked.mark]) and m.job = any(array[a.id]))
            )
        order by array_position(p_ids, a.id)
    );
end
$$;

CREATE FUNCTION mainspring_stored.find_met_edges_v1(p_ends mainspring_stored.parent_end_v1[], p_slice integer) RETURNS mainspring_stored.met_edge_v1[]
    LANGUAGE plpgsql
    AS $$
begin
    return array(
        select row(
            x.id, e.child, f.effect, case when e.policy = 'member' then
                case when o.dead and x.how = 'cancelled' then 'dead' else x.how end end
        )::mainspring_stored.met_edge_v1
        from unnest(p_ends) x
        left join lateral (select j.dead > 0 as dead from mainspring_stored.joins j where j.id = any(array[x.id])) o on true
        cross join lateral (
            select e.child, e.policy from mainspring_stored.edges e
            where e.parent = any(array[x.id]) and case x.how
                when 'first_death' then e.policy = 'dead' when 'unheld' then e.policy = 'hold' else true end
            limit coalesce(p_slice, case when o.dead is not null then 1000 end)
        ) e
        cross join lateral (select mainspring_stored.edge_effect_v1(e.policy, x.how, coalesce(o.dead, false)) as effect) f
        where f.effect is distinct from 'stays'
    );
end
$$;

CREATE FUNCTION mainspring_stored.find_new_jobs_v1(p_id bytea[], p_late boolean) RETURNS boolean[]
    LANGUAGE plpgsql
    AS $$
declare
    v_new boolean[] := array(
        select not exists (select 1 from mainspring_stored.jobs j where j.id = any(array[u.id]))
        from unnest(p_id) with ordinality as u(id, n) order by u.n
    );
    v_ended boolean[];
begin
    if p_late then
        v_ended := mainspring_stored.mark_members_v1(p_id, mainspring_stored.find_ended_v1(p_id));
        v_new := array(
            select t.new and not t.ended from unnest(v_new, v_ended) with ordinality as t(new, ended, n) order by t.n
        );
    end if;
    return v_new;
end
$$;

CREATE FUNCTION mainspring_stored.find_next_start_v1(p_name text, p_cost bigint, p_now bigint) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
declare
    v_limit mainspring_stored.limits;
    v_bucket mainspring_stored.buckets;
    v_size bigint;
    v_cost bigint;
    v_at bigint;
begin
    select * into v_limit from mainspring_stored.limits l where l.name = split_part(p_name, '=', 1);
    v_size := coalesce(v_limit.set_size, v_limit.size);
    if v_limit.kind = 'breaker' then
        return (select b.until from mainspring_stored.breakers b where b.name = p_name and b.until > p_now and b.until < 4503599627370496);
    elsif v_limit.name is null or v_limit.kind = 'concurrency' or v_size <= 0 then
        return null;
    end if;
    select * into v_bucket from mainspring_stored.buckets b where b.name = p_name;
    v_cost := least(p_cost, v_size);
    if v_limit.kind = 'smooth' then
        v_cost := greatest(v_cost, 1);
        v_at := coalesce(v_bucket.tat, 0) - mainspring_stored.smooth_slack_v1(v_limit)
            - div((greatest(v_limit.burst, v_cost) - v_cost)::numeric * v_limit.per, v_size);
    else
        -- behind: what still counts once an entry and all entries before it are over
        select min(e.over) filter (where e.behind + greatest(v_cost, 1) <= v_size) into v_at from (
            select s.last + v_limit.per as over,
                sum(s.n) over (order by s.last desc rows between unbounded preceding and current row) - s.n as behind
            from mainspring_stored.rate_starts s where s.bucket = p_name and s.last > p_now - v_limit.per
            union all
            select p_now, coalesce(sum(s.n), 0) from mainspring_stored.rate_starts s
                where s.bucket = p_name and s.last > p_now - v_limit.per
        ) e;
    end if;
    v_at := greatest(v_at, v_bucket.blocked_until);
    return case when v_at > p_now then v_at end;
end
$$;

CREATE FUNCTION mainspring_stored.find_old_partition_v1(p_before bigint, p_now bigint) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
    v_name text;
    v_held boolean;
begin
    for v_name in select c.name from mainspring_stored.list_partitions_v1() c where c.until <= p_before order by c.until loop
        execute format(
            'select exists (select 1 from mainspring_stored.%1$I where drop_at > $1) or exists ('
            'select 1 from mainspring_stored.keys k join mainspring_stored.%1$I f on f.id = k.job '
            'where mainspring_stored.key_until_v1(k, f.state, f.started, f.finished) > $1)', v_name
        ) into v_held using mainspring_stored.now_v1(p_now);
        if not v_held then
            return v_name;
        end if;
    end loop;
    return null;
end
$_$;

CREATE FUNCTION mainspring_stored.find_oldest_snapshot_v1() RETURNS TABLE(pid integer, seconds double precision)
    LANGUAGE sql STABLE
    AS $$
    select a.pid, extract(epoch from clock_timestamp() - a.xact_start)::double precision from pg_stat_activity a
    where a.datname = current_database() and a.backend_xmin is not null and a.xact_start is not null and a.pid <> pg_backend_pid()
    order by age(a.backend_xmin) desc limit 1
$$;

CREATE FUNCTION mainspring_stored.find_other_key_v1(p_lane text, p_priority integer) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
declare
    v_lowest bigint;
    v_next record;
begin
    loop
        select j.priority, mainspring_stored.order_key_v1(j.seq, j.priority) as key into v_next from mainspring_stored.jobs j
        where j.state = 'ready' and j.lane = p_lane and j.priority < p_priority
        order by j.priority desc, j.seq limit 1;
        exit when not found;
        p_priority := v_next.priority;
        v_lowest := least(v_lowest, v_next.key);
    end loop;
    return v_lowest;
end
$$;

CREATE FUNCTION mainspring_stored.find_recheck_time_v1(p_name text, p_kind text, p_cost bigint, p_now bigint) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
begin
    if p_kind <> 'concurrency' then
        p_cost := mainspring_stored.find_next_start_v1(p_name, p_cost, p_now);
        if p_kind <> 'breaker' or p_cost is not null then
            return p_cost;
        end if;
    end if;
    return (select min(g.until) from mainspring_stored.holders g where g.bucket = p_name and g.until > p_now);
end
$$;

CREATE FUNCTION mainspring_stored.find_starts_v1(p_ids bytea[]) RETURNS TABLE(id bytea, started bigint)
    LANGUAGE plpgsql
    AS $$
begin
    return query
    select j.id, j.started from mainspring_stored.jobs j where j.id = any(p_ids) and j.token > 0
    union all
    select f.id, f.started from mainspring_stored.finished f where f.id = any(p_ids) and f.token > 0
    union all
    select d.id, d.started from mainspring_stored.dead d where d.id = any(p_ids) and d.token > 0;
end
$$;

CREATE FUNCTION mainspring_stored.find_strays_v1(p_lane text[], p_priority integer[], p_seq bigint[]) RETURNS TABLE(lane text, priority integer, seq bigint)
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
    v_walked bigint := mainspring_stored.count_walked_v1();
begin
    return query
    select l.lane, l.priority, min(s.seq) from unnest(p_lane, p_priority, p_seq) as l(lane, priority, seq)
    cross join lateral (
        select j.seq from mainspring_stored.jobs j
        where j.state = 'ready' and j.lane = l.lane and j.priority = l.priority and j.seq < l.seq
        order by j.seq limit 100
    ) s
    group by l.lane, l.priority;
    return query select null, null::integer, mainspring_stored.count_walked_v1() - v_walked;
end
$$;

CREATE FUNCTION mainspring_stored.finish_v1(p_endings mainspring_stored.ending_v1[], p_now bigint, p_ended mainspring_stored.parent_end_v1[] DEFAULT '{}'::mainspring_stored.parent_end_v1[]) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
declare
    v_moved mainspring_stored.moved_v1;
begin
    if coalesce(cardinality(p_endings), 0) + cardinality(p_ended) = 0 then
        return '{}';
    end if;
    if cardinality(p_endings) > 0 then
        v_moved := mainspring_stored.move_to_history_v1(p_endings, '{}', p_now);
    end if;
    return coalesce(v_moved.woken, '{}') || mainspring_stored.resolve_dependents_v1(
        p_ended || array(
            select row(x.id, case when x.reason = 'bypassed' then x.reason else x.state end)::mainspring_stored.parent_end_v1
            from unnest(p_endings) x
        ), null, p_now
    );
end
$$;

CREATE FUNCTION mainspring_stored.first_vtime_v1(p_queue text, p_priority integer, p_step double precision) RETURNS double precision
    LANGUAGE plpgsql
    AS $$
begin
    return case when p_step is not null then p_step
        + coalesce((select c.vtime from mainspring_stored.fair_clocks c where c.queue = p_queue and c.priority = p_priority), 0) end;
end
$$;

CREATE FUNCTION mainspring_stored.flow_mark_v1(p_root bytea) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
    select '%' || encode(p_root, 'hex')
$$;

CREATE FUNCTION mainspring_stored.follow_clock_v1(p_now bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    v_lock bigint;
begin
    if coalesce(pg_sequence_last_value('mainspring_stored.seq'::regclass), 0) >= p_now - 1000000 then
        return;
    end if;
    v_lock := hashtextextended('mainspring seq mainspring_stored', 0);
    perform case when pg_try_advisory_lock(v_lock) then row(
        case when coalesce(pg_sequence_last_value('mainspring_stored.seq'::regclass), 0) < p_now - 1000000
            then setval('mainspring_stored.seq', p_now) end,
        pg_advisory_unlock(v_lock)
    ) end;
end
$$;

CREATE FUNCTION mainspring_stored.forget_limit_v1(p_limit text) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
begin
    perform mainspring_stored.guard_v1();
    delete from mainspring_stored.breakers b where b.name = p_limit;
    delete from mainspring_stored.limits l where l.name = p_limit;
    return case when found then mainspring_stored.request_rechecks_v1(array[p_limit]) end;
end
$$;

CREATE FUNCTION mainspring_stored.forget_queues_v1(p_queues text[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    delete from mainspring_stored.queues q
    where q.name = any(p_queues) and q.mode = 'open' and q.disabled is null and q.declared is null and q.given is null;
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

CREATE FUNCTION mainspring_stored.hand_back_v1(p_worker text, p_acks mainspring_stored.ack_v1[], p_now bigint) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
declare
    v_back bytea[];
    v_woken text[];
    v_limited bytea[];
begin
    perform mainspring_stored.record_attempts_v1(
        array(
            select a.id from unnest(p_acks) a join mainspring_stored.jobs j on j.id = any(array[a.id])
            where a."to" <> 'succeeded' or j.ordered is not null
        ), p_acks, null, p_now
    );
    v_back := array(
        select a.id from unnest(p_acks) a join mainspring_stored.jobs j on j.id = any(array[a.id])
        where j.ordered is null and a."to" in ('ready', 'retrying', 'scheduled') and a.outcome <> 'crashed'
    );
    if cardinality(v_back) = 0 then
        return '{}';
    end if;
    with placed as materialized (
        select u.*, case when u."to" = 'ready' and u.buckets is null then nextval('mainspring_stored.seq') end as seq
        from (select x.* from unnest(p_acks) x where x.id = any(v_back) order by x.n) u
    ), moved as (
        update mainspring_stored.jobs j
        set state = a."to",
            attempt = j.attempt - a.refund::integer,
            expires = case when a.unstarted then j.expires end,
            parked = j.parked or a.park,
            lane = mainspring_stored.job_lane_v1(j.home, j.task, j.crashes, j.crash_limit, j.parked or a.park),
            due = case when a."to" <> 'ready' then coalesce(a.due, p_now + a.delay) end,
            seq = coalesce(case when j.seq < 0 then -a.seq else a.seq end, j.seq),
            turn = null
        from placed a
        where j.id = any(array[a.id])
        returning j.id, j.queue, j.state, j.buckets
    )
    select array_agg(distinct m.queue) filter (where m.state = 'ready'), array_agg(m.id) filter (where m.buckets is not null)
    into v_woken, v_limited from moved m;
    if v_limited is not null then
        perform mainspring_stored.release_uses_v1(p_worker, mainspring_stored.list_buckets_v1(v_limited));
    end if;
    if exists (select 1 from unnest(p_acks) a where a.buckets is not null) then
        v_limited := v_limited || mainspring_stored.add_buckets_to_jobs_v1(p_acks, v_back);
    end if;
    if v_limited is not null then
        perform mainspring_stored.add_lane_rows_v1(v_limited, false);
    end if;
    return coalesce(v_woken, '{}');
end
$$;

CREATE FUNCTION mainspring_stored.hold_v1(p_holder bytea, p_names text[], p_costs bigint[], p_ttl bigint, p_limits jsonb, p_keep bigint, p_info bytea, p_fenced boolean, p_now bigint) RETURNS TABLE(ok boolean, now bigint, until bigint, next_at bigint, full_at integer, kept boolean, token bigint, woken text[])
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    v_now bigint;
    v_held record;
    v_reserved jsonb;
    v_full record;
    v_token bigint;
begin
    perform mainspring_stored.guard_v1();
    if p_limits is not null then
        perform mainspring_stored.add_limits_v1(p_limits);
    end if;
    perform pg_advisory_xact_lock_shared(mainspring_stored.queue_modes_lock_v1());
    perform mainspring_stored.lock_buckets_v1(
        case when cardinality(p_names) > 0 then p_names
        else array(select g.bucket from mainspring_stored.holders g where g.holder = p_holder order by 1) end
    );
    v_now := mainspring_stored.now_v1(p_now);
    with kept as (
        update mainspring_stored.holders g set until = greatest(g.until, v_now + p_ttl) where g.holder = p_holder and g.until > v_now
        returning g.token, g.until
    )
    select max(k.token) as token, max(k.until) as until into v_held from kept k;
    if v_held.token is not null then
        return query select true, v_now, v_held.until, null::bigint, null::integer, false, v_held.token, '{}'::text[];
        return;
    elsif cardinality(p_names) = 0 then
        return query select false, v_now, 0::bigint, null::bigint, null::integer, false, 0::bigint, '{}'::text[];
        return;
    end if;
    delete from mainspring_stored.holders g where g.holder = p_holder;
    v_reserved := mainspring_stored.take_reservations_v1(p_names, v_now);
    select f.* into v_full from mainspring_stored.find_full_buckets_v1(p_names, p_costs, v_now) f;
    if v_full.at is not null then
        return query select false, v_now, 0::bigint, v_full.next_at, v_full.at, k.kept, 0::bigint, k.woken
        from mainspring_stored.reserve_places_v1(v_full.names, v_reserved, case when v_full.counts then p_keep else 0 end, v_now) k;
        return;
    end if;
    v_token := mainspring_stored.add_holder_v1(p_holder, p_names, p_costs, v_now + p_ttl, p_info, p_fenced, v_now);
    return query select true, v_now, v_now + p_ttl, null::bigint, null::integer, false, v_token, '{}'::text[];
end
$$;

CREATE FUNCTION mainspring_stored.holders_v1(p_bucket text, p_after text, p_limit integer, p_now bigint) RETURNS TABLE(bucket text, holder bytea, token bigint, since bigint, until bigint, remaining bigint, info bytea)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    v_now bigint := mainspring_stored.now_v1(p_now);
begin
    return query
    select g.bucket::text, g.holder, g.token, g.since, g.until, g.until - v_now, g.info from mainspring_stored.holders g
    where g.bucket >= p_bucket and (g.bucket < p_after or p_after is null and g.bucket = p_bucket) and g.until > v_now
        and g.holder not in ('next', 'rest')
    order by g.bucket, g.since, g.holder limit p_limit;
end
$$;

CREATE FUNCTION mainspring_stored.insert_jobs_v1(p_id bytea[], p_take boolean[], p_task text[], p_queue text[], p_home text[], p_priority integer[], p_delay bigint[], p_run_at bigint[], p_expires_in bigint[], p_crash_limit integer[], p_early boolean[], p_record bytea[], p_keep bigint[], p_on smallint[], p_names text[], p_costs text[], p_key bytea[], p_waits integer[], p_now bigint) RETURNS bytea[]
    LANGUAGE plpgsql
    AS $$
declare
    v_new bytea[];
begin
    with made as (
        insert into mainspring_stored.jobs (
            id, state, task, queue, home, lane, priority, seq, due, expires, crash_limit, early, deps, keep, key, followed,
            buckets, costs, enqueued, record
        )
        select n.id, n.state, n.task, n.queue, n.home, n.home, n.priority,
            case when n.state = 'ready' then nextval('mainspring_stored.seq') else 0 end,
            case when n.state <> 'ready' and n.due > p_now then n.due end, p_now + n.expires_in, n.crash_limit, n.early,
            coalesce(n.deps, 0), n.keep, n.key, coalesce(n.followed, 0), n.names::text[], n.costs::bigint[], p_now, n.record
        from (
            select u.*, d.due,
                case when u.deps > 0 then 'blocked' when d.due > p_now then 'scheduled' else 'ready' end as state
            from unnest(
                p_id, p_task, p_queue, p_home, p_priority, p_delay, p_run_at, p_expires_in, p_crash_limit, p_early, p_record,
                p_keep, p_key, p_on, p_names, p_costs, p_waits
            ) with ordinality as u(
                id, task, queue, home, priority, delay, run_at, expires_in, crash_limit, early, record, keep, key, followed,
                names, costs, deps, n
            )
            cross join lateral (select coalesce(u.run_at, p_now + u.delay) as due) d
            where p_take[u.n]
            order by u.n
        ) n
        on conflict (id) do nothing
        returning jobs.id
    )
    select coalesce(array_agg(m.id), '{}') into v_new from made m;
    return v_new;
end
$$;

CREATE FUNCTION mainspring_stored.is_fair_lane_v1(p_lane text, p_queue text) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $$
    select strpos(split_part(substr(p_lane, length(p_queue) + 2), '=', 1), '#*') > 0
$$;

CREATE FUNCTION mainspring_stored.is_flow_live_v1(p_root bytea) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
begin
    if exists (select 1 from mainspring_stored.joins o where o.id = any(array[p_root]) and o.pruning) then
        return false;
    end if;
    return exists (
        select 1 from mainspring_stored.marks m
        join mainspring_stored.jobs j on j.id = any(array[m.job])
        where m.mark = mainspring_stored.flow_mark_v1(p_root)
    );
end
$$;

CREATE FUNCTION mainspring_stored.is_unlimited_fair_set_v1(p_lane_set text) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $$
    select strpos(split_part(substr(p_lane_set, strpos(p_lane_set, '/')), '?', 1), '#*=') > 0
$$;

CREATE FUNCTION mainspring_stored.job_lane_v1(p_home text, p_task text, p_crashes integer, p_limit integer, p_parked boolean) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
    select p_home || case when p_crashes > 0 and p_crashes >= p_limit - 1 then '!' else '' end
        || case when p_parked then '?' || p_task else '' end
$$;

CREATE FUNCTION mainspring_stored.judge_parents_v1(p_take boolean[], p_child_at integer[], p_parent bytea[], p_parent_at integer[], p_policy text[]) RETURNS mainspring_stored.judged_edge_v1[]
    LANGUAGE plpgsql
    AS $$
begin
    return array(
        select row(
            e.at, e.parent, e.policy, case when e.live and not (e.policy = 'dead' and o.dead) then 'stays'
                else mainspring_stored.edge_effect_v1(e.policy, case when e.live then 'first_death' else coalesce((
                    select case when f.reason = 'bypassed' then f.reason else f.state end
                    from mainspring_stored.finished f where f.id = any(array[e.parent]) limit 1
                ), 'dead') end, o.dead) end
        )::mainspring_stored.judged_edge_v1
        from (
            select u.at, u.parent, min(u.policy) as policy,
                bool_or(coalesce(p_take[u.inside], false)) or exists (select 1 from mainspring_stored.jobs j
                    where j.id = any(array[u.parent])) as live
            from unnest(p_child_at, p_parent, p_parent_at, p_policy) as u(at, parent, inside, policy)
            where p_take[u.at]
            group by u.at, u.parent
        ) e
        cross join lateral (
            select exists (select 1 from mainspring_stored.joins j where j.id = any(array[e.parent]) and j.dead > 0) as dead offset 0
        ) o
    );
end
$$;

CREATE FUNCTION mainspring_stored.keep_places_v1(p_id bytea[], p_queue text[], p_replaced mainspring_stored.replaced_v1[], p_open boolean) RETURNS bytea[]
    LANGUAGE plpgsql
    AS $$
begin
    update mainspring_stored.jobs j
    set enqueued = o.enqueued, epoch = o.epoch,
        seq = case when j.state = 'ready' and j.queue = o.queue then coalesce(o.seq, j.seq) else j.seq end
    from unnest(p_replaced) o
    where j.id = any(array[p_id[o.at]]);
    if not p_open then
        perform mainspring_stored.recheck_left_lanes_v1(array(select o.leaves from unnest(p_replaced) o));
    end if;
    return array(select p_id[o.at] from unnest(p_replaced) o where p_queue[o.at] = o.queue);
end
$$;

CREATE FUNCTION mainspring_stored.key_position_v1(p_home text, p_queue text) RETURNS integer
    LANGUAGE sql IMMUTABLE
    AS $$
    select case when strpos(substr(p_home, length(p_queue) + 2), '=') = 0 then 0
        else strpos(substr(p_home, length(p_queue) + 2), '=') + length(p_queue) + 1 end
$$;

CREATE FUNCTION mainspring_stored.key_until_v1(p_key mainspring_stored.keys, p_state text, p_started bigint, p_finished bigint) RETURNS bigint
    LANGUAGE sql IMMUTABLE
    AS $$
    select greatest(p_key.until, case
        when p_key.mode = 'keep' and p_state = 'succeeded' then p_finished + p_key.span
        when p_key.mode = 'throttle' then p_started + p_key.span
    end)
$$;

CREATE FUNCTION mainspring_stored.lane_with_limits_v1(p_home text, p_queue text, p_labels jsonb) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
    AS $$
declare
    v_rest text := substr(p_home, length(p_queue) + 1);
    v_at integer := strpos(v_rest, '#');
    v_base text := p_queue || case when v_at = 0 then v_rest else left(v_rest, v_at - 1) end;
    v_unkeyed text := case when v_at = 0 then '' else substr(v_rest, v_at + 1) end;
    v_keys text := case when strpos(v_unkeyed, '=') = 0 then '' else substr(v_unkeyed, strpos(v_unkeyed, '=')) end;
begin
    v_unkeyed := left(v_unkeyed, length(v_unkeyed) - length(v_keys));
    return (
        select v_base || '#' || coalesce(string_agg(g.label, ',' order by g.label collate "C") filter (where not g.keyed), '')
            || coalesce('=' || string_agg(g.label, ',' order by strpos(g.label, '*') = 0,
                g.label collate "C") filter (where g.keyed), '')
        from (
            select u.label, u.keyed from (
                select case x.label when '*' then '**' else x.label end as label, false as keyed
                from unnest(string_to_array(v_unkeyed, ',')) as x(label)
                union all
                select x.label, true from unnest(string_to_array(substr(v_keys, 2), ',')) as x(label)
            ) u where u.label <> ''
            union
            select l.label, strpos(l.label, '=') > 0 from jsonb_array_elements_text(p_labels) as l(label)
        ) g
    );
end
$$;

CREATE FUNCTION mainspring_stored.lead_v1(p_worker text, p_services text[], p_span bigint, p_now bigint) RETURNS TABLE(now bigint, led text[], fleet bigint, next_due bigint, next_look bigint, always_due boolean)
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS $$
declare
    v_now bigint := mainspring_stored.now_v1(p_now);
    v_clock bigint := (select m.clock from mainspring_stored.meta m);
    v_held text[] := array(
        select l.service from mainspring_stored.leads l where l.worker <> p_worker and l.until > v_now and l.until <= v_now + p_span
    );
begin
    if not p_services <@ v_held then
        insert into mainspring_stored.leads as l (service, worker, until, fleet)
        select s, p_worker, v_now + p_span, (select count(*) from mainspring_stored.workers w where not w.lost)
        from unnest(p_services) s order by s
        on conflict (service) do update set worker = excluded.worker, until = excluded.until, fleet = excluded.fleet
        where l.worker = p_worker or l.until <= v_now or l.until > v_now + p_span;
        if v_now > v_clock + 5000000 then
            update mainspring_stored.meta m set clock = v_now where m.clock < v_now;
        end if;
    end if;
    return query select v_now,
        array(
            select l.service from mainspring_stored.leads l
            where l.worker = p_worker and l.until > v_now and l.service = any(p_services) order by l.service
        ),
        coalesce((select max(l.fleet) from mainspring_stored.leads l), 1),
        case when v_now < v_clock - 1000000 or exists (select 1 from mainspring_stored.rechecks) then v_now
        else mainspring_stored.next_promotion_v1() end,
        (select s.look from mainspring_stored.schedules s where s.look > 0 order by s.look limit 1),
        exists (select 1 from mainspring_stored.schedules s where s.look = 0);
end
$$;

CREATE FUNCTION mainspring_stored.list_acked_buckets_v1(p_worker text, p_done bytea[], p_acks mainspring_stored.ack_v1[]) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
declare
    v_names text[] := array(select u.bucket from mainspring_stored.bucket_uses u where u.worker = p_worker
        order by u.bucket limit 8 + 1);
    v_acked integer := cardinality(p_done) + cardinality(p_acks);
begin
    if strpos(array_to_string(v_names, ''), '=') = 0
        and cardinality(v_names) <= greatest(1, least(8, v_acked / 8)) then
        return v_names;
    end if;
    return mainspring_stored.list_buckets_v1(p_done || array(select a.id from unnest(p_acks) a));
end
$$;

CREATE FUNCTION mainspring_stored.list_buckets_v1(p_ids bytea[]) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
begin
    return array(
        select b.name from mainspring_stored.jobs j cross join unnest(j.buckets) as b(name)
            where j.id = any(p_ids) and j.buckets is not null
    );
end
$$;

CREATE FUNCTION mainspring_stored.list_flow_jobs_v1(p_roots bytea[], p_limit integer, p_now bigint) RETURNS bytea[]
    LANGUAGE plpgsql
    AS $$
begin
    return array(
        select m.job from unnest(p_roots) as u(id) cross join lateral (
            select m.job from mainspring_stored.marks m
            where m.mark = mainspring_stored.flow_mark_v1(u.id) and m.job <> u.id and not exists (
                select 1 from mainspring_stored.keys k cross join lateral (
                    select f.state, f.started, f.finished from mainspring_stored.finished f where f.id = any(array[k.job])
                    union all
                    select d.state, d.started, d.finished from mainspring_stored.dead d where d.id = any(array[k.job])
                ) e
                where k.job = any(array[m.job]) and mainspring_stored.key_until_v1(k, e.state, e.started, e.finished) > p_now
            )
            order by m.job limit p_limit
        ) m limit p_limit
    );
end
$$;

CREATE FUNCTION mainspring_stored.list_kept_roots_v1(p_roots bytea[]) RETURNS bytea[]
    LANGUAGE plpgsql
    AS $$
begin
    return array(
        select u.id from unnest(p_roots) as u(id)
        where exists (select 1 from mainspring_stored.marks m where m.mark = mainspring_stored.flow_mark_v1(u.id) and m.job <> u.id)
    );
end
$$;

CREATE FUNCTION mainspring_stored.list_levels_v1(p_lane_sets text[]) RETURNS TABLE(lane_set text, priority integer)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
begin
    return query
    with recursive levels as (
        select g.lane_set, n.priority from unnest(p_lane_sets) as g(lane_set) cross join lateral (
            select l.priority from mainspring_stored.keyed_lanes l where l.waits_for is null and l.lane_set = g.lane_set
            order by l.priority desc limit 1
        ) n
        union all
        select v.lane_set, n.priority from levels v cross join lateral (
            select l.priority from mainspring_stored.keyed_lanes l
            where l.waits_for is null and l.lane_set = v.lane_set and l.priority < v.priority
            order by l.priority desc limit 1
        ) n
    )
    select v.lane_set, v.priority from levels v;
end
$$;

CREATE FUNCTION mainspring_stored.list_partitions_v1() RETURNS TABLE(name text, until bigint)
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
    select c.relname::text,
        (extract(epoch from to_date(substring(c.relname from 10), 'YYYYMMDD')::timestamp) * 1000000)::bigint + 86400000000
    from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'mainspring_stored.finished'::regclass and c.relname ~ '^finished_[0-9]{8}$'
$_$;

CREATE FUNCTION mainspring_stored.list_swapped_v1(p_swaps jsonb) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
begin
    return array(select s.name from jsonb_to_recordset(p_swaps) as s(name text, rev bigint) where s.rev > 0);
end
$$;

CREATE FUNCTION mainspring_stored.list_taken_ends_v1(p_moves mainspring_stored.taken_back_v1[], p_acks mainspring_stored.ack_v1[]) RETURNS mainspring_stored.ending_v1[]
    LANGUAGE plpgsql
    AS $$
begin
    return array(
        select row(
            f.id, f.state, f.reason, null, a.error, case when f.state = 'dead' then a.label end, nullif(j.ordered, ''), 0, a.ran
        )::mainspring_stored.ending_v1
        from unnest(p_moves) f join mainspring_stored.jobs j on j.id = any(array[f.id]) left join unnest(p_acks) a on a.id = f.id
        where f.state in ('dead', 'cancelled')
    );
end
$$;

CREATE FUNCTION mainspring_stored.list_unkeyed_v1(p_lanes mainspring_stored.lane_v1[], p_names text[]) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
declare
    v_lane mainspring_stored.lane_v1;
begin
    foreach v_lane in array p_lanes loop
        p_names := p_names || v_lane.buckets;
    end loop;
    return case when cardinality(p_names) < 2 then p_names
        else array(select distinct u.name from unnest(p_names) as u(name) order by 1) end;
end
$$;

CREATE FUNCTION mainspring_stored.list_unmoved_acks_v1(p_moved mainspring_stored.moved_v1, p_id bytea[], p_token bigint[], p_result bytea[], p_error bytea[], p_ran bigint[]) RETURNS mainspring_stored.ack_v1[]
    LANGUAGE plpgsql
    AS $$
begin
    return array(
        select row(
            -u.n, u.id, u.token, 'succeeded', 'succeeded', null, 0, null, u.result, u.error, null, false, false, false, 0, null,
                null, u.ran, null
        )::mainspring_stored.ack_v1
        from unnest(p_id, p_token, p_result, p_error, p_ran) with ordinality as u(id, token, result, error, ran, n)
        where not exists (
            select 1 from unnest(p_moved.done, p_moved.token) as d(id, token) where d.id = u.id and d.token = u.token
        )
    );
end
$$;

CREATE FUNCTION mainspring_stored.list_wakeups_v1(p_names text[], p_rechecked bigint[], p_rates boolean, p_now bigint) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
declare
    v_woken text[] := '{}';
begin
    if cardinality(p_rechecked) > 0 then
        v_woken := array(
            select distinct l.queue from mainspring_stored.read_lane_rows_v1(p_rechecked) l
            where l.waits_for is null
        );
    end if;
    if exists (select 1 from mainspring_stored.waiting_queues w where w.bucket = any(p_names)) then
        with waiting as (
            delete from mainspring_stored.waiting_queues w
            where w.bucket = any(array(
                select r.name from unnest(mainspring_stored.read_capacities_v1(p_names, p_now)) r
                where r.available > 0 and (p_rates or coalesce(r.kind, 'concurrency') in ('concurrency',
                    'breaker'))
            ))
            returning w.queue
        )
        select v_woken || array(select distinct t.queue from waiting t) into v_woken;
    end if;
    return v_woken;
end
$$;

CREATE FUNCTION mainspring_stored.lock_batch_v1(p_batch bytea, p_retry boolean, p_now bigint) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
begin
    perform pg_advisory_xact_lock(hashtextextended('mainspring_stored' || encode(p_batch, 'hex'), 0));
    if p_retry then
        insert into mainspring_stored.retried_batches (batch, at) values (p_batch, mainspring_stored.now_v1(p_now)) on conflict do nothing;
    end if;
    return p_retry or exists (select 1 from mainspring_stored.retried_batches r where r.batch = p_batch);
end
$$;

CREATE FUNCTION mainspring_stored.lock_batches_v1(p_batch bytea[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    perform pg_advisory_xact_lock(k.key) from (
        select hashtextextended('mainspring_stored' || encode(u.batch, 'hex'), 0) as key from unnest(p_batch) as u(batch) order by 1
    ) k;
    -- One of them may be a first try that arrives after its retry: then each batch is sent again by itself.
    if exists (select 1 from mainspring_stored.retried_batches r where r.batch = any(p_batch)) then
        raise exception 'a batch of these was sent again before' using errcode = 'MS001';
    end if;
end
$$;

CREATE FUNCTION mainspring_stored.lock_before_v1(p_take boolean[], p_before_at integer[], p_before bytea[], p_before_in integer[], p_accepted boolean) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    v_before bytea[] := array(
        select distinct b.id from unnest(p_before_at, p_before, p_before_in) as b(at, id, inside)
        where p_take[b.at] and not coalesce(p_take[b.inside], false)
    );
    v_closed bytea;
begin
    if cardinality(v_before) = 0 then
        return;
    end if;
    perform 1 from mainspring_stored.jobs j where j.id = any(v_before) order by j.id for update;
    select b.id into v_closed from unnest(v_before) as b(id)
    where not exists (
        select 1 from mainspring_stored.jobs j left join mainspring_stored.joins o on o.id = any(array[j.id])
        where j.id = any(array[b.id]) and j.state || '' = 'blocked' and (o.id is null or o.open or p_accepted)
    )
    limit 1;
    if v_closed is not null then
        raise exception '%', encode(v_closed, 'hex') using errcode = 'MS007';
    end if;
end
$$;

CREATE FUNCTION mainspring_stored.lock_bucket_rows_v1(p_names text[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    v_locked integer;
begin
    loop
        perform mainspring_stored.add_buckets_v1(p_names, true);
        perform 1 from mainspring_stored.buckets b where b.name = any(p_names) order by b.name for update;
        get diagnostics v_locked = row_count;
        exit when v_locked = cardinality(p_names);  -- else a bucket was pruned in between
    end loop;
end
$$;

CREATE FUNCTION mainspring_stored.lock_buckets_v1(p_names text[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    v_names text[] := array(select distinct u.name from unnest(p_names) as u(name));
begin
    perform pg_advisory_xact_lock(k.key) from (
        select distinct mainspring_stored.unkeyed_lock_v1(u.name) as key from unnest(v_names) as u(name) where strpos(u.name, '=') = 0
        order by 1
    ) k;
    perform mainspring_stored.lock_bucket_rows_v1(v_names);
end
$$;

CREATE FUNCTION mainspring_stored.lock_dependents_v1(p_edges mainspring_stored.met_edge_v1[], p_ends integer) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    v_ids bytea[];
begin
    with recursive reached(id, how, bad) as (
        select x.child, case x.effect when 'parent' then 'cancelled' else x.effect end,
            coalesce(x.counted in ('dead', 'cancelled'), false)
        from unnest(p_edges) x
        union
        select e.child, nullif(case f.effect when 'parent' then 'cancelled' else f.effect end, 'stays'),
            coalesce(h.how = 'cancelled' or r.bad, false)
        from reached r
        left join lateral (
            select o.dead > 0 as dead, case when j.deps <= p_ends + 8 then
                case when o.lenient or not r.bad and o.dead + o.cancelled = 0 then 'succeeded' else 'cancelled' end end as how
            from mainspring_stored.joins o join mainspring_stored.jobs j on j.id = any(array[o.id])
            where r.how is null and o.id = any(array[r.id])
        ) o on true
        cross join lateral (select coalesce(r.how, o.how) as how) h
        cross join lateral (
            select e.child, e.policy from mainspring_stored.edges e
            where e.parent = any(array[r.id])
                and (h.how is not null or e.policy = 'member' or r.bad and e.policy = 'dead')
            limit 1000
        ) e
        cross join lateral (select mainspring_stored.edge_effect_v1(e.policy, h.how, coalesce(o.dead or r.bad, false)) as effect) f
    )
    select array_agg(distinct r.id) into v_ids from reached r;
    perform 1 from mainspring_stored.jobs j where j.id = any(v_ids) order by j.id for update;
end
$$;

CREATE FUNCTION mainspring_stored.lock_depths_v1(p_queue text[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    perform pg_advisory_xact_lock(hashtextextended('mainspring_stored depth ' || b.name, 0)) from (
        select q.name from mainspring_stored.queues q where q.bounded and q.name = any(p_queue) order by q.name
    ) b;
end
$$;

CREATE FUNCTION mainspring_stored.lock_jobs_v1(p_ids bytea[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    perform 1 from mainspring_stored.jobs j where j.id = any(p_ids) order by j.id for update;
    perform 1 from mainspring_stored.finished f where f.id = any(p_ids) order by f.id for update;
    perform 1 from mainspring_stored.dead d where d.id = any(p_ids) order by d.id for update;
    perform 1 from mainspring_stored.jobs j where j.id = any(p_ids) order by j.id for update;  -- a job that was retried while this waited
end
$$;

CREATE FUNCTION mainspring_stored.lock_key_holders_v1(p_key bytea[], p_conflict text[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        -- In a caller's transaction with an old snapshot a holder that has ended since looks live: locking it shows
        -- that.
        perform 1 from mainspring_stored.jobs j where j.id in (
            select k.job from unnest(p_key) as u(hash) join mainspring_stored.keys k on k.hash = any(array[u.hash])
        ) order by j.id for key share;
    end if;
    perform 1 from mainspring_stored.jobs j where j.state || '' <> 'running' and j.id in (
        select k.job from unnest(p_key, p_conflict) as u(hash, conflict) join mainspring_stored.keys k on k.hash = any(array[u.hash])
        where u.conflict = 'replace'
    ) order by j.id for update;
end
$$;

CREATE FUNCTION mainspring_stored.lock_key_rows_v1(p_hash bytea[]) RETURNS void
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
        exit when v_locked = cardinality(v_hashes);  -- else a key was deleted with its job in between
    end loop;
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
begin
    perform mainspring_stored.lock_key_rows_v1(p_hash);
    return mainspring_stored.finish_v1(
        array(
            select row(late.id, 'cancelled', 'expired', null, null, null, null, 0, null)::mainspring_stored.ending_v1 from (
                select j.id from mainspring_stored.keys k join mainspring_stored.jobs j on j.id = any(array[k.job])
                where k.hash = any(p_hash) and j.state || '' <> 'running' and j.expires <= mainspring_stored.now_v1(p_now)
                order by j.id for update of j
            ) late
        ), mainspring_stored.now_v1(p_now)
    );
end
$$;

CREATE FUNCTION mainspring_stored.lock_latest_keys_v1(p_key bytea[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    perform mainspring_stored.lock_key_rows_v1(array(select u.hash from unnest(p_key) as u(hash) where u.hash is not null));
    perform 1 from mainspring_stored.jobs j where j.id in (
        select k.previous from unnest(p_key) as u(hash) join mainspring_stored.keys k on k.hash = any(array[u.hash])
        where k.mode = 'keep_last' and k.previous is not null
    ) order by j.id for key share;
end
$$;

CREATE FUNCTION mainspring_stored.lock_limits_v1(p_lanes mainspring_stored.lane_v1[], p_acked text[], p_n integer[], p_ahead boolean[], p_acks mainspring_stored.ack_v1[], p_worker text, p_before bigint, p_now bigint) RETURNS mainspring_stored.limit_locks_v1
    LANGUAGE plpgsql
    AS $$
declare
    v_capacities mainspring_stored.capacity_v1[] := mainspring_stored.read_capacities_v1(mainspring_stored.list_unkeyed_v1(p_lanes, p_acked), p_before);
    v_ahead text[] := '{}';
    v_lanes mainspring_stored.lane_v1[] := p_lanes;
    v_reply mainspring_stored.limit_locks_v1;
    v_all bigint := 0;
    v_exact boolean := false;
    v_n integer;
begin
    if true = any(p_ahead) then
        v_ahead := array(select r.name from unnest(v_capacities) r where mainspring_stored.compute_headroom_v1(r) > 0);
        if true = all(p_ahead) then
            v_lanes := mainspring_stored.claimable_ahead_v1(p_lanes, v_ahead);
            if cardinality(v_lanes) < cardinality(p_lanes) then
                v_capacities := array(select r from unnest(v_capacities) r
                    where r.name = any(mainspring_stored.list_unkeyed_v1(v_lanes, p_acked)));
            end if;
        end if;
    end if;
    if cardinality(p_acks) > 0 then
        v_exact := exists (
            select 1 from unnest(p_acks) a where a.slow > 0 or a.spent is not null or a.buckets is not null
        );
    end if;
    foreach v_n in array p_n loop
        v_all := v_all + greatest(v_n, 0);
    end loop;
    v_reply := mainspring_stored.lock_unkeyed_v1(v_lanes, p_acked, v_capacities, v_all, v_exact, p_worker, p_now);
    v_reply.ahead := v_ahead;
    return v_reply;
end
$$;

CREATE FUNCTION mainspring_stored.lock_unkeyed_v1(p_lanes mainspring_stored.lane_v1[], p_acked text[], p_capacities mainspring_stored.capacity_v1[], p_n bigint, p_exact boolean, p_worker text, p_now bigint) RETURNS mainspring_stored.limit_locks_v1
    LANGUAGE plpgsql
    AS $$
declare
    v_reply mainspring_stored.limit_locks_v1 := row('{}', '{}', '{}', '{}', '{}', p_lanes, 0);
    v_lane mainspring_stored.lane_v1;
    v_capacity mainspring_stored.capacity_v1;
    v_counted text[] := '{}';
    v_lock record;
begin
    foreach v_lane in array p_lanes loop
        if v_lane.keyed or v_lane.costs is not null then
            v_counted := v_counted || v_lane.buckets;
        end if;
    end loop;
    foreach v_capacity in array p_capacities loop
        if v_capacity.available <= 0 and v_capacity.name <> all(p_acked) and not exists (
            select 1 from unnest(p_lanes) l where v_capacity.name = any(l.buckets) and not exists (
                select 1 from mainspring_stored.waiting_queues w where w.bucket = v_capacity.name and w.queue = split_part(l.lane, '/', 1)
            )
        ) then
            v_reply.skipped := v_reply.skipped || v_capacity.name;
        elsif not p_exact and v_capacity.name <> all(v_counted) and mainspring_stored.may_share_v1(v_capacity, p_n) then
            v_reply.shared := v_reply.shared || v_capacity.name;
        else
            v_reply.exclusive := v_reply.exclusive || v_capacity.name;
        end if;
    end loop;
    if cardinality(v_reply.shared) = 0 then
        perform mainspring_stored.lock_buckets_v1(v_reply.exclusive);
    elsif cardinality(v_reply.shared) = 1 and cardinality(v_reply.exclusive) = 0 then
        perform pg_advisory_xact_lock_shared(mainspring_stored.unkeyed_lock_v1(v_reply.shared[1]));
    else
        for v_lock in
            select mainspring_stored.unkeyed_lock_v1(g.name) as key, bool_or(g.exclusive) as exclusive from (
                select u.name, true as exclusive from unnest(v_reply.exclusive) as u(name) where strpos(u.name, '=') = 0
                union all
                select u.name, false from unnest(v_reply.shared) as u(name)
            ) g group by 1 order by 1
        loop
            if v_lock.exclusive then
                perform pg_advisory_xact_lock(v_lock.key);
            else
                perform pg_advisory_xact_lock_shared(v_lock.key);
            end if;
        end loop;
        perform mainspring_stored.lock_bucket_rows_v1(v_reply.exclusive);
    end if;
    if p_n > 0 and cardinality(v_reply.shared) > 0 then
        perform mainspring_stored.take_share_v1(v_reply.shared, p_worker);
    end if;
    v_reply.now := mainspring_stored.now_v1(p_now);
    -- New statements: they count what other transactions did before the locks were taken.
    foreach v_capacity in array mainspring_stored.read_capacities_v1(
        v_reply.exclusive || v_reply.shared || v_reply.skipped, v_reply.now
    ) loop
        if v_capacity.name = any(v_reply.skipped) then
            -- A rate wakes no queue: a bucket that has capacity by now counts as not looked at.
            if v_capacity.available > 0 then
                v_reply.skipped := array_remove(v_reply.skipped, v_capacity.name);
            end if;
        elsif v_capacity.name = any(v_reply.shared) and not mainspring_stored.may_share_v1(v_capacity, p_n) then
            v_reply.shared := array_remove(v_reply.shared, v_capacity.name);
        elsif mainspring_stored.compute_headroom_v1(v_capacity) >= p_n then
            v_reply.plentiful := v_reply.plentiful || v_capacity.name;
        end if;
    end loop;
    return v_reply;
end
$$;

CREATE FUNCTION mainspring_stored.lock_waiting_v1(p_key bytea[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    perform 1 from mainspring_stored.jobs j where j.token = 0 and j.state || '' <> 'running' and j.id in (
        select k.job from unnest(p_key) as u(hash) join mainspring_stored.keys k on k.hash = any(array[u.hash])
        where k.mode in ('debounce', 'throttle', 'keep_last')
    ) order by j.id for update;
end
$$;

CREATE FUNCTION mainspring_stored.lock_with_dependents_v1(p_ids bytea[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    perform 1 from mainspring_stored.jobs j where j.id = any(p_ids) and j.state || '' = 'running' order by j.id for update;
    perform mainspring_stored.lock_dependents_v1(
        array(select row(null, u.id, 'parent', null)::mainspring_stored.met_edge_v1 from unnest(p_ids) as u(id)), cardinality(p_ids)
    );
end
$$;

CREATE TABLE mainspring_stored.workers (
    id text NOT NULL,
    number bigint NOT NULL,
    turn bigint DEFAULT 0 NOT NULL,
    lost boolean DEFAULT false NOT NULL,
    limited boolean DEFAULT false NOT NULL,
    started bigint NOT NULL,
    seen bigint NOT NULL,
    queues text[] NOT NULL,
    tasks text[] NOT NULL,
    lease bigint NOT NULL,
    info bytea NOT NULL
)
WITH (fillfactor='50');

CREATE FUNCTION mainspring_stored.lock_worker_buckets_v1(p_worker mainspring_stored.workers) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
declare
    v_names text[] := '{}';
begin
    if p_worker.limited then
        v_names := array(select u.bucket from mainspring_stored.bucket_uses u where u.worker = p_worker.id);
        perform mainspring_stored.lock_buckets_v1(v_names);
    end if;
    return v_names;
end
$$;

CREATE FUNCTION mainspring_stored.make_partitions_v1(p_from bigint, p_days integer) RETURNS integer
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
    if not pg_try_advisory_xact_lock(hashtextextended('mainspring partitions mainspring_stored', 0)) then
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
            -- rows of that day are in finished_rest already, or another transaction holds the table
            when check_violation or lock_not_available then null;
        end;
    end loop;
    return v_made;
end
$$;

CREATE FUNCTION mainspring_stored.mark_members_v1(p_ids bytea[], p_some bytea[]) RETURNS boolean[]
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

CREATE FUNCTION mainspring_stored.may_share_v1(p_capacity mainspring_stored.capacity_v1, p_n bigint) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE
    AS $$
begin
    return case
        when strpos(p_capacity.name, '=') > 0 or starts_with(p_capacity.name, '*') then false
        when p_capacity.kind is null then true
        when p_capacity.kind in ('concurrency', 'rate')
            then p_n <= p_capacity.size / (4 * 16)
                and p_capacity.available >= p_capacity.size - p_capacity.size / 4
        else false
    end;
end
$$;

CREATE FUNCTION mainspring_stored.meet_edges_v1(p_edges mainspring_stored.met_edge_v1[], p_now bigint) RETURNS mainspring_stored.met_v1
    LANGUAGE plpgsql
    AS $$
declare
    v_met mainspring_stored.met_v1;
    v_limited bytea[];
begin
    with gone as (
        delete from mainspring_stored.edges e using unnest(p_edges) x
        where e.parent = any(array[x.parent]) and e.child = any(array[x.child])
        returning e.child, x.effect, x.counted
    ), tally as (
        select g.child, count(*)::integer as n, max(g.effect) as reason, count(g.counted) as members,
            count(*) filter (where g.counted = 'succeeded') as succeeded, count(*) filter (where g.counted = 'dead') as dead,
            count(*) filter (where g.counted = 'cancelled') as cancelled,
            count(*) filter (where g.counted = 'bypassed') as bypassed
        from gone g group by g.child
    ), judged as materialized (
        select t.*, o.dead = 0 and t.dead > 0 as first_death, case
                when t.reason is not null then 'cancelled'
                when o.id is null or j.deps > t.n then null
                when o.lenient or o.dead + o.cancelled + t.dead + t.cancelled = 0 then 'succeeded'
                else 'cancelled' end as final
        from tally t join mainspring_stored.jobs j on j.id = any(array[t.child])
        left join lateral (
            select x.* from mainspring_stored.joins x where j.followed & 4 > 0 and x.id = any(array[j.id])
        ) o on true
    ), placed as materialized (
        select t.child, t.n, nextval('mainspring_stored.seq') as seq
        from (select * from judged where final is null order by child) t
    ), freed as (
        update mainspring_stored.jobs j
        set deps = j.deps - t.n,
            state = case when j.deps > t.n then 'blocked' when j.due > p_now then 'scheduled' else 'ready' end,
            due = case when j.deps > t.n or j.due > p_now then j.due end,
            seq = case when j.deps > t.n or j.due > p_now then j.seq when j.seq < 0 then -t.seq else t.seq end
        from placed t
        where j.id = any(array[t.child])
        returning j.id, j.queue, j.state, j.buckets
    ), counted as (
        update mainspring_stored.joins o
        set succeeded = o.succeeded + t.succeeded, dead = o.dead + t.dead, cancelled = o.cancelled + t.cancelled,
            bypassed = o.bypassed + t.bypassed, last_end = greatest(o.last_end, p_now)
        from judged t where t.members > 0 and o.id = any(array[t.child])
    )
    select array(
            select row(
                t.child, t.final, case when t.final = 'cancelled' then coalesce(t.reason, 'parent') end, null, null, null, null, 0,
                null
            )::mainspring_stored.ending_v1
            from judged t where t.final is not null
        ), array(select t.child from judged t where t.final is not null and t.reason is null),
        array(select t.child from judged t where t.final is null and t.first_death),
        array(select distinct f.queue from freed f where f.state = 'ready'),
        array(select f.id from freed f where f.state = 'ready' and f.buckets is not null)
    into v_met.endings, v_met.counted, v_met.first_deaths, v_met.woken, v_limited;
    if cardinality(v_limited) > 0 then
        perform mainspring_stored.add_lane_rows_v1(v_limited, false);
    end if;
    return v_met;
end
$$;

CREATE FUNCTION mainspring_stored.move_to_history_v1(p_endings mainspring_stored.ending_v1[], p_counted bytea[], p_now bigint) RETURNS mainspring_stored.moved_v1
    LANGUAGE plpgsql
    AS $$
declare
    v_ids bytea[] := array(select x.id from unnest(p_endings) x);
    v_followed mainspring_stored.ended_v1[];
    v_joins bytea[];
    v_worker text;
    v_freed text[];
    v_left text[];
    v_woken text[] := '{}';
begin
    with gone as (
        delete from mainspring_stored.jobs j using unnest(p_endings) x where j.id = any(array[x.id])
        returning j.*, x.state as final, x.reason, x.result, x.error, x.label, x.note, coalesce(x.refund, 0) as refund,
            x.ran
    ), buried as (
        insert into mainspring_stored.dead (
            seq, token, enqueued, finished, priority, attempt, epoch, crashes, crash_limit, followed, early, id, state, task,
            queue, home, lane, record, worker, started, ran, result, error, expires, keep, drop_at, key, reason, note, label,
            buckets, costs
        )
        select seq, token, enqueued, p_now, priority, attempt - refund, epoch, crashes, crash_limit, followed, early, id, final,
            task, queue, home, lane, record, worker, started, ran, result, error, expires, keep,
            case when keep = 4503599627370496 then p_now + keep end, key, reason, note, label, buckets, costs
        from gone where final = 'dead'
    ), kept as (
        insert into mainspring_stored.finished (
            seq, token, enqueued, finished, priority, attempt, epoch, crashes, crash_limit, followed, early, id, state, task,
            queue, home, lane, record, worker, started, ran, result, error, expires, keep, drop_at, key, reason, note, buckets, costs
        )
        select seq, token, enqueued, p_now, priority, attempt - refund, epoch, crashes, crash_limit, followed, early, id, final,
            task, queue, home, lane, record, worker, started, ran, result, error, expires, keep,
            case when keep is not null then p_now + least(keep, 4611686018427387904) end, key, reason, note, buckets, costs
        from gone where final <> 'dead'
    )
    select array_agg(row(id, epoch, final)::mainspring_stored.ended_v1) filter (where followed & 3 > 0),
        array_agg(id) filter (where followed & 4 > 0),
        max(worker) filter (where state = 'running' and buckets is not null),
        (select array_agg(b.name) from gone g cross join unnest(g.buckets) as b(name) where g.state = 'running'),
        array_agg(distinct lane) filter (where state = 'ready' and buckets is not null)
    into v_followed, v_joins, v_worker, v_freed, v_left from gone;
    if v_freed is not null then
        perform mainspring_stored.release_uses_v1(v_worker, v_freed);
    end if;
    if v_left is not null then
        perform mainspring_stored.recheck_left_lanes_v1(v_left);
    end if;
    delete from mainspring_stored.edges where child = any(v_ids);
    if v_joins is not null then
        perform mainspring_stored.end_joins_v1(v_joins, p_counted, p_now);
    end if;
    if v_followed is not null then
        v_woken := mainspring_stored.enqueue_follow_ups_v1(v_followed, p_now);
    end if;
    return (v_ids, null::bigint[], v_woken, null::boolean);
end
$$;

CREATE FUNCTION mainspring_stored.next_fair_rows_v1(p_lane_sets text[], p_size integer, p_examined bigint[]) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
begin
    return array(
        select x.id from mainspring_stored.list_levels_v1(p_lane_sets) v cross join lateral (
            select l.id, l.priority, l.vtime, l.seq from mainspring_stored.keyed_lanes l
            where l.waits_for is null and l.vtime is not null and l.lane_set = v.lane_set and l.priority = v.priority
                and l.id <> all(p_examined)
            order by l.vtime, l.seq limit p_size
        ) x
        order by max(mainspring_stored.order_key_v1(x.seq, x.priority)) over (partition by x.priority order by x.vtime, x.seq),
            x.vtime, x.seq
        limit p_size
    );
end
$$;

CREATE FUNCTION mainspring_stored.next_lane_rows_v1(p_lane_sets text[], p_size integer, p_examined bigint[]) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
begin
    return array(
        select x.id from mainspring_stored.list_levels_v1(p_lane_sets) v cross join lateral (
            select l.id, mainspring_stored.order_key_v1(l.seq, l.priority) as key from mainspring_stored.keyed_lanes l
            where l.waits_for is null and l.lane_set = v.lane_set and l.priority = v.priority and l.id <> all(p_examined)
            order by l.seq limit p_size
        ) x order by x.key, x.id limit p_size
    );
end
$$;

CREATE FUNCTION mainspring_stored.next_promotion_v1() RETURNS bigint
    LANGUAGE plpgsql
    AS $$
begin
    return least(
        (select j.due from mainspring_stored.jobs j where j.state in ('scheduled', 'retrying') order by j.due limit 1),
        (select j.expires from mainspring_stored.jobs j where j.expires is not null and j.state <> 'running'
         order by j.expires limit 1),
        (select l.recheck_at from mainspring_stored.keyed_lanes l where l.recheck_at is not null order by l.recheck_at limit 1),
        (select w.at from mainspring_stored.flow_work w order by w.at limit 1)
    );
end
$$;

CREATE FUNCTION mainspring_stored.next_token_v1(p_names text[], p_now bigint) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    v_token bigint := greatest(p_now, (select max(f.token) + 1 from mainspring_stored.holder_tokens f where f.bucket = any(p_names)));
begin
    insert into mainspring_stored.holder_tokens (bucket, token) select n, v_token from unnest(p_names) n
    on conflict (bucket) do update set token = excluded.token;
    return v_token;
end
$$;

CREATE FUNCTION mainspring_stored.note_held_back_v1(p_lanes mainspring_stored.lane_v1[], p_locked text[], p_now bigint) RETURNS mainspring_stored.held_back_v1
    LANGUAGE plpgsql
    AS $$
declare
    v_capacities mainspring_stored.capacity_v1[] := mainspring_stored.read_capacities_v1(
        array(select distinct g.name from unnest(p_lanes) l cross join unnest(l.buckets) as g(name)), p_now
    );
    v_lane mainspring_stored.lane_v1;
    v_base text;
    v_head record;
    v_full text[];
    v_at bigint[];
    v_queues text[] := '{}';
    v_first bigint;
begin
    foreach v_lane in array p_lanes loop
        continue when coalesce(cardinality(v_lane.buckets), 0) = 0;
        v_base := case when v_lane.keyed
            then left(v_lane.lane, mainspring_stored.key_position_v1(v_lane.lane, split_part(v_lane.lane, '/', 1)) - 1)
                else v_lane.lane end;
        select j.buckets, j.costs into v_head from mainspring_stored.jobs j
        where j.state = 'ready' and j.lane >= case when v_lane.keyed then v_base || '=' else v_base end
            and j.lane < case when v_lane.keyed then v_base || '>' else v_base || chr(1) end
        order by j.lane, j.priority desc, j.seq limit 1;
        continue when not found;
        select array_agg(g.name), array_agg(mainspring_stored.find_recheck_time_v1(g.name, r.kind, coalesce(v_head.costs[g.n], 1), p_now))
        into v_full, v_at
        from unnest(v_head.buckets) with ordinality as g(name, n) join unnest(v_capacities) r on r.name = g.name
        where r.available < greatest(1, least(case when v_lane.keyed then 1 else coalesce(v_head.costs[g.n], 1) end, r.cap));
        continue when v_full is null;
        v_queues := v_queues || split_part(v_lane.lane, '/', 1);
        insert into mainspring_stored.waiting_queues (bucket, queue)
        select g.name, split_part(v_lane.lane, '/', 1) from unnest(v_full) as g(name) where g.name = any(p_locked)
        on conflict do nothing;
        if array_position(v_at, null) is null then  -- else the moment is not known
            v_first := least(v_first, (select max(m.at) from unnest(v_at) as m(at)));
        end if;
    end loop;
    return row(v_queues, v_first);
end
$$;

CREATE FUNCTION mainspring_stored.note_time_v1(p_now bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    v_clock bigint := (select m.clock from mainspring_stored.meta m);
begin
    if p_now between v_clock - 1000000 and v_clock + 5000000 then
        return;
    end if;
    select m.clock into v_clock from mainspring_stored.meta m for update skip locked;
    if not found then
        return;
    end if;
    if p_now < v_clock - 1000000 then
        perform mainspring_stored.bring_back_limits_v1(v_clock - p_now, p_now);
    end if;
    update mainspring_stored.meta m set clock = p_now;
end
$$;

CREATE FUNCTION mainspring_stored.note_unreleased_v1(p_ends mainspring_stored.parent_end_v1[], p_now bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    insert into mainspring_stored.flow_work (id, work, how, at)
    select x.id, 'release', x.how, p_now
    from unnest(p_ends) x join mainspring_stored.joins o on o.id = any(array[x.id])
    where x.how in ('succeeded', 'cancelled', 'bypassed')
        and exists (select 1 from mainspring_stored.edges e where e.parent = any(array[x.id]))
    on conflict do nothing;
end
$$;

CREATE FUNCTION mainspring_stored.now_v1(p_now bigint) RETURNS bigint
    LANGUAGE sql
    AS $$
    select coalesce(p_now, (extract(epoch from clock_timestamp()) * 1000000)::bigint)
$$;

CREATE FUNCTION mainspring_stored.order_key_v1(p_seq bigint, p_priority integer) RETURNS bigint
    LANGUAGE sql IMMUTABLE
    AS $$
    select p_seq - p_priority * 3600000000
$$;

CREATE FUNCTION mainspring_stored.passes_over_v1(p_lanes mainspring_stored.lane_v1[], p_n bigint, p_worker text, p_number bigint, p_now bigint) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
declare
    v_capacities mainspring_stored.capacity_v1[] := mainspring_stored.read_capacities_v1(mainspring_stored.list_unkeyed_v1(p_lanes, '{}'), p_now);
    v_plentiful text[] := array(select r.name from unnest(v_capacities) r where mainspring_stored.compute_headroom_v1(r) > 0);
    v_full text[] := array(select r.name from unnest(v_capacities) r where r.available <= 0);
    v_claimable text[] := array(select l.lane from unnest(mainspring_stored.claimable_ahead_v1(p_lanes, v_plentiful)) l);
    v_last bigint;
begin
    select max(mainspring_stored.order_key_v1(j.seq, j.priority)) into v_last from mainspring_stored.jobs j
    where j.state = 'running' and j.worker = p_worker and j.turn = p_number having count(*) >= p_n;
    return exists (
        select 1 from unnest(p_lanes) l cross join lateral (
            (select j.seq, j.priority from mainspring_stored.jobs j
                where not l.keyed and j.state = 'ready' and j.lane = l.lane and (j.expires is null or j.expires > p_now)
                order by j.priority desc, j.seq limit 1)
            union all
            (select k.seq, k.priority from mainspring_stored.keyed_lanes k
                where l.keyed and k.waits_for is null and k.lane_set = l.lane order by k.priority desc, k.seq limit 1)
        ) h
        where l.lane <> all(v_claimable) and not l.buckets && v_full
            and coalesce(mainspring_stored.order_key_v1(h.seq, h.priority) < v_last, true)
    );
end
$$;

CREATE FUNCTION mainspring_stored.pick_limited_v1(p_lanes mainspring_stored.lane_v1[], p_n integer, p_ahead boolean, p_locked text[], p_shared text[], p_skipped text[], p_now bigint) RETURNS mainspring_stored.picked_v1
    LANGUAGE plpgsql
    AS $$
declare
    v_reply mainspring_stored.picked_v1 := row('{}', '{}', p_locked, false);
    v_late text[] := array(
        select distinct g.name from unnest(p_lanes) l cross join unnest(l.buckets) as g(name)
        where g.name <> all(p_locked || p_shared || p_skipped)
    );
    v_names text[] := '{}';
    v_available bigint[] := '{}';
    v_cap bigint[] := '{}';
    v_unit bigint[] := '{}';
    v_new mainspring_stored.capacity_v1;
    v_lanes mainspring_stored.lane_v1[];
    v_lane_sets text[];
    v_fair text[];
    v_rows bigint[] := '{}';
    v_fair_rows bigint[] := '{}';
    v_all boolean;
    v_queue text;
    v_examined mainspring_stored.examined_v1;
    v_most integer;
    v_chosen bytea[];
    v_got bytea[];
    v_stuck_lanes text[];
    v_head record;
    v_fits boolean;
    v_at integer;
    v_use bigint;
begin
    if cardinality(v_late) > 0 then
        v_reply.locked := p_locked || mainspring_stored.try_lock_buckets_v1(v_late);
        v_reply.more := not v_late <@ v_reply.locked;
    end if;
    foreach v_new in array mainspring_stored.read_capacities_v1(v_reply.locked || p_shared, p_now) loop
        v_names := v_names || v_new.name;
        v_available := v_available || case when p_ahead then mainspring_stored.compute_headroom_v1(v_new) else v_new.available end;
        v_cap := v_cap || v_new.cap;
        v_unit := v_unit || v_new.unit;
    end loop;
    v_lanes := array(
        select l from unnest(p_lanes) l where not exists (
            select 1 from unnest(l.buckets) as g(name) where coalesce(v_available[array_position(v_names, g.name)], 0) <= 0
        )
    );
    v_fair := array(select l.lane from unnest(v_lanes) l where l.keyed
        and mainspring_stored.is_fair_lane_v1(l.lane, split_part(l.lane, '/', 1)));
    v_lane_sets := array(select l.lane from unnest(v_lanes) l where l.keyed and l.lane <> all(v_fair));
    v_lanes := array(select l from unnest(v_lanes) l where not l.keyed);
    if cardinality(v_fair) > 0 then
        null;
    elsif cardinality(v_lane_sets) = 0 and not exists (select 1 from unnest(v_lanes) l where l.buckets is not null) then
        v_reply.ids := mainspring_stored.pick_v1(v_lanes, p_n, p_now);
        return v_reply;
    elsif cardinality(v_lane_sets) = 0 and cardinality(v_lanes) = 1 and v_lanes[1].costs is null
        and mainspring_stored.find_other_key_v1(v_lanes[1].lane, v_lanes[1].priority) is null
    then
        -- One lane and one priority: all that it has capacity for in one statement, unless a job has costs.
        select least(p_n, min(v_available[array_position(v_names, g.name)])) into v_most
        from unnest(v_lanes[1].buckets) as g(name);
        with locked as (
            select j.id, j.seq, j.costs from mainspring_stored.jobs j
            where j.state = 'ready' and j.lane = v_lanes[1].lane and j.priority = v_lanes[1].priority
                and (j.expires is null or j.expires > p_now)
            order by j.seq limit v_most for update skip locked
        )
        select coalesce(array_agg(l.id order by l.seq), '{}'), count(l.costs) into v_got, v_most from locked l;
        if v_most = 0 then
            v_reply.ids := v_got;
            return v_reply;
        end if;
    end if;
    if cardinality(v_lane_sets) > 0 then
        v_examined := mainspring_stored.examine_lane_rows_v1(
            v_lane_sets, p_n, v_reply.examined, v_reply.locked, array(
                select u.name from unnest(v_names, v_available) as u(name, available) where u.available <= 0
            ), p_now
        );
        foreach v_new in array v_examined.capacities loop
            v_names := v_names || v_new.name;
            v_available := v_available || v_new.available;
            v_cap := v_cap || v_new.cap;
            v_unit := v_unit || v_new.unit;
        end loop;
        v_rows := v_rows || v_examined.eligible;
        v_reply.examined := v_examined.examined;
        v_reply.locked := v_examined.locked;
        v_reply.more := v_reply.more or v_examined.more;
    end if;
    for v_queue in select distinct split_part(g.lane_set, '/', 1) from unnest(v_fair) as g(lane_set) loop
        v_examined := mainspring_stored.examine_lane_rows_v1(
            array(
                select g.lane_set from unnest(v_fair) as g(lane_set) where split_part(g.lane_set, '/', 1) = v_queue
            ), p_n, v_reply.examined, v_reply.locked, array(
                select u.name from unnest(v_names, v_available) as u(name, available) where u.available <= 0
            ), p_now, true
        );
        foreach v_new in array v_examined.capacities loop
            v_names := v_names || v_new.name;
            v_available := v_available || v_new.available;
            v_cap := v_cap || v_new.cap;
            v_unit := v_unit || v_new.unit;
        end loop;
        v_fair_rows := v_fair_rows || v_examined.eligible;
        v_reply.examined := v_examined.examined;
        v_reply.locked := v_examined.locked;
        v_reply.more := v_reply.more or v_examined.more;
    end loop;
    v_chosen := '{}';
    v_stuck_lanes := '{}';
    v_all := false;
    <<again>>
    loop
        for v_head in select * from (
            select *, 0::bigint as nth from mainspring_stored.find_heads_v1(v_lanes, v_rows, p_n, v_names, v_available, p_now)
            union all
            select * from mainspring_stored.find_fair_heads_v1(v_fair_rows, p_n, v_all, v_names, v_available, p_now)
        ) h order by mainspring_stored.order_key_v1(h.seq, h.priority), h.seq, h.nth loop
            exit again when cardinality(v_chosen) >= p_n;
            if v_head.id = any(v_chosen) then
                -- Two rows of one lane: there may be other lanes behind the examined rows.
                v_reply.more := v_reply.more or (v_head.keyed and v_head.nth = 0);
                continue;
            end if;
            continue when v_head.lane = any(v_stuck_lanes);
            v_fits := true;
            if v_head.costs is not null and v_head.buckets && p_shared then
                -- What the sharing turns claim is not known: the buckets are locked exclusively when this job is
                -- the first of its lane.
                v_reply.more := true;
                v_stuck_lanes := v_stuck_lanes || v_head.lane;
                continue;
            end if;
            for v_n in 1 .. coalesce(cardinality(v_head.buckets), 0) loop
                v_at := array_position(v_names, v_head.buckets[v_n]);
                v_fits := coalesce(
                    v_available[v_at] >= greatest(1, least(coalesce(v_head.costs[v_n], 1), v_cap[v_at])), false
                );
                exit when not v_fits;
            end loop;
            if not v_fits then
                v_stuck_lanes := v_stuck_lanes || v_head.lane;
                -- Its lane will wait: there may be other lanes behind the examined rows.
                v_reply.more := v_reply.more or v_head.keyed
                    and coalesce(v_available[v_at] > 0 or strpos(v_names[v_at], '=') > 0, true);
                continue;
            end if;
            for v_n in 1 .. coalesce(cardinality(v_head.buckets), 0) loop
                v_at := array_position(v_names, v_head.buckets[v_n]);
                v_use := case when v_unit[v_at] = 0 then 1 else least(coalesce(v_head.costs[v_n], 1), v_unit[v_at]) end;
                v_available[v_at] := v_available[v_at] - v_use;
            end loop;
            v_chosen := v_chosen || v_head.id;
        end loop;
        -- The share of a key that has fewer jobs, or no capacity for them, goes to the others.
        exit again when v_all or cardinality(v_fair_rows) = 0 or cardinality(v_chosen) >= p_n;
        v_all := true;
    end loop;
    v_got := array(
        select j.id from mainspring_stored.jobs j where j.id = any(v_chosen) and j.state || '' = 'ready' for update skip locked
    );
    if cardinality(v_got) < cardinality(v_chosen) then
        -- Other turns were quicker: skip the rows that they have locked in lanes without limits; the rest is for
        -- the next turn.
        v_reply.more := true;
        for v_head in select l.lane from unnest(v_lanes) l where l.buckets is null loop
            v_got := v_got || array(
                select j.id from mainspring_stored.jobs j
                where j.state = 'ready' and j.lane = v_head.lane and (j.expires is null or j.expires > p_now)
                    and j.id <> all(v_got)
                order by j.priority desc, j.seq limit p_n - cardinality(v_got) for update skip locked
            );
        end loop;
    end if;
    if cardinality(v_fair_rows) > 0 then
        perform mainspring_stored.charge_fair_lanes_v1(v_got);
    end if;
    v_reply.ids := array(
        select j.id from mainspring_stored.jobs j where j.id = any(v_got)
        order by case when cardinality(v_fair_rows) > 0 then array_position(v_chosen, j.id) else 0 end,
            mainspring_stored.order_key_v1(j.seq, j.priority), j.seq
    );
    return v_reply;
end
$$;

CREATE FUNCTION mainspring_stored.pick_v1(p_lanes mainspring_stored.lane_v1[], p_n integer, p_now bigint) RETURNS bytea[]
    LANGUAGE plpgsql
    AS $$
declare
    v_lane mainspring_stored.lane_v1;
    v_chosen bytea[] := array(select h.id from mainspring_stored.find_lane_heads_v1(p_lanes, p_n, p_now) h limit p_n);
    v_picked bytea[] := array(
        select j.id from mainspring_stored.jobs j where j.id = any(v_chosen) and j.state || '' = 'ready' for update skip locked
    );
begin
    if cardinality(v_picked) < cardinality(v_chosen) then
        -- Other turns were quicker: go lane by lane and skip the rows that they have locked.
        foreach v_lane in array p_lanes loop
            exit when cardinality(v_picked) >= p_n;
            v_picked := v_picked || array(
                select j.id from mainspring_stored.jobs j
                where j.state = 'ready' and j.lane = v_lane.lane and (j.expires is null or j.expires > p_now)
                    and j.id <> all(v_picked)
                order by j.priority desc, j.seq limit p_n - cardinality(v_picked) for update skip locked
            );
        end loop;
    end if;
    return array(
        select j.id from mainspring_stored.jobs j where j.id = any(v_picked)
        order by mainspring_stored.order_key_v1(j.seq, j.priority), j.seq
    );
end
$$;

CREATE FUNCTION mainspring_stored.place_retried_v1(p_id bytea[], p_take boolean[], p_revived bytea[], p_child_at integer[], p_parent bytea[], p_policy text[], p_before_at integer[], p_before bytea[], p_now bigint) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
declare
    v_waits mainspring_stored.waits_v1 := mainspring_stored.wait_for_parents_v1(
        p_id, p_take, p_child_at, p_parent, '{}', p_policy, '{}'
    );
    v_before_at integer[];
    v_before bytea[];
begin
    delete from mainspring_stored.flow_work w where w.id = any(p_revived);
    update mainspring_stored.joins o set total = o.succeeded + o.bypassed, dead = 0, cancelled = 0, open = false, pruning = false
    where o.id = any(p_revived);
    insert into mainspring_stored.edges (parent, child, policy) select u.id, u.id, 'hold' from unnest(p_revived) as u(id);
    update mainspring_stored.jobs j set deps = j.deps + e.n
    from (
        select p_id[u.at] as child, count(*)::integer as n from unnest(v_waits.edge_at) as u(at) where p_take[u.at] group by 1
    ) e
    where j.id = any(array[e.child]);
    select coalesce(array_agg(b.at), '{}'), coalesce(array_agg(b.child), '{}') into v_before_at, v_before
    from unnest(p_before_at, p_before) as b(at, child)
    join mainspring_stored.jobs j on j.id = any(array[b.child]) and j.state || '' = 'blocked';
    return mainspring_stored.add_edges_v1(p_id, p_take, v_waits, '{}', '{}', '{}', v_before_at, v_before, p_now)
        || mainspring_stored.release_v1(p_revived, p_now);
end
$$;

CREATE FUNCTION mainspring_stored.place_taken_back_v1(p_moves mainspring_stored.taken_back_v1[], p_owner text) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
declare
    v_woken text[];
begin
    with placed as materialized (
        select u.*, case when u.state = 'ready' then nextval('mainspring_stored.seq') end as seq from unnest(p_moves) u
    ), moved as (
        update mainspring_stored.jobs j
        set attempt = j.attempt - 1, crashes = j.crashes + f.charged::integer, worker = p_owner, turn = null, due = f.due,
            lane = mainspring_stored.job_lane_v1(j.home, j.task, j.crashes + f.charged::integer, j.crash_limit, j.parked),
            state = case when f.state in ('ready', 'retrying') then f.state else 'ready' end,
            expires = case when f.state not in ('ready', 'retrying') then j.expires end,
            seq = coalesce(case when j.seq < 0 then -f.seq else f.seq end, j.seq)
        from placed f
        where j.id = any(array[f.id])
        returning j.queue, f.state
    )
    select array_agg(distinct m.queue) into v_woken from moved m where m.state = 'ready';
    perform mainspring_stored.add_lane_rows_v1(array(select f.id from unnest(p_moves) f where f.state = 'ready'), false);
    return coalesce(v_woken, '{}');
end
$$;

CREATE FUNCTION mainspring_stored.plan_crashes_v1(p_acks mainspring_stored.ack_v1[], p_now bigint) RETURNS mainspring_stored.taken_back_v1[]
    LANGUAGE plpgsql
    AS $$
begin
    return array(
        select mainspring_stored.plan_taken_v1(j, true, true, a.delays, a.reason, a."to" = 'dead', p_now)
        from unnest(p_acks) a join mainspring_stored.jobs j on j.id = any(array[a.id])
        where a.outcome = 'crashed'
        order by a.n
    );
end
$$;

CREATE FUNCTION mainspring_stored.plan_take_back_v1(p_worker text, p_cause text, p_delays bigint[], p_now bigint) RETURNS mainspring_stored.taken_back_v1[]
    LANGUAGE plpgsql
    AS $$
declare
    v_held integer := (select count(*) from mainspring_stored.jobs j where j.worker = p_worker and j.state = 'running');
    v_blamed integer := (
        select coalesce(min(mainspring_stored.guilt_v1(j.crashes, j.crash_limit)), 0) from mainspring_stored.jobs j
        where j.worker = p_worker and j.state = 'running' and j.crashes > 0
    );
begin
    return array(
        select mainspring_stored.plan_taken_v1(
            j, p_cause = 'crashed' and mainspring_stored.guilt_v1(j.crashes, j.crash_limit) = v_blamed,
            mainspring_stored.guilt_v1(j.crashes, j.crash_limit) = 2 or v_held = 1, p_delays, 'crashed', false, p_now
        )
        from mainspring_stored.jobs j where j.worker = p_worker and j.state = 'running'
        order by j.seq
    );
end
$$;

CREATE FUNCTION mainspring_stored.plan_taken_v1(p_job mainspring_stored.jobs, p_charged boolean, p_certain boolean, p_delays bigint[], p_reason text, p_ends boolean, p_now bigint) RETURNS mainspring_stored.taken_back_v1
    LANGUAGE plpgsql STABLE
    AS $$
declare
    v_delay bigint := p_delays[least(p_job.crashes + 1, cardinality(p_delays))];
begin
    return case
        when p_job.ordered is not null then row(p_job.id, 'cancelled', 'by_user', p_charged, null)::mainspring_stored.taken_back_v1
        when p_job.early or p_ends or p_charged and p_certain and p_job.crashes + 1 >= p_job.crash_limit
            then row(p_job.id, 'dead', p_reason, p_charged, null)::mainspring_stored.taken_back_v1
        when p_charged and v_delay > 0 then row(p_job.id, 'retrying', null, true, p_now + v_delay)::mainspring_stored.taken_back_v1
        else row(p_job.id, 'ready', null, p_charged, null)::mainspring_stored.taken_back_v1 end;
end
$$;

CREATE FUNCTION mainspring_stored.postpone_pruning_v1(p_ids bytea[], p_dead bytea[], p_now bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    update mainspring_stored.finished f set drop_at = mainspring_stored.key_until_v1(k, f.state, f.started, f.finished) from mainspring_stored.keys k
    where f.id = any(p_ids) and k.hash = f.key and k.job = f.id
        and mainspring_stored.key_until_v1(k, f.state, f.started, f.finished) > p_now;
    update mainspring_stored.dead d set drop_at = mainspring_stored.key_until_v1(k, d.state, d.started, d.finished) from mainspring_stored.keys k
    where d.id = any(p_dead) and k.hash = d.key and k.job = d.id
        and mainspring_stored.key_until_v1(k, d.state, d.started, d.finished) > p_now;
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
    v_limited bytea[];
    v_rechecked text[];
    v_more boolean := false;
begin
    perform mainspring_stored.guard_v1();
    perform mainspring_stored.note_time_v1(v_now);
    perform mainspring_stored.follow_clock_v1(v_now);
    v_expired := array(
        select j.id from mainspring_stored.jobs j where j.expires is not null and j.state <> 'running' and j.expires <= v_now
        order by j.expires limit p_limit for update skip locked
    );
    v_woken := mainspring_stored.finish_v1(
        array(select row(x.id, 'cancelled', 'expired', null, null, null, null, 0, null)::mainspring_stored.ending_v1
            from unnest(v_expired) x(id)), v_now
    );
    v_woken := v_woken || mainspring_stored.advance_flows_v1(p_limit, v_now);
    v_due := array(
        select j.id from mainspring_stored.jobs j where j.state in ('scheduled', 'retrying') and j.due <= v_now
            and (j.expires is null or j.expires > v_now)
        order by j.due, j.seq limit p_limit for update skip locked
    );
    with placed as materialized (  -- numbered once and in order, whatever the plan of the join is
        select d.id, nextval('mainspring_stored.seq') as seq
        from (select * from unnest(v_due) with ordinality as x(id, n) order by x.n) d
    ), ready as (
        update mainspring_stored.jobs j set state = 'ready', due = null, seq = case when j.seq < 0 then -u.seq else u.seq end
        from placed u
        where j.id = any(array[u.id])
        returning j.id, j.queue, j.buckets
    )
    select array(select distinct r.queue from ready r order by r.queue),
        array(select r.id from ready r where r.buckets is not null)
    into v_queues, v_limited;
    if cardinality(v_limited) > 0 then
        perform mainspring_stored.add_lane_rows_v1(v_limited, false);
    end if;
    -- last: a transaction that has locked rows of lanes must not wait
    v_woken := v_woken || mainspring_stored.recheck_due_lanes_v1(p_limit, v_now);
    if exists (select 1 from mainspring_stored.rechecks) then
        select s.woken, s.more into v_rechecked, v_more from mainspring_stored.recheck_changed_limits_v1() s;
        v_woken := v_woken || v_rechecked;
    end if;
    return query select v_now, cardinality(v_due), v_expired, v_queues, v_woken,
        least(case when v_more then v_now end, mainspring_stored.next_promotion_v1());
end
$$;

CREATE FUNCTION mainspring_stored.prune_buckets_v1(p_now bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    c_most constant integer := 10000;
    v_idle text[];
begin
    if not exists (select 1 from mainspring_stored.buckets) then
        return;
    end if;
    delete from mainspring_stored.rate_starts s where s.ctid = any(array(
        select o.ctid from mainspring_stored.rate_starts o
        left join mainspring_stored.limits l on l.name = any(array[split_part(o.bucket, '=', 1)]) and l.kind = 'rate'
        where o.last <= p_now - coalesce(l.per, 0) limit c_most for update of o skip locked
    ));
    v_idle := array(
        select b.name from mainspring_stored.buckets b
        where b.tat <= p_now and b.blocked_until <= p_now
            and not exists (select 1 from mainspring_stored.bucket_uses u where u.bucket = b.name)
            and not exists (select 1 from mainspring_stored.rate_starts s where s.bucket = b.name)
            and not exists (select 1 from mainspring_stored.holders g where g.bucket = b.name)
        limit c_most for update skip locked
    );
    -- A new statement: a bucket may have been used before it was locked.
    delete from mainspring_stored.buckets b
    where b.name = any(v_idle) and b.tat <= p_now and b.blocked_until <= p_now
        and not exists (select 1 from mainspring_stored.bucket_uses u where u.bucket = b.name)
        and not exists (select 1 from mainspring_stored.rate_starts s where s.bucket = b.name)
        and not exists (select 1 from mainspring_stored.holders g where g.bucket = b.name);
end
$$;

CREATE FUNCTION mainspring_stored.prune_ended_v1(p_limit integer, p_before bigint, p_dead_before bigint, p_now bigint, OUT candidates integer, OUT deleted integer, OUT woken text[]) RETURNS record
    LANGUAGE plpgsql
    AS $$
declare
    v_ids bytea[];
    v_dead bytea[];
    v_gone bytea[];
    v_roots bytea[];
begin
    select coalesce(array_agg(c.id), '{}'), array_agg(c.id) filter (where c.followed & 4 > 0) into v_ids, v_roots from (
        (
            select f.id, f.followed from mainspring_stored.finished f
            where f.drop_at <= p_now and (f.followed & 4 = 0 or not mainspring_stored.is_flow_live_v1(f.id))
            order by f.drop_at limit p_limit
        )
        union all
        (
            select f.id, f.followed from mainspring_stored.finished f
            where f.finished < p_before and f.drop_at is null
                and (f.followed & 4 = 0 or not mainspring_stored.is_flow_live_v1(f.id))
            order by f.finished limit p_limit
        )
        limit p_limit
    ) c;
    if v_roots is not null then
        v_gone := mainspring_stored.list_flow_jobs_v1(v_roots, p_limit, p_now);
        if cardinality(v_gone) > 0 then
            update mainspring_stored.joins o set pruning = true where o.id = any(v_roots) and not o.pruning;
            candidates := cardinality(v_gone);
            select f.* into deleted, woken from mainspring_stored.prune_flow_jobs_v1(v_gone, p_now) f;
            return;
        end if;
        v_roots := mainspring_stored.list_kept_roots_v1(v_roots);
        v_ids := array(select u.id from unnest(v_ids) as u(id) where u.id <> all(v_roots));
    end if;
    v_dead := array(
        select d.id from mainspring_stored.dead d where d.drop_at <= p_now order by d.drop_at limit p_limit - cardinality(v_ids)
    );
    v_dead := v_dead || array(
        select d.id from mainspring_stored.dead d where d.finished < p_dead_before and d.drop_at is null
        order by d.finished limit p_limit - cardinality(v_ids) - cardinality(v_dead)
    );
    candidates := cardinality(v_ids) + cardinality(v_dead);
    deleted := 0;
    woken := '{}';
    if candidates = 0 then
        return;
    end if;
    perform mainspring_stored.lock_keys_of_v1(v_ids || v_dead, false, p_now);
    perform mainspring_stored.postpone_pruning_v1(v_ids, v_dead, p_now);
    -- A new statement: a job may have been retried meanwhile, or have taken its key again.
    with ended as (
        delete from mainspring_stored.finished f
        where f.id = any(v_ids) and (f.drop_at is null or f.drop_at <= p_now) and (
            f.drop_at is not null and f.keep is not null or f.finished < p_before
        )
        returning f.id
    ), buried as (
        delete from mainspring_stored.dead d
        where d.id = any(v_dead) and (d.drop_at is null or d.drop_at <= p_now) and d.finished < p_dead_before
        returning d.id
    )
    select array(select id from ended union all select id from buried) into v_gone;
    woken := mainspring_stored.resolve_pruned_v1(v_gone, p_now);
    perform mainspring_stored.delete_details_v1(v_gone);
    deleted := cardinality(v_gone);
    -- Jobs whose window is over and that have a longer retention now than when their pruning was postponed.
    update mainspring_stored.finished f set drop_at = null where f.id = any(v_ids) and f.drop_at <= p_now;
    update mainspring_stored.dead d set drop_at = null where d.id = any(v_dead) and d.drop_at <= p_now;
end
$$;

CREATE FUNCTION mainspring_stored.prune_fair_clocks_v1() RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    delete from mainspring_stored.fair_clocks c where not exists (
        select 1 from mainspring_stored.keyed_lanes l where l.lane >= c.queue || '/' and l.lane < c.queue || '0' and l.vtime is not null
    );
end
$$;

CREATE FUNCTION mainspring_stored.prune_flow_jobs_v1(p_ids bytea[], p_now bigint, OUT deleted integer, OUT woken text[]) RETURNS record
    LANGUAGE plpgsql
    AS $$
declare
    v_gone bytea[];
begin
    perform mainspring_stored.lock_keys_of_v1(p_ids, false, p_now);
    with ended as (
        delete from mainspring_stored.finished f where f.id = any(p_ids) returning f.id
    ), buried as (
        delete from mainspring_stored.dead d where d.id = any(p_ids) returning d.id
    )
    select array(select id from ended union all select id from buried) into v_gone;
    woken := mainspring_stored.resolve_pruned_v1(v_gone, p_now);
    perform mainspring_stored.delete_details_v1(v_gone);
    deleted := cardinality(v_gone);
end
$$;

CREATE FUNCTION mainspring_stored.prune_lane_rows_v1(p_now bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    c_most constant integer := 1000;
    v_empty bigint[] := array(
        select l.id from (
            select o.* from mainspring_stored.keyed_lanes o
            where o.id >= (select min(x.id) + ((max(x.id) - min(x.id)) * random())::bigint - c_most / 2
                from mainspring_stored.keyed_lanes x)
            order by o.id limit c_most
        ) l
        -- Not "not exists": with stale statistics that reads all ready jobs for each lane (see
        -- docs/internals/postgres-plans.md).
        left join lateral (
            select true as there from mainspring_stored.jobs j
            where j.state = 'ready' and j.lane = l.lane and j.priority = l.priority limit 1
        ) h on true
        where h.there is null
    );
begin
    if cardinality(v_empty) > 0 then
        perform mainspring_stored.settle_lane_rows_v1(
            v_empty, mainspring_stored.try_lock_buckets_v1(
                array(
                    select distinct b.name from mainspring_stored.read_lane_rows_v1(v_empty) l
                    cross join unnest(l.buckets) as b(name)
                )
            ), p_now
        );
    end if;
end
$$;

CREATE FUNCTION mainspring_stored.prune_others_v1(p_now bigint, p_keep_workers bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    delete from mainspring_stored.workers w where w.lost and w.seen < p_now - p_keep_workers;
    delete from mainspring_stored.retried_batches r where r.at < p_now - 86400000000;
    delete from mainspring_stored.holders g where g.until <= p_now;
    delete from mainspring_stored.holder_tokens f where f.token <= p_now - 86400000000;
    perform mainspring_stored.prune_buckets_v1(p_now);
    perform mainspring_stored.prune_lane_rows_v1(p_now);
    perform mainspring_stored.prune_fair_clocks_v1();
    perform mainspring_stored.prune_schedules_v1(p_now);
end
$$;

CREATE FUNCTION mainspring_stored.prune_schedules_v1(p_now bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    delete from mainspring_stored.schedules s where s.name = any(array(
        select o.name from mainspring_stored.schedules o where o.doc is null and o.rev < p_now - 86400000000 limit 1000
        for update skip locked
    ));
end
$$;

CREATE FUNCTION mainspring_stored.prune_v1(p_limit integer, p_now bigint, p_keep bigint, p_keep_count integer, p_keep_at_least bigint, p_keep_dead bigint, p_keep_dead_count integer, p_keep_workers bigint, OUT deleted integer, OUT woken text[]) RETURNS record
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
    v_found integer;
    v_deleted integer;
    v_woken text[];
begin
    perform mainspring_stored.guard_v1();
    deleted := 0;
    woken := '{}';
    v_before := least(v_young, greatest(v_now - p_keep, case when p_keep_count <= 0 then v_now + 1 else (
        select f.finished from mainspring_stored.finished f where f.drop_at is null
            order by f.finished desc offset p_keep_count - 1 limit 1
    ) end));
    v_dead_before := least(v_young, greatest(v_now - p_keep_dead, case when p_keep_dead_count <= 0 then v_now + 1 else (
        select d.finished from mainspring_stored.dead d where d.drop_at is null or d.drop_at < 4503599627370496 order by d.finished desc offset p_keep_dead_count - 1 limit 1
    ) end));
    for v_round in 1 .. c_rounds loop
        select e.* into v_found, v_deleted, v_woken
        from mainspring_stored.prune_ended_v1(p_limit - deleted, v_before, v_dead_before, v_now) e;
        exit when v_found = 0;
        deleted := deleted + v_deleted;
        woken := woken || v_woken;
    end loop;
    perform mainspring_stored.prune_others_v1(v_now, p_keep_workers);
end
$$;

CREATE FUNCTION mainspring_stored.put_document_v1(p_kind text, p_name text, p_version bigint, p_data bytea) RETURNS TABLE(version bigint, data bytea)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
begin
    insert into mainspring_stored.documents (kind, name, version, data) values (p_kind, p_name, p_version, p_data)
    on conflict (kind, name) do update set version = excluded.version, data = excluded.data
    where excluded.version >= documents.version;
    return query select d.version, d.data from mainspring_stored.documents d where d.kind = p_kind and d.name = p_name;
end
$$;

CREATE FUNCTION mainspring_stored.queue_modes_lock_v1() RETURNS bigint
    LANGUAGE sql IMMUTABLE
    AS $$
    select hashtextextended('mainspring queue modes mainspring_stored', 0)
$$;

CREATE FUNCTION mainspring_stored.read_breaker_capacity_v1(p_name text, p_probes bigint, p_now bigint) RETURNS mainspring_stored.capacity_v1
    LANGUAGE plpgsql
    AS $$
declare
    v_until bigint := coalesce((select b.until from mainspring_stored.breakers b where b.name = p_name), 0);
    v_used bigint := 0;
begin
    if v_until = 0 then
        return row(p_name, 'breaker', p_probes, 0, 4611686018427387904, 1, 0)::mainspring_stored.capacity_v1;
    elsif v_until > p_now then
        return row(p_name, 'breaker', p_probes, 0, 0, 1, 0)::mainspring_stored.capacity_v1;
    end if;
    v_used := mainspring_stored.count_probes_v1(p_name, v_until, p_now);
    return row(p_name, 'breaker', p_probes, v_used, greatest(p_probes - v_used, 0), 1, 0)::mainspring_stored.capacity_v1;
end
$$;

CREATE FUNCTION mainspring_stored.read_breaker_v1(p_name text, p_now bigint) RETURNS text
    LANGUAGE plpgsql
    AS $$
begin
    return (
        select json_build_array(p_now, l.name, coalesce(l.set_size, l.size), l.per, l.burst, l.share, l.span,
            coalesce(b.rev, 0), coalesce(b.until, 0), coalesce(b.opened, 0), coalesce(b.doc, ''))::text
        from mainspring_stored.limits l left join mainspring_stored.breakers b on b.name = l.name
        where l.name = p_name and l.kind = 'breaker'
    );
end
$$;

CREATE FUNCTION mainspring_stored.read_capacities_v1(p_names text[], p_now bigint) RETURNS mainspring_stored.capacity_v1[]
    LANGUAGE plpgsql
    AS $$
begin
    if cardinality(p_names) = 1 then
        return array[mainspring_stored.read_capacity_v1(p_names[1], p_now)];
    end if;
    return array(
        select case when l.kind = 'breaker' then mainspring_stored.read_breaker_capacity_v1(a.name, coalesce(l.set_size,
            l.size), p_now)
            else mainspring_stored.compute_capacity_v1(a.name, l, b, u.used, p_now) end
        from unnest(p_names) with ordinality as a(name, at)
        left join mainspring_stored.limits l on l.name = any(array[split_part(a.name, '=', 1)])
        left join mainspring_stored.buckets b on b.name = any(array[a.name])
        cross join lateral (
            select case l.kind
                when 'concurrency' then
                    (select coalesce(sum(x.n), 0) from mainspring_stored.bucket_uses x where x.bucket = a.name)
                    + (select count(*) from mainspring_stored.holders g where g.bucket = a.name and g.until > p_now)
                when 'rate' then
                    (select coalesce(sum(x.n), 0) from mainspring_stored.rate_starts x where x.bucket = a.name and x.last > p_now - l.per)
            end::bigint as used
            offset 0  -- else the planner copies this subquery to every place that names it
        ) u
        order by a.at
    );
end
$$;

CREATE FUNCTION mainspring_stored.read_capacity_v1(p_name text, p_now bigint) RETURNS mainspring_stored.capacity_v1
    LANGUAGE plpgsql
    AS $$
declare
    v_limit mainspring_stored.limits;
    v_bucket mainspring_stored.buckets;
    v_used bigint;
begin
    select * into v_limit from mainspring_stored.limits l where l.name = split_part(p_name, '=', 1);
    case v_limit.kind
        when 'breaker' then
            return mainspring_stored.read_breaker_capacity_v1(p_name, coalesce(v_limit.set_size, v_limit.size), p_now);
        when 'concurrency' then
            v_used := (select coalesce(sum(x.n), 0) from mainspring_stored.bucket_uses x where x.bucket = p_name)
                + (select count(*) from mainspring_stored.holders g where g.bucket = p_name and g.until > p_now);
        when 'rate' then
            v_used := (
                select coalesce(sum(x.n), 0) from mainspring_stored.rate_starts x where x.bucket = p_name and x.last > p_now - v_limit.per
            );
            select * into v_bucket from mainspring_stored.buckets b where b.name = p_name;
        else
            select * into v_bucket from mainspring_stored.buckets b where b.name = p_name;
    end case;
    return mainspring_stored.compute_capacity_v1(p_name, v_limit, v_bucket, v_used, p_now);
end
$$;

CREATE TABLE mainspring_stored.keyed_lanes (
    id bigint NOT NULL,
    seq bigint NOT NULL,
    priority integer NOT NULL,
    lane text NOT NULL COLLATE pg_catalog."C",
    lane_set text NOT NULL COLLATE pg_catalog."C",
    queue text NOT NULL,
    buckets text[] NOT NULL,
    waits_for text COLLATE pg_catalog."C",
    recheck_at bigint,
    vtime double precision,
    step double precision
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

CREATE FUNCTION mainspring_stored.read_lane_rows_v1(p_ids bigint[]) RETURNS SETOF mainspring_stored.keyed_lanes
    LANGUAGE plpgsql
    AS $$
begin
    return query select l.* from unnest(p_ids) as i(id) join mainspring_stored.keyed_lanes l on l.id = any(array[i.id]);
end
$$;

CREATE FUNCTION mainspring_stored.recheck_changed_limits_v1(OUT woken text[], OUT more boolean) RETURNS record
    LANGUAGE plpgsql
    AS $$
declare
    c_slice constant integer := 1000;
    v_recheck mainspring_stored.rechecks;
    v_lanes bigint[];
    v_last text;
begin
    select s.* into v_recheck from mainspring_stored.rechecks s order by s.name limit 1 for update;
    woken := '{}';
    more := found;
    if not found then
        return;
    end if;
    select coalesce(array_agg(n.id), '{}'), max(n.waits_for) into v_lanes, v_last from (
        select l.id, l.waits_for from mainspring_stored.keyed_lanes l
        where l.waits_for >= v_recheck.bucket and l.waits_for < v_recheck.name || '>'
            and split_part(l.waits_for, '=', 1) = v_recheck.name
        order by l.waits_for limit c_slice for no key update skip locked
    ) n;
    if cardinality(v_lanes) < c_slice then
        delete from mainspring_stored.rechecks s where s.name = v_recheck.name;
    else
        update mainspring_stored.rechecks s set bucket = v_last where s.name = v_recheck.name;
    end if;
    with opened as (
        update mainspring_stored.keyed_lanes l set waits_for = null, recheck_at = null from unnest(v_lanes) as i(id)
        where l.id = any(array[i.id]) returning l.queue
    )
    select array(select distinct o.queue from opened o) into woken;
    more := exists (select 1 from mainspring_stored.rechecks);
end
$$;

CREATE FUNCTION mainspring_stored.recheck_due_lanes_v1(p_limit integer, p_now bigint) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
declare
    v_lanes bigint[] := array(
        select l.id from mainspring_stored.keyed_lanes l where l.recheck_at <= p_now
        order by l.recheck_at limit p_limit for no key update skip locked
    );
    v_woken text[];
begin
    if cardinality(v_lanes) = 0 then
        return '{}';
    end if;
    with opened as (
        update mainspring_stored.keyed_lanes l set waits_for = null, recheck_at = null from unnest(v_lanes) as i(id)
        where l.id = any(array[i.id]) returning l.queue
    )
    select array(select distinct o.queue from opened o) into v_woken;
    return v_woken;
end
$$;

CREATE FUNCTION mainspring_stored.recheck_freed_v1(p_names text[], p_rates boolean, p_now bigint) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
begin
    if cardinality(p_names) = 0 then
        return '{}';
    end if;
    return mainspring_stored.list_wakeups_v1(p_names, mainspring_stored.recheck_lanes_v1(p_names, p_rates, p_now), p_rates, p_now);
end
$$;

CREATE FUNCTION mainspring_stored.recheck_lanes_v1(p_names text[], p_rates boolean, p_now bigint) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
declare
    c_most constant integer := 1000;
    v_lanes bigint[];
begin
    if not exists (select 1 from mainspring_stored.keyed_lanes l where l.waits_for = any(p_names)) then
        return '{}';
    end if;
    with recursive free as (
        select r.name, least(r.available, c_most) as places
        from unnest(mainspring_stored.read_capacities_v1(array(select distinct u.name from unnest(p_names) as u(name)), p_now)) r
        where r.available > 0 and (p_rates or coalesce(r.kind, 'concurrency') = 'concurrency')
    ), sets as (
        select f.name, f.places, n.lane_set from free f cross join lateral (
            select l.lane_set from mainspring_stored.keyed_lanes l where l.waits_for = f.name order by l.lane_set limit 1
        ) n
        union all
        select g.name, g.places, n.lane_set from sets g cross join lateral (
            select l.lane_set from mainspring_stored.keyed_lanes l where l.waits_for = g.name and l.lane_set > g.lane_set
                order by l.lane_set limit 1
        ) n
    ), levels as (
        select g.*, n.priority from sets g cross join lateral (
            select l.priority from mainspring_stored.keyed_lanes l where l.waits_for = g.name and l.lane_set = g.lane_set
                order by l.priority desc limit 1
        ) n
        union all
        select v.name, v.places, v.lane_set, n.priority from levels v cross join lateral (
            select l.priority from mainspring_stored.keyed_lanes l where l.waits_for = v.name and l.lane_set = v.lane_set
                and l.priority < v.priority
            order by l.priority desc limit 1
        ) n
    ), first as (
        select f.id, v.places, row_number() over (
            partition by v.name, v.lane_set order by mainspring_stored.order_key_v1(f.seq, v.priority), f.id
        ) as nth
        from levels v cross join lateral (
            select l.id, l.seq from mainspring_stored.keyed_lanes l where l.waits_for = v.name and l.lane_set = v.lane_set
                and l.priority = v.priority
            order by l.seq limit v.places
        ) f
    )
    select coalesce(array_agg(f.id order by f.id), '{}') into v_lanes from first f
    where f.nth <= f.places;
    perform 1 from unnest(v_lanes) as i(id) join mainspring_stored.keyed_lanes l on l.id = any(array[i.id]) for no key update of l;
    update mainspring_stored.keyed_lanes l set waits_for = null, recheck_at = null from unnest(v_lanes) as i(id)
        where l.id = any(array[i.id]);
    return v_lanes;
end
$$;

CREATE FUNCTION mainspring_stored.recheck_left_lanes_v1(p_lanes text[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    update mainspring_stored.keyed_lanes l set waits_for = null, recheck_at = null
    where l.id = any(array(
        select x.id from mainspring_stored.keyed_lanes x where x.lane = any(p_lanes) and x.recheck_at is not null
        for no key update skip locked
    ));
end
$$;

CREATE FUNCTION mainspring_stored.recheck_waiting_v1(p_names text[]) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
declare
    v_lanes bigint[];
    v_woken text[];
begin
    with recursive sets as (
        select u.name, n.* from unnest(p_names) as u(name) cross join lateral (
            select l.lane_set, l.id from mainspring_stored.keyed_lanes l where l.waits_for = u.name
                order by l.lane_set, l.priority desc, l.seq limit 1
        ) n
        union all
        select g.name, n.* from sets g cross join lateral (
            select l.lane_set, l.id from mainspring_stored.keyed_lanes l where l.waits_for = g.name and l.lane_set > g.lane_set
            order by l.lane_set, l.priority desc, l.seq limit 1
        ) n
    )
    select coalesce(array_agg(g.id order by g.id), '{}') into v_lanes from sets g;
    perform 1 from unnest(v_lanes) as i(id) join mainspring_stored.keyed_lanes l on l.id = any(array[i.id]) for no key update of l;
    with opened as (
        update mainspring_stored.keyed_lanes l set waits_for = null, recheck_at = null from unnest(v_lanes) as i(id)
        where l.id = any(array[i.id]) returning l.queue
    ), waiting as (
        delete from mainspring_stored.waiting_queues w where w.bucket = any(p_names) returning w.queue
    )
    select array(select o.queue from opened o union select t.queue from waiting t) into v_woken;
    return v_woken;
end
$$;

CREATE FUNCTION mainspring_stored.record_attempts_v1(p_ids bytea[], p_acks mainspring_stored.ack_v1[], p_cause text, p_now bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    if cardinality(p_ids) = 0 then
        return;
    end if;
    if p_cause is null then
        insert into mainspring_stored.attempts (job, token, epoch, attempt, worker, started, ended, ran, outcome, acked, error)
        select j.id, j.token, j.epoch, j.attempt, j.worker, j.started, p_now, a.ran, a.outcome, true, a.error
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
            select o.token from mainspring_stored.attempts o where o.job = any(array[u.id])
                order by o.token desc offset 100 limit 1
        ) as token
        from unnest(p_ids) as u(id)
    ) old
    where t.job = any(array[old.id]) and t.token <= old.token;
end
$$;

CREATE FUNCTION mainspring_stored.record_lane_starts_v1(p_worker text, p_names text[], p_n bigint, p_now bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    v_rates text[];
    v_times bigint[];
begin
    insert into mainspring_stored.bucket_uses (bucket, worker, n) select u.name, p_worker, p_n from unnest(p_names) as u(name)
    on conflict (bucket, worker) do update set n = bucket_uses.n + excluded.n;
    select array_agg(l.name), array_agg(mainspring_stored.smooth_time_v1(1, l.per, coalesce(l.set_size, l.size)) * p_n)
    into v_rates, v_times from mainspring_stored.limits l where l.name = any(p_names) and l.kind in ('rate', 'smooth');
    if v_rates is not null then
        perform mainspring_stored.charge_rates_v1(p_worker, v_rates, array_fill(p_n, array[cardinality(v_rates)]), v_times, p_now);
    end if;
end
$$;

CREATE FUNCTION mainspring_stored.record_starts_v1(p_worker text, p_names text[], p_costs bigint[], p_numbers bigint[], p_now bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    v_names text[];
    v_amounts bigint[];
    v_times bigint[];
begin
    insert into mainspring_stored.bucket_uses (bucket, worker, n)
    select u.name, p_worker, sum(u.n) from unnest(p_names, p_numbers) as u(name, n) group by u.name
    on conflict (bucket, worker) do update set n = bucket_uses.n + excluded.n;
    select array_agg(s.name), array_agg(s.amount), array_agg(s.time) into v_names, v_amounts, v_times from (
        select u.name, sum(c.cost * u.n) as amount, sum(mainspring_stored.smooth_time_v1(c.cost, l.per, c.size) * u.n) as time
        from unnest(p_names, p_costs, p_numbers) as u(name, cost, n)
        join mainspring_stored.limits l on l.name = any(array[split_part(u.name, '=', 1)]) and l.kind in ('rate', 'smooth')
        cross join lateral (select coalesce(l.set_size, l.size) as size) z
        cross join lateral (select z.size, least(coalesce(u.cost, 1), z.size) as cost) c
        group by u.name
    ) s;
    if v_names is not null then
        perform mainspring_stored.charge_rates_v1(p_worker, v_names, v_amounts, v_times, p_now);
    end if;
end
$$;

CREATE FUNCTION mainspring_stored.refuse_missing_parents_v1(p_id bytea[], p_take boolean[], p_child_at integer[], p_parent bytea[], p_parent_at integer[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
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
        raise exception 'job % waits for job %, which does not exist', encode(v_child, 'hex')::uuid,
            encode(v_missing, 'hex')::uuid
            using errcode = 'MS001', hint = 'Enqueue the parent first or in the same batch; was it deleted or pruned?';
    end if;
end
$$;

CREATE FUNCTION mainspring_stored.release_new_v1(p_id bytea[], p_take boolean[], p_join_at integer[], p_open boolean[], p_now bigint) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
begin
    return mainspring_stored.release_v1(
        array(select p_id[u.at] from unnest(p_join_at, p_open) as u(at, open) where p_take[u.at] and not u.open), p_now
    );
end
$$;

CREATE FUNCTION mainspring_stored.release_uses_v1(p_worker text, p_names text[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    with freed as materialized (
        select b.name, count(*) as n from unnest(p_names) as b(name) group by b.name
    ), ended as (
        delete from mainspring_stored.bucket_uses u using freed f where u.bucket = any(array[f.name]) and u.worker = p_worker
            and u.n <= f.n
    )
    update mainspring_stored.bucket_uses u set n = u.n - f.n from freed f
    where u.bucket = any(array[f.name]) and u.worker = p_worker and u.n > f.n;
end
$$;

CREATE FUNCTION mainspring_stored.release_v1(p_ids bytea[], p_now bigint) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
begin
    return mainspring_stored.resolve_dependents_v1(
        array(select row(u.id, 'unheld')::mainspring_stored.parent_end_v1 from unnest(p_ids) as u(id)), null, p_now
    );
end
$$;

CREATE FUNCTION mainspring_stored.release_v1(p_holder bytea, p_spent jsonb, p_slow bigint, p_now bigint) RETURNS TABLE(held boolean, woken text[])
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    v_names text[] := array(select g.bucket from mainspring_stored.holders g where g.holder = p_holder);
    v_now bigint;
    v_gone text[];
    v_costs bigint[];
begin
    perform mainspring_stored.guard_v1();
    perform mainspring_stored.lock_buckets_v1(v_names);
    v_now := mainspring_stored.now_v1(p_now);
    with gone as (
        delete from mainspring_stored.holders g where g.holder = p_holder and g.bucket = any(v_names) and g.until > v_now
        returning g.bucket, g.cost
    )
    select array_agg(o.bucket), array_agg(o.cost) into v_gone, v_costs from gone o;
    if v_gone is null then
        return query select false, '{}'::text[];
        return;
    end if;
    -- Under a name that no bucket has, so that it uses no capacity.
    insert into mainspring_stored.holders (holder, bucket, cost, until)
    select 'rest', '=' || k.name, 0, v_now + 1000000
        from jsonb_object_keys(mainspring_stored.take_reservations_v1(v_gone, v_now)) as k(name)
    on conflict (holder, bucket) do update set until = excluded.until;
    perform mainspring_stored.correct_costs_v1(v_gone, v_costs, p_spent, p_slow, v_now);
    return query select true, mainspring_stored.recheck_freed_v1(v_gone, p_spent is not null, v_now);
end
$$;

CREATE FUNCTION mainspring_stored.repeat_claims_v1(p_worker text, p_seen bigint, p_held bytea[], p_held_token bigint[], p_inline integer) RETURNS TABLE(kind text, id bytea, token bigint, task text, queue text, lane text, priority integer, attempt integer, epoch integer, crashes integer, early boolean, enqueued bigint, expires bigint, record bytea, turn bigint, note text)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
begin
    return query select 'claim', j.id, j.token, j.task, j.queue, j.lane::text, j.priority, j.attempt, j.epoch,
        j.crashes, j.early, j.enqueued, j.expires, case when octet_length(j.record) <= p_inline then j.record end, j.turn,
        null::text
    from mainspring_stored.jobs j
    where j.state = 'running' and j.worker = p_worker and j.turn > p_seen
        and (p_held is null or not exists (
            select 1 from unnest(p_held, p_held_token) as h(id, token) where h.id = j.id and h.token = j.token
        ))
    order by j.turn, mainspring_stored.order_key_v1(j.seq, j.priority), j.seq;
end
$$;

CREATE FUNCTION mainspring_stored.replace_waiting_v1(p_key bytea[], p_modes jsonb, INOUT p_now bigint, INOUT p_id bytea[], INOUT p_take boolean[], INOUT p_answers bytea[], INOUT p_run_at bigint[], INOUT p_child_at integer[], INOUT p_parent bytea[], INOUT p_parent_at integer[], INOUT p_policy text[], OUT replaced mainspring_stored.replaced_v1[]) RETURNS record
    LANGUAGE plpgsql
    AS $$
declare
    v_now bigint;
    v_at integer;
    v_asked record;
    v_key mainspring_stored.keys;
    v_job mainspring_stored.jobs;
    v_due bigint;
    v_parent bytea;
begin
    perform mainspring_stored.lock_waiting_v1(p_key);
    v_now := mainspring_stored.now_v1(p_now);
    replaced := '{}';
    p_run_at := array(select p_run_at[n] from generate_subscripts(p_id, 1) n order by n);
    for v_asked in
        select a.key::integer as at, m.* from jsonb_each(p_modes) a
        cross join lateral jsonb_to_record(a.value) as m(mode text, "window" bigint, max_wait bigint)
        where m.mode <> 'keep' and p_take[a.key::integer] order by 1
    loop
        v_at := v_asked.at;
        select k.* into v_key from mainspring_stored.keys k where k.hash = p_key[v_at];
        if v_key.replaced_by = p_id[v_at] then
            p_take[v_at] := false;
            p_answers[v_at] := v_key.job;
            continue;
        end if;
        p_now := v_now;  -- the delay counts from the enqueue, not from the end of the wait for locks
        select j.* into v_job from mainspring_stored.jobs j where j.id = v_key.job;
        if v_job.token = 0 and v_job.state <> 'running' then
            select t.* into v_parent, v_due from mainspring_stored.take_out_waiting_v1(
                v_job, v_key, p_id[v_at], v_asked.mode, v_asked."window", v_asked.max_wait, v_now
            ) t;
            replaced := replaced || mainspring_stored.describe_replaced_v1(v_at, v_job);
            p_id[v_at] := v_job.id;
            p_answers[v_at] := v_job.id;
            -- The new id is never inserted, so no child can wait for it; children of the replaced job find it at this
            -- position.
            p_parent_at := array(
                select case when e.parent = v_job.id then v_at else nullif(e.inside, v_at) end
                from unnest(p_parent, p_parent_at) with ordinality as e(parent, inside, n) order by e.n
            );
        else
            select t.* into v_parent, v_due from mainspring_stored.take_latest_key_v1(
                v_key, v_job.id, p_id[v_at], v_asked.mode, v_asked."window", v_now
            ) t;
        end if;
        p_run_at[v_at] := coalesce(v_due, p_run_at[v_at]);
        if v_parent is not null then
            p_child_at := p_child_at || v_at;
            p_parent := p_parent || v_parent;
            p_parent_at := p_parent_at || null::integer;
            p_policy := p_policy || 'ignore'::text;
        end if;
    end loop;
end
$$;

CREATE FUNCTION mainspring_stored.reply_row_v1(p_kind text, p_queue text, p_note text) RETURNS TABLE(kind text, id bytea, token bigint, task text, queue text, lane text, priority integer, attempt integer, epoch integer, crashes integer, early boolean, enqueued bigint, expires bigint, record bytea, turn bigint, note text)
    LANGUAGE sql IMMUTABLE
    AS $$
    select p_kind, null::bytea, null::bigint, null::text, p_queue, null::text, null::integer, null::integer, null::integer,
        null::integer, null::boolean, null::bigint, null::bigint, null::bytea, null::bigint, p_note
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
    -- Two reports of one job wait for each other; a child that is enqueued under the job does not wait.
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
    perform mainspring_stored.add_lane_rows_v1(p_ids, false);
    perform mainspring_stored.recheck_left_lanes_v1(array(
        select j.lane from mainspring_stored.jobs j where j.id = any(p_ids) and j.buckets is not null and j.state || '' = 'ready'
    ));
    return '{}';
end
$$;

CREATE FUNCTION mainspring_stored.request_rechecks_v1(p_limits text[]) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
declare
    v_woken text[];
begin
    perform pg_advisory_xact_lock(mainspring_stored.queue_modes_lock_v1());
    insert into mainspring_stored.rechecks (name, bucket) select u.name, u.name from unnest(p_limits) as u(name)
        order by u.name collate "C"
    on conflict (name) do update set bucket = excluded.bucket;
    with waiting as (
        delete from mainspring_stored.waiting_queues w using unnest(p_limits) as u(name)
            where w.bucket = any(array[u.name]) returning w.queue
    )
    select array(select distinct t.queue from waiting t) into v_woken;
    return v_woken || (select s.woken from mainspring_stored.recheck_changed_limits_v1() s);
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
    v_buckets text[];
    v_now bigint;
begin
    perform mainspring_stored.guard_v1();
    select * into v_worker from mainspring_stored.workers w where w.id = p_worker for update;
    if v_worker.id is null or v_worker.lost or v_worker.number <> p_number then
        return;
    end if;
    update mainspring_stored.workers w set lost = true where w.id = p_worker;
    delete from mainspring_stored.leads l where l.worker = p_worker;
    v_buckets := mainspring_stored.lock_worker_buckets_v1(v_worker);
    v_now := mainspring_stored.now_v1(p_now);
    perform mainspring_stored.follow_clock_v1(v_now);
    return query select null::bytea, 'taken', null;
    return query select r.* from mainspring_stored.take_back_jobs_v1(p_worker, p_cause, p_delays, v_now) r;
    return query select null::bytea, null, w.queue from unnest(mainspring_stored.recheck_freed_v1(v_buckets, false, v_now)) as w(queue);
end
$$;

CREATE FUNCTION mainspring_stored.reserve_places_v1(p_names text[], p_reserved jsonb, p_keep bigint, p_now bigint, OUT kept boolean, OUT woken text[]) RETURNS record
    LANGUAGE plpgsql
    AS $$
declare
    v_asked text[] := '{}';
begin
    if p_keep > 0 then
        v_asked := array(
            select u.name from unnest(p_names) as u(name) where not exists (
                select 1 from mainspring_stored.holders g where g.holder = 'rest' and g.bucket = '=' || u.name and g.until > p_now
            )
        );
    end if;
    woken := mainspring_stored.recheck_waiting_v1(array(select u.name from unnest(v_asked) as u(name) where not p_reserved ? u.name));
    p_reserved := p_reserved || coalesce((
        select jsonb_object_agg(u.name, greatest((p_reserved ->> u.name)::bigint, p_now + p_keep)) from unnest(v_asked) as u(name)
    ), '{}');
    insert into mainspring_stored.holders (holder, bucket, cost, until) select 'next', k.key, 0, k.value::bigint
        from jsonb_each_text(p_reserved) k;
    kept := p_reserved ?& p_names;
end
$$;

CREATE FUNCTION mainspring_stored.resolve_deleted_v1(p_ids bytea[], p_now bigint) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
begin
    return mainspring_stored.resolve_dependents_v1(
        array(select row(u.id, 'cancelled')::mainspring_stored.parent_end_v1 from unnest(p_ids) as u(id)), null, p_now
    );
end
$$;

CREATE FUNCTION mainspring_stored.resolve_dependents_v1(p_ends mainspring_stored.parent_end_v1[], p_slice integer, p_now bigint) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
declare
    v_now bigint := p_now;
    v_ends mainspring_stored.parent_end_v1[] := p_ends;
    v_slice integer := p_slice;
    v_edges mainspring_stored.met_edge_v1[];
    v_met mainspring_stored.met_v1;
    v_moved mainspring_stored.moved_v1;
    v_woken text[] := '{}';
begin
    loop
        exit when not exists (
            select 1 from mainspring_stored.edges e where e.parent = any(array(select x.id from unnest(v_ends) x))
        );
        v_edges := mainspring_stored.find_met_edges_v1(v_ends, v_slice);
        exit when cardinality(v_edges) = 0;
        perform mainspring_stored.lock_dependents_v1(v_edges, cardinality(v_ends));
        -- A new statement: it sees what the last transaction wrote that locked these rows. Two acks of parents of one
        -- child get here one after the other.
        v_met := mainspring_stored.meet_edges_v1(v_edges, v_now);
        v_woken := v_woken || v_met.woken;
        if cardinality(v_edges) >= coalesce(v_slice, 1000) then
            perform mainspring_stored.note_unreleased_v1(v_ends, v_now);
        end if;
        exit when cardinality(v_met.endings) + cardinality(v_met.first_deaths) = 0;
        if cardinality(v_met.endings) > 0 then
            -- Another transaction may have read the clock later and ended its member first, while this one waited for it.
            select greatest(v_now, max(o.last_end)) into v_now
            from mainspring_stored.joins o where o.id = any(v_met.counted);
            v_moved := mainspring_stored.move_to_history_v1(v_met.endings, v_met.counted, v_now);
            v_woken := v_woken || v_moved.woken;
        end if;
        v_slice := null;
        v_ends := array(
            select row(x.id, case when x.reason = 'bypassed' then x.reason else x.state end)::mainspring_stored.parent_end_v1
            from unnest(v_met.endings) x
            union all
            select row(u.id, 'first_death')::mainspring_stored.parent_end_v1 from unnest(v_met.first_deaths) as u(id)
        );
    end loop;
    return v_woken;
end
$$;

CREATE FUNCTION mainspring_stored.resolve_pruned_v1(p_ids bytea[], p_now bigint) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
begin
    if not exists (select 1 from mainspring_stored.edges e where e.parent = any(p_ids)) then
        return '{}';
    end if;
    perform mainspring_stored.follow_clock_v1(p_now);
    return mainspring_stored.resolve_deleted_v1(p_ids, p_now);
end
$$;

CREATE FUNCTION mainspring_stored.resume_pruning_v1(p_job bytea) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    update mainspring_stored.finished f set drop_at = case when f.keep is not null then f.finished + least(f.keep, 4611686018427387904) end
    where f.id = p_job and f.drop_at is not null;
    update mainspring_stored.dead d set drop_at = null
    where d.id = p_job and d.drop_at is not null and d.keep is distinct from 4503599627370496;
end
$$;

CREATE FUNCTION mainspring_stored.retake_keys_v1(p_ids bytea[], p_now bigint) RETURNS TABLE(id bytea, holder bytea)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    v_job bytea;
    v_hash bytea;
    v_holder bytea;
    v_asked bytea[] := '{}';
begin
    foreach v_job in array p_ids loop
        v_hash := coalesce(
            (select f.key from mainspring_stored.finished f where f.id = v_job), (select d.key from mainspring_stored.dead d where d.id = v_job)
        );
        continue when v_hash is null;
        v_holder := mainspring_stored.find_key_holder_v1(v_hash, v_hash = any(v_asked), p_now);
        v_asked := v_asked || v_hash;
        if v_holder <> v_job then
            return query select v_job, v_holder;
            continue;
        end if;
        update mainspring_stored.keys k set job = v_job, until = case when v_holder is null then 0 else k.until end,
            mode = case when k.job = v_job or k.mode <> 'keep' then k.mode else '' end,
            previous = case when k.job = v_job then k.previous end,
            replaced_by = case when k.job = v_job then k.replaced_by end,
            span = case when k.job = v_job then k.span else 0 end, print = case when k.job = v_job then k.print end
        where k.hash = v_hash;
    end loop;
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
    v_buckets text[];
    v_now bigint;
begin
    perform mainspring_stored.guard_v1();
    select * into v_worker from mainspring_stored.workers w where w.id = p_worker for update;
    if v_worker.id is null or v_worker.lost then
        return;
    end if;
    v_buckets := mainspring_stored.lock_worker_buckets_v1(v_worker);
    v_now := mainspring_stored.now_v1(p_now);
    perform mainspring_stored.follow_clock_v1(v_now);
    return query select null::bytea, null, a.queue from mainspring_stored.apply_acks_v1(p_worker, p_acks, v_now) a where a.kind = 'woken';
    return query select null::bytea, 'taken', null;
    return query select r.* from mainspring_stored.take_back_jobs_v1(p_worker, p_cause, p_delays, v_now) r;
    return query select null::bytea, null, w.queue from unnest(mainspring_stored.recheck_freed_v1(v_buckets, true, v_now)) as w(queue);
    delete from mainspring_stored.leads l where l.worker = p_worker;
    delete from mainspring_stored.workers w where w.id = p_worker;
end
$$;

CREATE FUNCTION mainspring_stored.retry_flow_v1(p_ids bytea[], p_child_at integer[], p_parent bytea[], p_policy text[], p_before_at integer[], p_before bytea[], p_now bigint) RETURNS TABLE(kind text, id bytea, note text, holder bytea)
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
    v_row record;
    v_woken text[];
begin
    perform mainspring_stored.guard_v1();
    v_woken := mainspring_stored.lock_keys_of_v1(p_ids, true, p_now);
    perform 1 from mainspring_stored.flow_work w where w.id = any(p_ids) order by w.id for update;
    perform 1 from mainspring_stored.jobs j where j.id = any(p_ids || p_before) order by j.id for update;
    perform mainspring_stored.lock_jobs_v1(p_ids);
    v_now := mainspring_stored.now_v1(p_now);
    perform mainspring_stored.follow_clock_v1(v_now);
    v_found := mainspring_stored.find_matching_v1(p_ids, '{}', '{}', '{}', '{}', '{}', '{}', null, null, null);
    return query
    select 'refused', x.id, x.state, null::bytea from unnest(v_found) x where x.state not in ('dead', 'cancelled');
    v_able := array(select x.id from unnest(v_found) x where x.state in ('dead', 'cancelled'));
    for v_row in select * from mainspring_stored.retake_keys_v1(v_able, v_now) loop
        return query select 'held', v_row.id, null::text, v_row.holder;
        v_able := array_remove(v_able, v_row.id);
    end loop;
    perform mainspring_stored.revive_v1(v_able, true);
    v_woken := v_woken || mainspring_stored.place_retried_v1(
        p_ids, mainspring_stored.mark_members_v1(p_ids, v_able), v_able, p_child_at, p_parent, p_policy, p_before_at, p_before, v_now
    );
    return query select 'done', u.id, null::text, null::bytea from unnest(v_able) as u(id);
    return query select distinct 'woken', null::bytea, w.queue, null::bytea from unnest(v_woken) as w(queue);
end
$$;

CREATE FUNCTION mainspring_stored.retry_v1(p_ids bytea[], p_now bigint) RETURNS TABLE(id bytea, holder bytea, woken text)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    v_free bytea[] := p_ids;
    v_row record;
begin
    for v_row in select * from mainspring_stored.retake_keys_v1(p_ids, p_now) loop
        return query select v_row.id, v_row.holder, null::text;
        v_free := array_remove(v_free, v_row.id);
    end loop;
    return query select null::bytea, null::bytea, w.queue from unnest(mainspring_stored.revive_v1(v_free, false)) as w(queue);
end
$$;

CREATE FUNCTION mainspring_stored.revive_v1(p_ids bytea[], p_blocked boolean) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
declare
    v_woken text[];
begin
    with ended as (
        delete from mainspring_stored.finished f where f.id = any(p_ids) returning f.*
    ), buried as (
        delete from mainspring_stored.dead d where d.id = any(p_ids) returning d.*
    ), revived as (
        insert into mainspring_stored.jobs (
            id, state, deps, task, queue, home, lane, priority, seq, token, worker, epoch, crash_limit, early, followed,
            enqueued, keep, key, buckets, costs, record, counted
        )
        select a.id, case when p_blocked then 'blocked' else 'ready' end, p_blocked::integer, a.task, a.queue, a.home, a.home,
            a.priority, case when p_blocked then -(a.seq < 0)::integer
                when a.seq < 0 then -nextval('mainspring_stored.seq') else nextval('mainspring_stored.seq') end, a.token, a.worker, a.epoch + 1,
            a.crash_limit, a.early, a.followed, a.enqueued, a.keep, a.key, a.buckets, a.costs, a.record,
            a.followed & 4 = 0
                and exists (select 1 from mainspring_stored.queues q where q.name = any(array[a.queue]) and q.bounded)
        from (
            select b.* from (select * from ended union all select * from buried) b order by array_position(p_ids, b.id)
        ) a
        returning jobs.queue, jobs.state
    )
    select coalesce(array_agg(distinct r.queue) filter (where r.state = 'ready'), '{}') into v_woken from revived r;
    perform mainspring_stored.add_lane_rows_v1(p_ids, false);
    delete from mainspring_stored.progress where job = any(p_ids);
    delete from mainspring_stored.items where job = any(p_ids);
    return v_woken;
end
$$;

CREATE FUNCTION mainspring_stored.run_now_v1(p_ids bytea[]) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
declare
    v_woken text[];
    v_limited bytea[];
begin
    with placed as materialized (
        select o.id, nextval('mainspring_stored.seq') as seq
        from (select * from unnest(p_ids) with ordinality as x(id, n) order by x.n) o
    ), moved as (
        update mainspring_stored.jobs j set state = 'ready', due = null, seq = case when j.seq < 0 then -u.seq else u.seq end
        from placed u
        where j.id = any(array[u.id])
        returning j.id, j.queue, j.buckets
    )
    select array_agg(distinct m.queue), array_agg(m.id) filter (where m.buckets is not null) into v_woken, v_limited from moved m;
    if v_limited is not null then
        perform mainspring_stored.add_lane_rows_v1(v_limited, false);
    end if;
    return coalesce(v_woken, '{}');
end
$$;

CREATE FUNCTION mainspring_stored.set_limit_size_v1(p_limit text, p_size bigint) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
begin
    perform mainspring_stored.guard_v1();
    update mainspring_stored.limits l set set_size = p_size where l.name = p_limit;
    return case when found then mainspring_stored.request_rechecks_v1(array[p_limit]) end;
end
$$;

CREATE FUNCTION mainspring_stored.set_queue_mode_v1(p_queues text[], p_mode text, p_now bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    perform pg_advisory_xact_lock(mainspring_stored.queue_modes_lock_v1());
    if p_mode = 'open' then
        update mainspring_stored.queues q set mode = 'open', since = 0 where q.name = any(p_queues);
        perform mainspring_stored.forget_queues_v1(p_queues);
        return;
    end if;
    insert into mainspring_stored.queues (name, mode, since)
    select distinct u.name collate "C", p_mode, mainspring_stored.now_v1(p_now) from unnest(p_queues) as u(name) order by 1
    on conflict (name) do update set mode = excluded.mode, since = excluded.since
    where queues.mode <> excluded.mode;
end
$$;

CREATE FUNCTION mainspring_stored.settle_lane_rows_v1(p_examined bigint[], p_locked text[], p_now bigint) RETURNS mainspring_stored.settled_v1
    LANGUAGE plpgsql
    AS $$
declare
    v_capacities mainspring_stored.capacity_v1[] := mainspring_stored.read_capacities_v1(
        array(
            select distinct b.name from mainspring_stored.read_lane_rows_v1(p_examined) l
            cross join unnest(l.buckets) as b(name) where l.buckets <@ p_locked
        ), p_now
    );
    v_row record;
    v_id bigint[] := '{}';
    v_seq bigint[] := '{}';
    v_on text[] := '{}';
    v_until bigint[] := '{}';
    v_over bigint[] := '{}';
    v_left text[] := '{}';
    v_rate_lanes text[] := '{}';
    v_rate_buckets text[] := '{}';
    v_rate_times bigint[] := '{}';
    v_at integer;
begin
    for v_row in
        select r.* from mainspring_stored.find_first_jobs_v1(p_examined, p_locked, v_capacities, p_now) r order by r.place
    loop
        -- A row behind a row of the same lane that waits for a rate waits with it.
        v_at := array_position(v_rate_lanes, v_row.lane::text);
        if v_at is not null then
            v_row.name := v_rate_buckets[v_at];
            v_row.moment := v_rate_times[v_at];
        elsif v_row.by_rate and v_row.moment is not null and not v_row.again then
            v_rate_lanes := array_append(v_rate_lanes, v_row.lane::text);
            v_rate_buckets := array_append(v_rate_buckets, v_row.name::text);
            v_rate_times := array_append(v_rate_times, v_row.moment);
        end if;
        if v_row.head is null or v_row.again then
            v_over := array_append(v_over, v_row.id);
            v_left := v_left || v_row.buckets;
        elsif v_row.name is not null or v_row.head <> v_row.seq then
            v_id := array_append(v_id, v_row.id);
            v_seq := array_append(v_seq, v_row.head);
            v_on := array_append(v_on, v_row.name);
            v_until := array_append(v_until, v_row.moment);
            if v_row.name is not null then
                v_left := v_left || array_remove(v_row.buckets, v_row.name);
            end if;
        end if;
    end loop;
    update mainspring_stored.keyed_lanes l set seq = u.seq, waits_for = u.name, recheck_at = u.until
    from unnest(v_id, v_seq, v_on, v_until) as u(id, seq, name, until) where l.id = any(array[u.id]);
    if cardinality(v_over) > 0 then
        perform mainspring_stored.delete_empty_lane_rows_v1(v_over);
    end if;
    return row(
        case when cardinality(v_left) > 0 then mainspring_stored.recheck_lanes_v1(v_left, false, p_now) else '{}' end,
        (select min(u.until) from unnest(v_until) as u(until))
    )::mainspring_stored.settled_v1;
end
$$;

CREATE FUNCTION mainspring_stored.smooth_slack_v1(p_limit mainspring_stored.limits) RETURNS bigint
    LANGUAGE sql IMMUTABLE
    AS $$
    select case when p_limit.per % greatest(s.size, 1) = 0 then 0
        else least(greatest(p_limit.burst, 1), mainspring_stored.smooth_time_v1(1, p_limit.per, s.size) - 1) end
    from (select coalesce(p_limit.set_size, p_limit.size) as size) s
$$;

CREATE FUNCTION mainspring_stored.smooth_time_v1(p_cost bigint, p_per bigint, p_size bigint) RETURNS bigint
    LANGUAGE sql IMMUTABLE
    AS $$
    select div(greatest(p_cost, 0)::numeric * p_per + greatest(p_size, 1) - 1, greatest(p_size, 1))::bigint
$$;

CREATE FUNCTION mainspring_stored.store_follow_ups_v1(p_job bytea, p_rows jsonb, p_inner boolean) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    v_hex text := case when p_inner then encode(p_job, 'hex') else 'f0110e4d0000700080001b7c5d2ae9f3' end;
    v_text text := encode(convert_to(v_hex::uuid::text, 'UTF8'), 'hex');
begin
    insert into mainspring_stored.follow_ups (
        job, state, n, id, task, queue, home, priority, delay, run_at, expires_in, crash_limit, early, keep, marks, record,
        followed, follows
    )
    select p_job, f."on", f.n, case when not p_inner then f.own else substring(f.own from 1 for 9)
            || substring(sha256(p_job || f.own) from 1 for 5) || substring(f.own from 9 + 5 + 1)
            end,
        f.task, f.queue, f.home, f.priority, f.delay, f.run_at, f.expires_in, f.crashes, f.early, f.keep,
        array(select replace(m.mark, 'f0110e4d0000700080001b7c5d2ae9f3', v_hex) from unnest(f.marks) with ordinality as m(mark, n) order by m.n),
        decode(replace(f.record, encode(convert_to('f0110e4d-0000-7000-8000-1b7c5d2ae9f3', 'UTF8'), 'hex'), v_text), 'hex'), f.followed, f.follows
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

CREATE FUNCTION mainspring_stored.swap_breakers_v1(p_swaps jsonb, p_now bigint) RETURNS TABLE(breakers text[], woken text[])
    LANGUAGE plpgsql
    AS $$
declare
    v_names text[] := mainspring_stored.list_swapped_v1(p_swaps);
    v_now bigint;
    v_woken text[] := '{}';
begin
    perform mainspring_stored.guard_v1();
    if cardinality(v_names) > 0 then
        perform mainspring_stored.lock_buckets_v1(v_names);
    end if;
    v_now := mainspring_stored.now_v1(p_now);
    if cardinality(v_names) > 0 then
        v_woken := mainspring_stored.swap_rows_v1(p_swaps, v_now);
    end if;
    return query select array(
        select r.breaker from jsonb_array_elements(p_swaps) with ordinality as s(swap, n)
        cross join lateral mainspring_stored.read_breaker_v1(s.swap ->> 'name', v_now) as r(breaker)
        where r.breaker is not null order by s.n
    ), v_woken;
end
$$;

CREATE FUNCTION mainspring_stored.swap_rows_v1(p_swaps jsonb, p_now bigint) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
declare
    v_woken text[];
begin
    insert into mainspring_stored.breakers (name) select s.name
    from jsonb_to_recordset(p_swaps) as s(name text, expected bigint, rev bigint)
    join mainspring_stored.limits l on l.name = s.name and l.kind = 'breaker'
    where s.rev > 0 and s.expected = 0 order by s.name
    on conflict do nothing;
    with swapped as (
        update mainspring_stored.breakers b
        set rev = s.rev, doc = s.doc,
            until = case when s.open_for > 0 then least(p_now + s.open_for, 4503599627370496) else coalesce(s.open_for, b.until) end,
            opened = case when s.open_for > 0 then p_now else coalesce(s.open_for, b.opened) end
        from jsonb_to_recordset(p_swaps) as s(name text, expected bigint, rev bigint, open_for bigint, doc text)
        where b.name = s.name and b.rev = s.expected and s.rev > 0
        returning b.name, s.open_for
    ), waiting as (
        delete from mainspring_stored.waiting_queues w using swapped s where w.bucket = s.name and s.open_for is not null
        returning w.queue
    )
    select array(select t.queue from waiting t) into v_woken;
    return v_woken;
end
$$;

CREATE FUNCTION mainspring_stored.swap_schedule_v1(p_name text, p_rev bigint, p_doc bytea, p_look bigint, p_at bigint[], p_job bytea[], p_run bytea[], p_keep bigint, p_now bigint) RETURNS TABLE(ok boolean, now bigint, rev bigint, taken bigint)
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
    v_row mainspring_stored.schedules;
    v_now bigint;
    v_rev bigint;
    v_taken bigint;
begin
    perform mainspring_stored.guard_v1();
    loop
        select * into v_row from mainspring_stored.schedules s where s.name = p_name for update;
        exit when found or p_rev <> 0 or p_doc is null;
        insert into mainspring_stored.schedules (name, rev) values (p_name, 0) on conflict (name) do nothing;
    end loop;
    -- New statements: they see what the last transaction wrote that locked the row.
    v_now := mainspring_stored.now_v1(p_now);
    v_rev := case when v_row.doc is null then 0 else v_row.rev end;
    v_taken := (
        select u.at from unnest(p_at, p_job) with ordinality as u(at, job, n)
        join mainspring_stored.schedule_runs r on r.schedule = p_name and r.at = u.at
        where r.job <> u.job order by u.n limit 1
    );
    if v_rev <> p_rev or v_taken is not null then
        return query select false, v_now, v_rev, case when v_rev = p_rev then v_taken end;
        return;
    end if;
    v_rev := greatest(v_row.rev + 1, v_now);
    update mainspring_stored.schedules s set rev = v_rev, look = p_look, doc = p_doc where s.name = p_name;
    if p_doc is null then
        delete from mainspring_stored.schedule_runs r where r.schedule = p_name;
        return query select true, v_now, 0::bigint, null::bigint;
        return;
    end if;
    insert into mainspring_stored.schedule_runs (schedule, at, job, doc)
    select p_name, u.at, u.job, u.doc from unnest(p_at, p_job, p_run) as u(at, job, doc)
    on conflict (schedule, at) do update set job = excluded.job, doc = excluded.doc;
    delete from mainspring_stored.schedule_runs r where r.schedule = p_name and r.at <= (
        select o.at from mainspring_stored.schedule_runs o where o.schedule = p_name order by o.at desc offset p_keep limit 1
    );
    return query select true, v_now, v_rev, null::bigint;
end
$$;

CREATE TABLE mainspring_stored.flow_work (
    id bytea NOT NULL,
    work text NOT NULL,
    how text,
    after bytea DEFAULT '\x'::bytea NOT NULL,
    found boolean DEFAULT false NOT NULL,
    at bigint NOT NULL,
    CONSTRAINT flow_work_work_check CHECK ((work = ANY (ARRAY['release'::text, 'cancel'::text, 'delete'::text])))
);

CREATE FUNCTION mainspring_stored.sweep_flow_v1(p_work mainspring_stored.flow_work, p_limit integer, p_now bigint) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
declare
    v_jobs bytea[] := array(
        select m.job from mainspring_stored.marks m
        where m.mark = mainspring_stored.flow_mark_v1(p_work.id) and m.job > p_work.after order by m.job limit p_limit
    );
    v_live bytea[];
    v_ended bytea[] := '{}';
    v_found boolean;
    v_woken text[] := '{}';
begin
    if p_work.work = 'delete' then
        v_ended := mainspring_stored.find_ended_v1(v_jobs);
        v_woken := mainspring_stored.delete_ended_v1(v_ended, p_now);
    end if;
    v_live := array(
        select j.id from mainspring_stored.jobs j where j.id = any(v_jobs) and (j.state || '' <> 'running' or j.ordered is null)
    );
    v_found := p_work.found or cardinality(v_live) + cardinality(v_ended) > 0;
    v_live := array(select j.id from mainspring_stored.jobs j where j.id = any(v_live) order by j.id for update skip locked);
    update mainspring_stored.jobs j set ordered = coalesce(j.ordered, '') where j.id = any(v_live) and j.state || '' = 'running';
    v_woken := v_woken || mainspring_stored.cancel_waiting_v1(v_live, 'parent', null, p_now);
    if cardinality(v_jobs) = p_limit then
        update mainspring_stored.flow_work w set after = v_jobs[p_limit], found = v_found
        where w.id = p_work.id and w.work = p_work.work;
    elsif v_found then
        update mainspring_stored.flow_work w set after = '', found = false where w.id = p_work.id and w.work = p_work.work;
    elsif p_work.work = 'delete'
        and exists (select 1 from mainspring_stored.marks m where m.mark = mainspring_stored.flow_mark_v1(p_work.id)) then
        -- Running jobs have an order.
        update mainspring_stored.flow_work w set after = '', found = false, at = p_now + 1000000
        where w.id = p_work.id and w.work = p_work.work;
    else
        delete from mainspring_stored.flow_work w where w.id = p_work.id and w.work = p_work.work;
    end if;
    return v_woken;
end
$$;

CREATE FUNCTION mainspring_stored.sweep_partition_v1(p_name text, p_after bytea, p_limit integer) RETURNS TABLE(n integer, last bytea)
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
    v_ids bytea[];
    v_gone bytea[];
begin
    execute format(
        'select array(select f.id from mainspring_stored.%I f where f.id > $1 and (f.followed & $3 = 0 or '
        'not exists (select 1 from mainspring_stored.marks m where m.mark = mainspring_stored.flow_mark_v1(f.id))) '
        'order by f.id limit $2)', p_name
    ) into v_ids using p_after, p_limit, 4;
    perform mainspring_stored.lock_keys_of_v1(v_ids, false, null);
    -- A new statement: a job that was retried meanwhile is not here any more.
    execute format(
        'with gone as (delete from mainspring_stored.%I where id = any($1) returning id) select array(select id from gone)', p_name
    ) into v_gone using v_ids;
    perform mainspring_stored.delete_details_v1(v_gone);
    return query select cardinality(v_ids), v_ids[cardinality(v_ids)];
end
$_$;

CREATE FUNCTION mainspring_stored.take_back_jobs_v1(p_worker text, p_cause text, p_delays bigint[], p_now bigint) RETURNS TABLE(id bytea, state text, woken text)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    v_moves mainspring_stored.taken_back_v1[];
    v_woken text[];
begin
    perform 1 from mainspring_stored.jobs j where j.worker = p_worker and j.state = 'running' order by j.id for update;
    v_moves := mainspring_stored.plan_take_back_v1(p_worker, p_cause, p_delays, p_now);
    perform mainspring_stored.record_attempts_v1(array(select f.id from unnest(v_moves) f), null, p_cause, p_now);
    delete from mainspring_stored.bucket_uses where worker = p_worker;
    v_woken := mainspring_stored.place_taken_back_v1(v_moves, null);
    v_woken := v_woken || mainspring_stored.finish_v1(mainspring_stored.list_taken_ends_v1(v_moves, '{}'), p_now);
    return query select null::bytea, null, w.queue from unnest(v_woken) as w(queue);
    return query select f.id, f.state, null from unnest(v_moves) f;
end
$$;

CREATE FUNCTION mainspring_stored.take_keys_v1(p_id bytea[], p_task text[], INOUT p_take boolean[], p_key bytea[], p_window bigint[], p_conflict text[], p_modes jsonb, p_now bigint, OUT answers bytea[], OUT losers bytea[], OUT woken text[]) RETURNS record
    LANGUAGE plpgsql
    AS $$
declare
    v_new record;
    v_now bigint;
    v_holder bytea;
    v_mode jsonb;
begin
    answers := array_fill(null::bytea, array[cardinality(p_id)]);
    losers := '{}';
    if p_modes is not null then
        perform mainspring_stored.lock_latest_keys_v1(p_key);
    end if;
    woken := mainspring_stored.lock_keys_v1(
        array(select k.hash from unnest(p_key) with ordinality as k(hash, n) where k.hash is not null and p_take[k.n]), p_now
    );
    perform mainspring_stored.lock_key_holders_v1(p_key, p_conflict);
    v_now := mainspring_stored.now_v1(p_now);
    for v_new in
        select u.n::integer as at, u.*, row_number() over (partition by u.hash order by u.n) > 1 as again
        from unnest(p_key, p_window, p_conflict) with ordinality as u(hash, span, conflict, n)
        where u.hash is not null and u.conflict is not null and p_take[u.n] order by u.n
    loop
        v_holder := mainspring_stored.find_key_holder_v1(v_new.hash, v_new.again, v_now);
        v_mode := p_modes -> v_new.at::text;
        if v_holder is not null and v_mode is not null then
            perform mainspring_stored.compare_print_v1(v_new.hash, v_mode ->> 'print', p_task[v_new.at], v_holder, p_id[v_new.at]);
        end if;
        if v_holder is not null and v_new.conflict = 'error' then
            raise exception '%', encode(v_holder, 'hex') using errcode = 'MS002', detail = p_task[v_new.at];
        end if;
        if v_holder is not null and v_new.conflict = 'return' then
            p_take[v_new.at] := false;
            answers[v_new.at] := v_holder;
            continue;
        end if;
        if v_holder is not null then
            losers := losers || v_holder;
            if not exists (select 1 from mainspring_stored.jobs j where j.id = v_holder) then
                perform mainspring_stored.resume_pruning_v1(v_holder);
            end if;
        end if;
        update mainspring_stored.keys k
        set job = p_id[v_new.at], until = case when v_new.span > 0 then v_now + v_new.span else 0 end,
            mode = case when v_mode is null then '' else 'keep' end, span = coalesce((v_mode ->> 'keep')::bigint, 0),
            print = decode(v_mode ->> 'print', 'hex')
        where k.hash = v_new.hash;
    end loop;
end
$$;

CREATE FUNCTION mainspring_stored.take_latest_key_v1(p_key mainspring_stored.keys, p_live bytea, p_id bytea, p_mode text, p_window bigint, p_now bigint, OUT parent bytea, OUT due bigint) RETURNS record
    LANGUAGE plpgsql
    AS $$
declare
    v_previous bytea;
begin
    if p_mode = 'debounce' then
        due := p_now + p_window;
    elsif p_mode = 'keep_last' then
        v_previous := (select j.id from mainspring_stored.jobs j where j.id = coalesce(p_live, p_key.previous));
        parent := v_previous;
    else
        select s.id, case when s.started > p_now then p_now else s.started end + p_window into v_previous, due
        from mainspring_stored.find_starts_v1(array[p_key.job, p_key.previous]) s order by s.id = p_key.job desc limit 1;
    end if;
    update mainspring_stored.keys k
    set job = p_id, until = 0, mode = p_mode, previous = v_previous, replaced_by = null, print = null,
        span = case when p_mode = 'throttle' then p_window else 0 end
    where k.hash = p_key.hash;
end
$$;

CREATE FUNCTION mainspring_stored.take_out_waiting_v1(p_job mainspring_stored.jobs, p_key mainspring_stored.keys, p_by bytea, p_mode text, p_window bigint, p_max_wait bigint, p_now bigint, OUT parent bytea, OUT due bigint) RETURNS record
    LANGUAGE plpgsql
    AS $$
begin
    delete from mainspring_stored.jobs j where j.id = p_job.id;
    delete from mainspring_stored.edges e where e.child = p_job.id;
    delete from mainspring_stored.marks m where m.job = p_job.id;
    delete from mainspring_stored.follow_ups f where f.job = p_job.id;
    update mainspring_stored.keys k
    set replaced_by = p_by, span = case when p_mode = 'throttle' then p_window else 0 end
    where k.hash = p_key.hash;
    parent := case when p_job.deps > 0 then p_key.previous end;
    due := case p_mode
        when 'debounce' then least(p_now + p_window, p_job.enqueued + nullif(p_max_wait, 0))
        when 'throttle' then coalesce(p_job.due, p_now)
    end;
end
$$;

CREATE FUNCTION mainspring_stored.take_reservations_v1(p_names text[], p_now bigint) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
declare
    v_reserved jsonb;
begin
    with gone as (
        delete from mainspring_stored.holders g where g.holder = 'next' and g.bucket = any(p_names) returning g.bucket, g.until
    )
    select jsonb_object_agg(g.bucket, g.until) into v_reserved from gone g where g.until > p_now;
    return coalesce(v_reserved, '{}');
end
$$;

CREATE FUNCTION mainspring_stored.take_share_v1(p_names text[], p_worker text) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    v_first integer := hashtext(p_worker) & (16 - 1);
    v_name text;
    v_taken boolean;
begin
    foreach v_name in array p_names loop
        for v_n in 0 .. 16 - 1 loop
            v_taken := pg_try_advisory_xact_lock(
                hashtextextended('mainspring_stored unkeyed ' || v_name, 1 + ((v_first + v_n) & (16 - 1)))
            );
            exit when v_taken;
        end loop;
        if not v_taken then
            perform pg_advisory_xact_lock(hashtextextended('mainspring_stored unkeyed ' || v_name, 1 + v_first));
        end if;
    end loop;
end
$$;

CREATE FUNCTION mainspring_stored.try_lock_buckets_v1(p_names text[]) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
declare
    v_names text[] := array(
        select u.name from unnest(p_names) as u(name)
        where case when strpos(u.name, '=') > 0 then true else pg_try_advisory_xact_lock(mainspring_stored.unkeyed_lock_v1(u.name)) end
    );
begin
    if cardinality(v_names) = 0 then
        return '{}';
    end if;
    perform mainspring_stored.add_buckets_v1(v_names, false);
    return array(select b.name from mainspring_stored.buckets b where b.name = any(v_names) order by b.name for update skip locked);
end
$$;

CREATE FUNCTION mainspring_stored.turn_v1(p_worker text, p_number bigint, p_seen bigint, p_now bigint, p_suspects integer, p_done bytea[], p_token bigint[], p_result bytea[], p_error bytea[], p_ran bigint[], p_acks mainspring_stored.ack_v1[], p_want integer[], p_lane text[], p_n integer[], p_ahead boolean[], p_held bytea[], p_held_token bigint[], p_inline integer, p_max_bytes bigint, p_low_lane text[] DEFAULT '{}'::text[], p_low_priority integer[] DEFAULT '{}'::integer[], p_low_seq bigint[] DEFAULT '{}'::bigint[], p_breakers jsonb DEFAULT NULL::jsonb) RETURNS TABLE(kind text, id bytea, token bigint, task text, queue text, lane text, priority integer, attempt integer, epoch integer, crashes integer, early boolean, enqueued bigint, expires bigint, record bytea, turn bigint, note text)
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
    v_freed text[] := '{}';
    v_locked text[] := '{}';
    v_locks mainspring_stored.limit_locks_v1 := row('{}', '{}', '{}', '{}', '{}', '{}', 0);
    v_every mainspring_stored.lane_v1[];
    v_found mainspring_stored.lane_v1[];
    v_passed boolean := false;
    v_rechecked bigint[] := '{}';
    v_limited boolean := false;
    v_spent boolean := false;
    v_pick mainspring_stored.picked_v1;
    v_settled mainspring_stored.settled_v1;
    v_more boolean := false;
    v_next bigint;
    v_held_back mainspring_stored.held_back_v1;
    v_held text[] := '{}';
    v_moved mainspring_stored.moved_v1;
    v_ended mainspring_stored.parent_end_v1[] := '{}';
    v_woken text[] := '{}';
    v_breaker_woken text[] := '{}';
    v_acks mainspring_stored.ack_v1[] := p_acks;
    v_suspects integer := p_suspects;
    v_lanes mainspring_stored.lane_v1[] := '{}';
    v_suspect boolean;
    v_subset mainspring_stored.lane_v1[];
    v_only mainspring_stored.lane_v1;
    v_before bigint;
    v_started text[] := '{}';
    v_starts bigint := 0;
    v_own integer;
    v_left integer := 0;
    v_surplus integer := 0;
    v_behind integer;
    v_most integer;
    v_taken integer;
    v_bytes_left bigint := p_max_bytes;
    v_low integer;
    v_last bigint := coalesce(pg_sequence_last_value('mainspring_stored.seq'::regclass), 0);
    v_walked bigint := mainspring_stored.count_walked_v1();
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
        raise exception 'turn % of worker % comes after turn %', p_number, p_worker, v_worker.turn
            using errcode = 'MS001';
    end if;
    v_repeat := p_number = v_worker.turn;
    if cardinality(p_done) + cardinality(p_acks) > 0 then
        perform mainspring_stored.follow_clock_v1(v_now);
    end if;

    if not v_repeat and cardinality(p_lane) > 0 then
        -- A pause waits for the turns that have read the modes already: no turn claims after the pause was confirmed.
        perform pg_advisory_xact_lock_shared(mainspring_stored.queue_modes_lock_v1());
        v_open := array(
            select not exists (select 1 from mainspring_stored.queues q where q.name = split_part(u.lane, '/', 1) and q.stopped)
            from unnest(p_lane) with ordinality as u(lane, n) order by u.n
        );
        v_lanes := mainspring_stored.find_lanes_v1(
            array(select u.lane from unnest(p_lane, v_open) as u(lane, free) where u.free), v_worker.tasks, p_low_lane
        );
        v_limited := exists (select 1 from unnest(v_lanes) l where l.buckets is not null);
    end if;
    if v_worker.limited and cardinality(p_done) + cardinality(p_acks) > 0 then
        v_freed := mainspring_stored.list_acked_buckets_v1(p_worker, p_done, p_acks);
    end if;
    if p_breakers is not null then
        v_freed := v_freed || mainspring_stored.list_swapped_v1(p_breakers);
    end if;
    v_found := v_lanes;
    if v_limited or cardinality(v_freed) > 0 then
        v_locks := mainspring_stored.lock_limits_v1(v_lanes, v_freed, p_n, p_ahead, p_acks, p_worker, v_now, p_now);
        if cardinality(v_locks.lanes) < cardinality(v_lanes) then
            v_lanes := v_locks.lanes;
            v_limited := exists (select 1 from unnest(v_lanes) l where l.buckets is not null);
        end if;
        v_locked := v_locks.exclusive;
        v_now := v_locks.now;
    end if;
    v_every := v_lanes;
    v_walked := mainspring_stored.count_walked_v1() - v_walked;
    if p_breakers is not null then
        v_breaker_woken := mainspring_stored.swap_rows_v1(p_breakers, v_now);
        -- Their capacity was read before: a breaker may have opened now.
        v_locks.plentiful := array(
            select u.name from unnest(v_locks.plentiful) as u(name)
            where u.name <> all(mainspring_stored.list_swapped_v1(p_breakers))
        );
    end if;
    if cardinality(p_done) > 0 then
        v_moved := mainspring_stored.ack_successes_v1(
            p_worker, p_done, p_token, p_result, p_error, p_ran, v_worker.limited, v_now
        );
        if v_moved.parents then
            v_ended := array(select row(u.id, 'succeeded')::mainspring_stored.parent_end_v1 from unnest(v_moved.done) as u(id));
        end if;
        if cardinality(v_moved.done) < cardinality(p_done) then
            v_acks := p_acks || mainspring_stored.list_unmoved_acks_v1(v_moved, p_done, p_token, p_result, p_error, p_ran);
        end if;
    end if;
    if cardinality(v_acks) > 0 then
        return query select a.kind, a.id, a.token, null, a.queue, null, null::integer, null::integer, null::integer,
            null::integer, null::boolean, null::bigint, null::bigint, null::bytea, null::bigint, null
        from mainspring_stored.apply_acks_v1(p_worker, v_acks, v_now, v_ended) a;
    elsif cardinality(v_ended) > 0 then
        v_woken := mainspring_stored.resolve_dependents_v1(v_ended, null, v_now);
    end if;
    if cardinality(v_freed) > 0 then
        v_spent := exists (select 1 from unnest(p_acks) a where a.spent is not null or a.buckets is not null);
        v_rechecked := mainspring_stored.recheck_lanes_v1(v_freed, v_spent, v_now);
    end if;
    if p_held is not null then
        return query select 'gone', h.id, h.token, null, null, null, null::integer, null::integer, null::integer,
            null::integer, null::boolean, null::bigint, null::bigint, null::bytea, null::bigint, null
        from mainspring_stored.find_gone_v1(p_worker, p_held, p_held_token) h
        where not exists (select 1 from unnest(p_acks) a where a.id = h.id and a.token = h.token)
            and not exists (select 1 from unnest(p_done, p_token) as d(id, token) where d.id = h.id and d.token = h.token);
    end if;

    if v_repeat or p_seen < v_worker.turn then
        return query select t.* from mainspring_stored.repeat_claims_v1(p_worker, least(p_seen, p_number - 1), p_held, p_held_token,
            p_inline) t;
    end if;
    v_walked := mainspring_stored.count_walked_v1() - v_walked; -- what the acks did in the index does not count
    if v_repeat then
        v_bytes_left := p_max_bytes - mainspring_stored.count_claimed_bytes_v1(p_worker, p_number);
    else
        for v_want in 1 .. cardinality(p_n) loop
            -- A want without lanes is a want ahead, in the lanes of the want before. It gets nothing if that got too few.
            v_own := case when v_want = any(p_want) then v_want else v_own end;
            continue when v_own < v_want and v_left > 0;
            v_left := p_n[v_want] - v_surplus;
            v_surplus := 0;
            v_behind := case when v_want + 1 = any(p_want) then 0 else coalesce(p_n[v_want + 1], 0) end;
            continue when v_left <= 0;
            if v_want > 1 then
                v_bytes_left := p_max_bytes - mainspring_stored.count_claimed_bytes_v1(p_worker, p_number);
                exit when v_bytes_left <= 0;
            end if;
            if cardinality(v_acks) > 0 or cardinality(v_woken) > 0 or cardinality(v_rechecked) > 0 then
                v_lanes := mainspring_stored.find_lanes_v1(
                    array(
                        select u.lane from unnest(p_want, p_lane, v_open) as u(want, lane, free)
                        where u.want = v_own and u.free
                    ), v_worker.tasks, p_low_lane
                );
                v_limited := v_limited or exists (select 1 from unnest(v_lanes) l where l.buckets is not null);
            elsif p_want[cardinality(p_want)] > 1 then
                v_lanes := array(
                    select l from unnest(v_every) l where exists (
                        select 1 from unnest(p_want, p_lane, v_open) as u(want, lane, free)
                        where u.want = v_own and u.free and l.lane collate "C" >= u.lane and l.lane collate "C" < u.lane || '@'
                    )
                );
            end if;
            if p_ahead[v_want] then
                v_lanes := mainspring_stored.claimable_ahead_v1(v_lanes, v_locks.ahead);
            end if;
            if cardinality(p_low_lane) > 0 then
                v_low := case when cardinality(v_lanes) = 0 then v_left else (v_left + p_number % 2) / 2 end;
                return query select t.* from mainspring_stored.claim_above_v1(
                    array(
                        select distinct u.lane from unnest(p_want, p_lane, v_open) as u(want, lane, free)
                        where u.want = v_own and u.free and u.lane = any(p_low_lane)
                    ), v_low, p_worker, p_number, p_now, p_low_lane, p_low_priority, p_low_seq, p_inline, p_max_bytes
                ) t;
                get diagnostics v_low = row_count;
                v_left := v_left - v_low;
                continue when v_left <= 0;
                v_bytes_left := p_max_bytes - mainspring_stored.count_claimed_bytes_v1(p_worker, p_number);
                exit when v_bytes_left <= 0;
            end if;
            continue when cardinality(v_lanes) = 0;
            v_only := v_lanes[1];
            if cardinality(v_lanes) = 1 and not v_only.suspect and coalesce(v_only.buckets <@ v_locks.plentiful, true) then
                v_before := mainspring_stored.find_other_key_v1(v_only.lane, v_only.priority);
                return query select t.* from mainspring_stored.claim_lane_v1(
                    v_only.lane, v_only.priority, v_only.seq, v_before, v_left + v_behind, p_worker, p_number, p_now,
                        p_inline, v_bytes_left
                ) t;
                get diagnostics v_taken = row_count;
                if v_taken > 0 and v_only.buckets is not null then
                    if v_starts > 0 and v_started <> v_only.buckets then
                        perform mainspring_stored.record_lane_starts_v1(p_worker, v_started, v_starts, mainspring_stored.now_v1(p_now));
                        v_starts := 0;
                    end if;
                    v_started := v_only.buckets;
                    v_starts := v_starts + v_taken;
                end if;
                v_surplus := greatest(v_taken - v_left, 0);
                v_left := greatest(v_left - v_taken, 0);
                continue when v_left = 0;
                v_bytes_left := p_max_bytes - mainspring_stored.count_claimed_bytes_v1(p_worker, p_number);
                exit when v_bytes_left <= 0;
                continue when v_only.buckets is null and v_before is null;
            end if;
            if v_starts > 0 then
                perform mainspring_stored.record_lane_starts_v1(p_worker, v_started, v_starts, mainspring_stored.now_v1(p_now));
                v_starts := 0;
            end if;
            foreach v_suspect in array array[true, false] loop
                continue when v_suspect and (v_suspects <= 0 or not exists (select 1 from unnest(v_lanes) l where l.suspect));
                v_subset := array(select l from unnest(v_lanes) l where l.suspect = v_suspect);
                v_most := case when v_suspect then least(v_left, v_suspects) else v_left end;
                if exists (select 1 from unnest(v_subset) l where l.buckets is not null) then
                    v_pick := mainspring_stored.pick_limited_v1(
                        v_subset, v_most, p_ahead[v_want], v_locked, v_locks.shared, v_locks.skipped, v_now
                    );
                else
                    v_pick := row(mainspring_stored.pick_v1(v_subset, v_most, v_now), '{}', v_locked, false);
                end if;
                return query select t.* from mainspring_stored.claim_jobs_v1(v_pick.ids, p_worker, p_number, p_now,
                    p_inline, v_bytes_left) t;
                get diagnostics v_taken = row_count;
                v_locked := v_pick.locked;
                v_settled := row('{}', null);
                if cardinality(v_pick.examined) > 0 then
                    v_settled := mainspring_stored.settle_lane_rows_v1(v_pick.examined, v_locked, v_now);
                    v_rechecked := v_rechecked || v_settled.rechecked;
                    v_next := least(v_next, v_settled.next_at);
                end if;
                if v_taken < v_most and v_limited then
                    v_more := v_more or v_pick.more or cardinality(v_settled.rechecked) > 0;
                    v_held_back := mainspring_stored.note_held_back_v1(v_subset, v_locked, v_now);
                    v_held := v_held || v_held_back.queues;
                    v_next := least(v_next, v_held_back.next_at);
                end if;
                v_left := v_left - v_taken;
                if v_suspect then
                    v_suspects := v_suspects - v_taken;
                    v_bytes_left := p_max_bytes - mainspring_stored.count_claimed_bytes_v1(p_worker, p_number);
                elsif v_taken < cardinality(v_pick.ids) then
                    v_bytes_left := 0;
                end if;
                exit when v_bytes_left <= 0 or v_left <= 0;
            end loop;
            exit when v_bytes_left <= 0;
        end loop;
        if v_starts > 0 then
            perform mainspring_stored.record_lane_starts_v1(p_worker, v_started, v_starts, mainspring_stored.now_v1(p_now));
        end if;
        if true = any(p_ahead)
            and cardinality(mainspring_stored.claimable_ahead_v1(v_found, v_locks.plentiful)) < cardinality(v_found)
        then
            v_passed := mainspring_stored.passes_over_v1(v_found, (select sum(n) from unnest(p_n) n), p_worker, p_number, v_now);
        end if;
        if cardinality(v_every) + cardinality(p_low_lane) + cardinality(p_done) + cardinality(p_acks) = 0
            and p_breakers is null
        then -- Only the number is written. If it is lost, nothing was claimed in this turn, and the next number is greater.
            perform set_config('synchronous_commit', 'off', true);
        end if;
        update mainspring_stored.workers w
        set turn = p_number, seen = v_now,
            limited = (v_worker.limited or v_limited) and exists (select 1 from mainspring_stored.bucket_uses u where u.worker = p_worker)
        where w.id = p_worker;
        if cardinality(p_low_lane) > 0 or not v_limited and mainspring_stored.count_walked_v1() - v_walked > 2000 + 10 * p_n[1] then
            return query select 'low', null::bytea, l.seq, null, null, l.lane, l.priority, null::integer, null::integer,
                null::integer, null::boolean, null::bigint, null::bigint, null::bytea, null::bigint, null
            from mainspring_stored.find_low_marks_v1(
                p_worker, p_number, array(select u.lane from unnest(p_lane, v_open) as u(lane, free) where u.free),
                p_low_lane, p_low_priority, v_last, case when v_bytes_left > 0 then (select sum(n) from unnest(p_n) n) else 0 end
            ) l;
        end if;
    end if;
    if cardinality(v_freed) > 0 or cardinality(v_rechecked) > 0 then
        v_woken := v_woken || v_breaker_woken || mainspring_stored.list_wakeups_v1(v_freed, v_rechecked, v_spent, v_now);
    end if;
    if cardinality(v_woken) > 0 then
        return query select t.* from unnest(v_woken) as w(queue) cross join mainspring_stored.reply_row_v1('woken', w.queue, null) t;
    end if;
    if v_bytes_left <= 0 or v_more then
        kind := 'more';
        return next;
    end if;
    if v_passed then
        kind := 'passed';
        return next;
    end if;
    if cardinality(v_held) > 0 then
        return query select distinct t.* from unnest(v_held) as h(queue)
            cross join mainspring_stored.reply_row_v1('held', h.queue, null) t;
    end if;
    if p_breakers is not null then
        return query select t.* from jsonb_to_recordset(p_breakers) as s(name text)
        cross join lateral mainspring_stored.read_breaker_v1(s.name, v_now) as r(breaker)
        cross join lateral mainspring_stored.reply_row_v1('breaker', null, r.breaker) t where r.breaker is not null;
    end if;
    if v_next is not null then
        kind := 'next';
        token := v_next;
        return next;
    end if;
    return query select 'order', j.id, j.token, null, null, null, null::integer, null::integer, null::integer,
        null::integer, null::boolean, null::bigint, null::bigint, null::bytea, null::bigint, j.ordered
    from mainspring_stored.jobs j where j.worker = p_worker and j.ordered is not null and j.state || '' = 'running';
end
$$;

CREATE FUNCTION mainspring_stored.unkeyed_lock_v1(p_name text) RETURNS bigint
    LANGUAGE sql IMMUTABLE
    AS $$
    select hashtextextended('mainspring_stored unkeyed ' || p_name, 0)
$$;

CREATE FUNCTION mainspring_stored.wait_for_parents_v1(p_id bytea[], p_take boolean[], p_child_at integer[], p_parent bytea[], p_parent_at integer[], p_policy text[], p_join_at integer[]) RETURNS mainspring_stored.waits_v1
    LANGUAGE plpgsql
    AS $$
declare
    v_judged mainspring_stored.judged_edge_v1[] := '{}';
    v_waits mainspring_stored.waits_v1;
begin
    if cardinality(p_child_at) > 0 then
        perform 1 from mainspring_stored.jobs j where j.id = any(p_parent) order by j.id for key share;
        if 'wait' = any(p_policy) then
            perform 1 from mainspring_stored.dead d where d.id = any(p_parent) order by d.id for key share;
            perform 1 from mainspring_stored.jobs j where j.id = any(p_parent) order by j.id for key share;
        end if;
        -- A new statement: a parent whose end was waited for is found in the table where it went.
        perform mainspring_stored.refuse_missing_parents_v1(p_id, p_take, p_child_at, p_parent, p_parent_at);
        v_judged := mainspring_stored.judge_parents_v1(p_take, p_child_at, p_parent, p_parent_at, p_policy);
    end if;
    with children as materialized (
        select e.at, count(*) filter (where e.effect = 'stays')::integer as n,
            max(e.effect) filter (where e.effect <> 'stays') as reason
        from unnest(v_judged) e group by e.at
    )
    select array(
            select sum(w.n)::integer from (
                select s.at, 0 as n from generate_subscripts(p_id, 1) as s(at)
                union all
                select c.at, greatest(c.n, (c.reason is not null)::integer) from children c
                union all
                select u.at, 1 from unnest(p_join_at) as u(at)
            ) w group by w.at order by w.at
        ), array(select p_id[c.at] from children c where c.reason = 'parent'),
        array(select p_id[c.at] from children c where c.reason = 'bypassed'),
        array(select e.at from unnest(v_judged) e where e.effect = 'stays'),
        array(select e.parent from unnest(v_judged) e where e.effect = 'stays'),
        array(select e.policy from unnest(v_judged) e where e.effect = 'stays')
    into v_waits;
    return v_waits;
end
$$;

CREATE FUNCTION mainspring_stored.waits_for_rate_v1(p_row mainspring_stored.keyed_lanes) RETURNS boolean
    LANGUAGE plpgsql STABLE
    AS $$
begin
    return p_row.recheck_at is not null and exists (
        select 1 from mainspring_stored.limits k
        where k.name = any(array[split_part(p_row.waits_for, '=', 1)]) and k.kind in ('rate', 'smooth')
    );
end
$$;

CREATE FUNCTION mainspring_stored.zero_costs_v1(p_names text[]) RETURNS jsonb
    LANGUAGE sql IMMUTABLE
    AS $$
    select jsonb_object_agg(split_part(b.name, '=', 1), 0) from unnest(p_names) as b(name)
$$;

CREATE TABLE mainspring_stored.attempts (
    job bytea NOT NULL,
    token bigint NOT NULL,
    epoch integer NOT NULL,
    attempt integer NOT NULL,
    worker text NOT NULL,
    started bigint NOT NULL,
    ended bigint NOT NULL,
    ran bigint,
    outcome text NOT NULL,
    acked boolean NOT NULL,
    error bytea
);

CREATE TABLE mainspring_stored.breakers (
    name text NOT NULL COLLATE pg_catalog."C",
    rev bigint DEFAULT 0 NOT NULL,
    until bigint DEFAULT 0 NOT NULL,
    opened bigint DEFAULT 0 NOT NULL,
    doc text DEFAULT ''::text NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE mainspring_stored.bucket_uses (
    bucket text NOT NULL COLLATE pg_catalog."C",
    worker text NOT NULL,
    n bigint NOT NULL,
    CONSTRAINT bucket_uses_n_check CHECK ((n > 0))
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
    followed smallint CONSTRAINT finished_followed_not_null NOT NULL,
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
    ran bigint,
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
    costs bigint[],
    CONSTRAINT dead_check CHECK (((state = 'dead'::text) AND (reason IS NOT NULL)))
);

CREATE TABLE mainspring_stored.documents (
    kind text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    version bigint NOT NULL,
    data bytea NOT NULL
);

CREATE TABLE mainspring_stored.edges (
    parent bytea NOT NULL,
    child bytea NOT NULL,
    policy text NOT NULL,
    CONSTRAINT edges_policy_check CHECK ((policy = ANY (ARRAY['fail'::text, 'ignore'::text, 'skip'::text, 'wait'::text, 'failed'::text, 'dead'::text, 'member'::text, 'hold'::text])))
);

CREATE TABLE mainspring_stored.fair_clocks (
    queue text NOT NULL COLLATE pg_catalog."C",
    priority integer NOT NULL,
    vtime double precision NOT NULL
)
WITH (fillfactor='50');

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
    followed smallint NOT NULL,
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
    ran bigint,
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
    costs bigint[],
    CONSTRAINT finished_check CHECK (((state = 'cancelled'::text) = (reason IS NOT NULL))),
    CONSTRAINT finished_state_check CHECK ((state = ANY (ARRAY['succeeded'::text, 'cancelled'::text])))
)
PARTITION BY RANGE (finished);

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
    followed smallint CONSTRAINT finished_followed_not_null NOT NULL,
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
    ran bigint,
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
    costs bigint[],
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
    followed smallint CONSTRAINT finished_followed_not_null NOT NULL,
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
    ran bigint,
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
    costs bigint[],
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
    followed smallint CONSTRAINT finished_followed_not_null NOT NULL,
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
    ran bigint,
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
    costs bigint[],
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
    followed smallint CONSTRAINT finished_followed_not_null NOT NULL,
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
    ran bigint,
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
    costs bigint[],
    CONSTRAINT finished_check CHECK (((state = 'cancelled'::text) = (reason IS NOT NULL))),
    CONSTRAINT finished_state_check CHECK ((state = ANY (ARRAY['succeeded'::text, 'cancelled'::text])))
);

CREATE TABLE mainspring_stored.finished_20261124 (
    seq bigint CONSTRAINT finished_seq_not_null NOT NULL,
    token bigint CONSTRAINT finished_token_not_null NOT NULL,
    enqueued bigint CONSTRAINT finished_enqueued_not_null NOT NULL,
    finished bigint CONSTRAINT finished_finished_not_null NOT NULL,
    priority integer CONSTRAINT finished_priority_not_null NOT NULL,
    attempt integer CONSTRAINT finished_attempt_not_null NOT NULL,
    epoch integer CONSTRAINT finished_epoch_not_null NOT NULL,
    crashes integer CONSTRAINT finished_crashes_not_null NOT NULL,
    crash_limit integer CONSTRAINT finished_crash_limit_not_null NOT NULL,
    followed smallint CONSTRAINT finished_followed_not_null NOT NULL,
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
    ran bigint,
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
    costs bigint[],
    CONSTRAINT finished_check CHECK (((state = 'cancelled'::text) = (reason IS NOT NULL))),
    CONSTRAINT finished_state_check CHECK ((state = ANY (ARRAY['succeeded'::text, 'cancelled'::text])))
);

CREATE TABLE mainspring_stored.finished_20261125 (
    seq bigint CONSTRAINT finished_seq_not_null NOT NULL,
    token bigint CONSTRAINT finished_token_not_null NOT NULL,
    enqueued bigint CONSTRAINT finished_enqueued_not_null NOT NULL,
    finished bigint CONSTRAINT finished_finished_not_null NOT NULL,
    priority integer CONSTRAINT finished_priority_not_null NOT NULL,
    attempt integer CONSTRAINT finished_attempt_not_null NOT NULL,
    epoch integer CONSTRAINT finished_epoch_not_null NOT NULL,
    crashes integer CONSTRAINT finished_crashes_not_null NOT NULL,
    crash_limit integer CONSTRAINT finished_crash_limit_not_null NOT NULL,
    followed smallint CONSTRAINT finished_followed_not_null NOT NULL,
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
    ran bigint,
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
    costs bigint[],
    CONSTRAINT finished_check CHECK (((state = 'cancelled'::text) = (reason IS NOT NULL))),
    CONSTRAINT finished_state_check CHECK ((state = ANY (ARRAY['succeeded'::text, 'cancelled'::text])))
);

CREATE TABLE mainspring_stored.finished_20261126 (
    seq bigint CONSTRAINT finished_seq_not_null NOT NULL,
    token bigint CONSTRAINT finished_token_not_null NOT NULL,
    enqueued bigint CONSTRAINT finished_enqueued_not_null NOT NULL,
    finished bigint CONSTRAINT finished_finished_not_null NOT NULL,
    priority integer CONSTRAINT finished_priority_not_null NOT NULL,
    attempt integer CONSTRAINT finished_attempt_not_null NOT NULL,
    epoch integer CONSTRAINT finished_epoch_not_null NOT NULL,
    crashes integer CONSTRAINT finished_crashes_not_null NOT NULL,
    crash_limit integer CONSTRAINT finished_crash_limit_not_null NOT NULL,
    followed smallint CONSTRAINT finished_followed_not_null NOT NULL,
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
    ran bigint,
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
    costs bigint[],
    CONSTRAINT finished_check CHECK (((state = 'cancelled'::text) = (reason IS NOT NULL))),
    CONSTRAINT finished_state_check CHECK ((state = ANY (ARRAY['succeeded'::text, 'cancelled'::text])))
);

CREATE TABLE mainspring_stored.finished_20261127 (
    seq bigint CONSTRAINT finished_seq_not_null NOT NULL,
    token bigint CONSTRAINT finished_token_not_null NOT NULL,
    enqueued bigint CONSTRAINT finished_enqueued_not_null NOT NULL,
    finished bigint CONSTRAINT finished_finished_not_null NOT NULL,
    priority integer CONSTRAINT finished_priority_not_null NOT NULL,
    attempt integer CONSTRAINT finished_attempt_not_null NOT NULL,
    epoch integer CONSTRAINT finished_epoch_not_null NOT NULL,
    crashes integer CONSTRAINT finished_crashes_not_null NOT NULL,
    crash_limit integer CONSTRAINT finished_crash_limit_not_null NOT NULL,
    followed smallint CONSTRAINT finished_followed_not_null NOT NULL,
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
    ran bigint,
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
    costs bigint[],
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
    followed smallint CONSTRAINT finished_followed_not_null NOT NULL,
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
    ran bigint,
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
    costs bigint[],
    CONSTRAINT finished_check CHECK (((state = 'cancelled'::text) = (reason IS NOT NULL))),
    CONSTRAINT finished_state_check CHECK ((state = ANY (ARRAY['succeeded'::text, 'cancelled'::text])))
);

CREATE TABLE mainspring_stored.follow_ups (
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
    followed smallint NOT NULL,
    follows jsonb,
    CONSTRAINT follow_ups_id_check CHECK ((length(id) = 16)),
    CONSTRAINT follow_ups_state_check CHECK ((state = ANY (ARRAY['succeeded'::text, 'dead'::text, 'cancelled'::text])))
);

CREATE TABLE mainspring_stored.holder_tokens (
    bucket text NOT NULL COLLATE pg_catalog."C",
    token bigint NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE mainspring_stored.holders (
    holder bytea NOT NULL,
    bucket text NOT NULL COLLATE pg_catalog."C",
    cost bigint NOT NULL,
    until bigint NOT NULL,
    token bigint DEFAULT 0 NOT NULL,
    since bigint DEFAULT 0 NOT NULL,
    info bytea DEFAULT '\x'::bytea NOT NULL
);

CREATE TABLE mainspring_stored.items (
    job bytea NOT NULL,
    n bigint NOT NULL,
    data bytea NOT NULL
);

CREATE TABLE mainspring_stored.joins (
    total bigint DEFAULT 0 NOT NULL,
    succeeded bigint DEFAULT 0 NOT NULL,
    dead bigint DEFAULT 0 NOT NULL,
    cancelled bigint DEFAULT 0 NOT NULL,
    bypassed bigint DEFAULT 0 NOT NULL,
    last_end bigint DEFAULT 0 NOT NULL,
    open boolean NOT NULL,
    lenient boolean NOT NULL,
    pruning boolean DEFAULT false NOT NULL,
    id bytea NOT NULL
)
WITH (fillfactor='50');

ALTER TABLE mainspring_stored.keyed_lanes ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME mainspring_stored.keyed_lanes_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE mainspring_stored.leads (
    service text NOT NULL,
    worker text NOT NULL,
    until bigint NOT NULL,
    fleet bigint NOT NULL
)
WITH (fillfactor='50');

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
    id uuid NOT NULL,
    clock bigint DEFAULT 0 NOT NULL
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
    disabled text,
    disabled_at bigint DEFAULT 0 NOT NULL,
    disabled_by text DEFAULT ''::text NOT NULL,
    declared jsonb,
    given jsonb,
    settings jsonb GENERATED ALWAYS AS (
CASE
    WHEN ((declared IS NOT NULL) OR (given IS NOT NULL)) THEN (COALESCE(declared, '{}'::jsonb) || COALESCE(given, '{}'::jsonb))
    ELSE NULL::jsonb
END) STORED,
    stopped boolean GENERATED ALWAYS AS (((mode = 'paused'::text) OR (disabled IS NOT NULL))) STORED,
    special boolean GENERATED ALWAYS AS (((mode = 'draining'::text) OR (COALESCE(disabled, 'hold'::text) <> 'hold'::text) OR (declared IS NOT NULL) OR (given IS NOT NULL))) STORED,
    bounded boolean GENERATED ALWAYS AS ((COALESCE(((given ->> 'max_depth'::text))::bigint, ((declared ->> 'max_depth'::text))::bigint, (0)::bigint) > 0)) STORED,
    CONSTRAINT queues_disabled_check CHECK ((disabled = ANY (ARRAY['hold'::text, 'skip'::text, 'reject'::text]))),
    CONSTRAINT queues_mode_check CHECK ((mode = ANY (ARRAY['open'::text, 'paused'::text, 'draining'::text])))
);

CREATE TABLE mainspring_stored.rate_starts (
    bucket text NOT NULL COLLATE pg_catalog."C",
    worker text NOT NULL,
    first bigint NOT NULL,
    last bigint NOT NULL,
    n bigint NOT NULL
)
WITH (fillfactor='70');

CREATE TABLE mainspring_stored.rechecks (
    name text NOT NULL COLLATE pg_catalog."C",
    bucket text NOT NULL COLLATE pg_catalog."C"
);

CREATE TABLE mainspring_stored.retried_batches (
    batch bytea NOT NULL,
    at bigint NOT NULL
);

CREATE TABLE mainspring_stored.schedule_runs (
    schedule text NOT NULL COLLATE pg_catalog."C",
    at bigint NOT NULL,
    job bytea,
    doc bytea NOT NULL
);

CREATE TABLE mainspring_stored.schedules (
    name text NOT NULL COLLATE pg_catalog."C",
    rev bigint NOT NULL,
    look bigint,
    doc bytea,
    CONSTRAINT schedules_check CHECK (((doc IS NOT NULL) OR (look IS NULL)))
)
WITH (fillfactor='70');

CREATE TABLE mainspring_stored.schema_version (
    version integer NOT NULL
);

CREATE SEQUENCE mainspring_stored.seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

CREATE TABLE mainspring_stored.waiting_queues (
    bucket text NOT NULL COLLATE pg_catalog."C",
    queue text NOT NULL
);

ALTER TABLE ONLY mainspring_stored.finished ATTACH PARTITION mainspring_stored.finished_20261120 FOR VALUES FROM ('1795132800000000') TO ('1795219200000000');

ALTER TABLE ONLY mainspring_stored.finished ATTACH PARTITION mainspring_stored.finished_20261121 FOR VALUES FROM ('1795219200000000') TO ('1795305600000000');

ALTER TABLE ONLY mainspring_stored.finished ATTACH PARTITION mainspring_stored.finished_20261122 FOR VALUES FROM ('1795305600000000') TO ('1795392000000000');

ALTER TABLE ONLY mainspring_stored.finished ATTACH PARTITION mainspring_stored.finished_20261123 FOR VALUES FROM ('1795392000000000') TO ('1795478400000000');

ALTER TABLE ONLY mainspring_stored.finished ATTACH PARTITION mainspring_stored.finished_20261124 FOR VALUES FROM ('1795478400000000') TO ('1795564800000000');

ALTER TABLE ONLY mainspring_stored.finished ATTACH PARTITION mainspring_stored.finished_20261125 FOR VALUES FROM ('1795564800000000') TO ('1795651200000000');

ALTER TABLE ONLY mainspring_stored.finished ATTACH PARTITION mainspring_stored.finished_20261126 FOR VALUES FROM ('1795651200000000') TO ('1795737600000000');

ALTER TABLE ONLY mainspring_stored.finished ATTACH PARTITION mainspring_stored.finished_20261127 FOR VALUES FROM ('1795737600000000') TO ('1795824000000000');

ALTER TABLE ONLY mainspring_stored.finished ATTACH PARTITION mainspring_stored.finished_rest DEFAULT;

INSERT INTO mainspring_stored.attempts VALUES ('\x01900000000070008000000000000007', 1795137099057075, 1, 1, 'hand-1-3e3dbf', 1795137099058154, 1795137099076748, 0, 'failed', true, '\x7b2274797065223a2256616c75654572726f72222c2274657874223a226e6f20f09f909b227d');
INSERT INTO mainspring_stored.attempts VALUES ('\x01900000000070008000000000000003', 1795137099057075, 1, 1, 'hand-1-3e3dbf', 1795137099058154, 1795137099076748, 0, 'failed', true, '\x7b2274797065223a2256616c75654572726f72222c2274657874223a226e6f20f09f909b227d');

INSERT INTO mainspring_stored.dead VALUES (1795137099024025, 1795137099057075, 1795137099024023, 1795137099076748, 0, 1, 1, 0, 3, 0, false, '\x01900000000070008000000000000007', 'dead', 'shop.tasks.send', 'q', 'q/any', 'q/any', '\x7b7d', 'hand-1-3e3dbf', 1795137099058154, 0, NULL, '\x7b2274797065223a2256616c75654572726f72222c2274657874223a226e6f20f09f909b227d', NULL, NULL, NULL, NULL, 'not_retryable', NULL, 'ValueError', NULL, NULL);

INSERT INTO mainspring_stored.documents VALUES ('schedules', 'nightly', 1, '\x7b7d');

INSERT INTO mainspring_stored.edges VALUES ('\x01900000000070008000000000000004', '\x01900000000070008000000000000005', 'fail');

INSERT INTO mainspring_stored.finished_20261120 VALUES (1795137099024024, 1795137099057075, 1795137099024023, 1795137099076748, 0, 1, 1, 0, 3, 0, false, '\x01900000000070008000000000000006', 'succeeded', 'shop.tasks.send', 'q', 'q/any', 'q/any', '\x7b7d', 'hand-1-3e3dbf', 1795137099058154, 0, '\x22646f6e6522', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO mainspring_stored.finished_20261120 VALUES (1795137099024030, 0, 1795137099163728, 1795137099189702, 0, 0, 1, 0, 3, 0, false, '\x01900000000070008000000000000008', 'cancelled', 'shop.tasks.send', 'q', 'q/any', 'q/any', '\x7b7d', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'by_user', NULL, NULL, NULL, NULL);

INSERT INTO mainspring_stored.jobs VALUES (1795137099024027, 1795137099057075, 1795137099024023, 0, 1, 1, 0, 3, 0, 0, false, false, false, '\x01900000000070008000000000000004', 'running', 'shop.tasks.send', 'q', 'q/any', 'q/any', '\x7b7d', 'hand-1-3e3dbf', NULL, NULL, 1795137099058154, 1, NULL, NULL, NULL, NULL, NULL);
INSERT INTO mainspring_stored.jobs VALUES (1795137099024026, 1795137099057075, 1795137099024023, 0, 1, 1, 0, 3, 0, 0, false, false, false, '\x01900000000070008000000000000003', 'retrying', 'shop.tasks.send', 'q', 'q/any', 'q/any', '\x7b7d', 'hand-1-3e3dbf', 1795140699076748, NULL, 1795137099058154, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO mainspring_stored.jobs VALUES (1795137099024028, 0, 1795137099163728, 0, 0, 1, 0, 3, 0, 0, false, false, false, '\x01900000000070008000000000000000', 'ready', 'shop.tasks.send', 'q', 'q/any', 'q/any', '\x7b2261726773223a5b315d7d', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO mainspring_stored.jobs VALUES (1795137099024029, 0, 1795137099163728, 0, 0, 1, 0, 3, 0, 0, false, false, false, '\x01900000000070008000000000000001', 'ready', 'shop.tasks.send', 'q', 'q/any', 'q/any', '\x7b7d', NULL, NULL, NULL, NULL, NULL, NULL, '\x6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b', NULL, NULL, NULL);
INSERT INTO mainspring_stored.jobs VALUES (0, 0, 1795137099163728, 0, 0, 1, 0, 3, 0, 0, false, false, false, '\x01900000000070008000000000000002', 'scheduled', 'shop.tasks.send', 'q', 'q/any', 'q/any', '\x7b7d', NULL, 2795137099163728, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO mainspring_stored.jobs VALUES (0, 0, 1795137099163728, 0, 0, 1, 0, 3, 1, 0, false, false, false, '\x01900000000070008000000000000005', 'blocked', 'shop.tasks.send', 'q', 'q/any', 'q/any', '\x7b7d', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);

INSERT INTO mainspring_stored.keys VALUES ('\x6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b', '\x01900000000070008000000000000001', 0, 0, '', NULL, NULL, NULL);

INSERT INTO mainspring_stored.marks VALUES ('tag:stored', '\x01900000000070008000000000000000');

INSERT INTO mainspring_stored.meta VALUES ('bc84b938-0a89-44ad-8c32-3401ec0f8193', 0);

INSERT INTO mainspring_stored.progress VALUES ('\x01900000000070008000000000000004', '\x302e35');

INSERT INTO mainspring_stored.queues VALUES ('slow', 'paused', 1795137099211759, NULL, 0, '', NULL, NULL, DEFAULT, DEFAULT, DEFAULT, DEFAULT);

INSERT INTO mainspring_stored.retried_batches VALUES ('\x01900000000070008000000000000001', 1795137099124612);

INSERT INTO mainspring_stored.schedule_runs VALUES ('nightly', 5, '\x01900000000070008000000000000006', '\x7b7d');

INSERT INTO mainspring_stored.schedules VALUES ('nightly', 1795137099221493, 10, '\x7b7d');

INSERT INTO mainspring_stored.schema_version VALUES (1);

INSERT INTO mainspring_stored.workers VALUES ('hand-1-3e3dbf', 1, 2, false, false, 1795137099008864, 1795137099076748, '{q}', '{shop.tasks.send}', 15000000, '\x7b7d');

SELECT pg_catalog.setval('mainspring_stored.keyed_lanes_id_seq', 1, false);

SELECT pg_catalog.setval('mainspring_stored.seq', 1795137099024030, true);

ALTER TABLE ONLY mainspring_stored.attempts
    ADD CONSTRAINT attempts_pkey PRIMARY KEY (job, token);

ALTER TABLE ONLY mainspring_stored.breakers
    ADD CONSTRAINT breakers_pkey PRIMARY KEY (name);

ALTER TABLE ONLY mainspring_stored.bucket_uses
    ADD CONSTRAINT bucket_uses_pkey PRIMARY KEY (bucket, worker);

ALTER TABLE ONLY mainspring_stored.buckets
    ADD CONSTRAINT buckets_pkey PRIMARY KEY (name);

ALTER TABLE ONLY mainspring_stored.documents
    ADD CONSTRAINT documents_pkey PRIMARY KEY (kind, name);

ALTER TABLE ONLY mainspring_stored.edges
    ADD CONSTRAINT edges_pkey PRIMARY KEY (parent, child);

ALTER TABLE ONLY mainspring_stored.fair_clocks
    ADD CONSTRAINT fair_clocks_pkey PRIMARY KEY (queue, priority);

ALTER TABLE ONLY mainspring_stored.flow_work
    ADD CONSTRAINT flow_work_pkey PRIMARY KEY (id, work);

ALTER TABLE ONLY mainspring_stored.follow_ups
    ADD CONSTRAINT follow_ups_pkey PRIMARY KEY (job, state, n);

ALTER TABLE ONLY mainspring_stored.holder_tokens
    ADD CONSTRAINT holder_tokens_pkey PRIMARY KEY (bucket);

ALTER TABLE ONLY mainspring_stored.holders
    ADD CONSTRAINT holders_pkey PRIMARY KEY (holder, bucket);

ALTER TABLE ONLY mainspring_stored.items
    ADD CONSTRAINT items_pkey PRIMARY KEY (job, n);

ALTER TABLE ONLY mainspring_stored.jobs
    ADD CONSTRAINT jobs_pkey PRIMARY KEY (id);

ALTER TABLE ONLY mainspring_stored.joins
    ADD CONSTRAINT joins_pkey PRIMARY KEY (id);

ALTER TABLE ONLY mainspring_stored.keyed_lanes
    ADD CONSTRAINT keyed_lanes_pkey PRIMARY KEY (id);

ALTER TABLE ONLY mainspring_stored.keys
    ADD CONSTRAINT keys_pkey PRIMARY KEY (hash);

ALTER TABLE ONLY mainspring_stored.leads
    ADD CONSTRAINT leads_pkey PRIMARY KEY (service);

ALTER TABLE ONLY mainspring_stored.limits
    ADD CONSTRAINT limits_pkey PRIMARY KEY (name);

ALTER TABLE ONLY mainspring_stored.logs
    ADD CONSTRAINT logs_pkey PRIMARY KEY (job, n);

ALTER TABLE ONLY mainspring_stored.marks
    ADD CONSTRAINT marks_pkey PRIMARY KEY (mark, job);

ALTER TABLE ONLY mainspring_stored.progress
    ADD CONSTRAINT progress_pkey PRIMARY KEY (job);

ALTER TABLE ONLY mainspring_stored.queues
    ADD CONSTRAINT queues_pkey PRIMARY KEY (name);

ALTER TABLE ONLY mainspring_stored.rechecks
    ADD CONSTRAINT rechecks_pkey PRIMARY KEY (name);

ALTER TABLE ONLY mainspring_stored.retried_batches
    ADD CONSTRAINT retried_batches_pkey PRIMARY KEY (batch);

ALTER TABLE ONLY mainspring_stored.schedule_runs
    ADD CONSTRAINT schedule_runs_pkey PRIMARY KEY (schedule, at);

ALTER TABLE ONLY mainspring_stored.schedules
    ADD CONSTRAINT schedules_pkey PRIMARY KEY (name);

ALTER TABLE ONLY mainspring_stored.waiting_queues
    ADD CONSTRAINT waiting_queues_pkey PRIMARY KEY (bucket, queue);

ALTER TABLE ONLY mainspring_stored.workers
    ADD CONSTRAINT workers_pkey PRIMARY KEY (id);

CREATE INDEX bucket_uses_worker ON mainspring_stored.bucket_uses USING btree (worker);

CREATE INDEX dead_age ON mainspring_stored.dead USING btree (finished, state, drop_at);

CREATE INDEX dead_drop ON mainspring_stored.dead USING btree (drop_at) WHERE (drop_at IS NOT NULL);

CREATE INDEX dead_id ON mainspring_stored.dead USING btree (id);

CREATE INDEX dead_label ON mainspring_stored.dead USING btree (COALESCE(label, reason));

CREATE INDEX edges_child ON mainspring_stored.edges USING btree (child);

CREATE INDEX finished_drop ON ONLY mainspring_stored.finished USING btree (drop_at) WHERE (drop_at IS NOT NULL);

CREATE INDEX finished_20261120_drop_at_idx ON mainspring_stored.finished_20261120 USING btree (drop_at) WHERE (drop_at IS NOT NULL);

CREATE INDEX finished_age ON ONLY mainspring_stored.finished USING btree (finished, state, drop_at);

CREATE INDEX finished_20261120_finished_state_drop_at_idx ON mainspring_stored.finished_20261120 USING btree (finished, state, drop_at);

CREATE INDEX finished_id ON ONLY mainspring_stored.finished USING btree (id);

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

CREATE INDEX finished_20261124_drop_at_idx ON mainspring_stored.finished_20261124 USING btree (drop_at) WHERE (drop_at IS NOT NULL);

CREATE INDEX finished_20261124_finished_state_drop_at_idx ON mainspring_stored.finished_20261124 USING btree (finished, state, drop_at);

CREATE INDEX finished_20261124_id_idx ON mainspring_stored.finished_20261124 USING btree (id);

CREATE INDEX finished_20261125_drop_at_idx ON mainspring_stored.finished_20261125 USING btree (drop_at) WHERE (drop_at IS NOT NULL);

CREATE INDEX finished_20261125_finished_state_drop_at_idx ON mainspring_stored.finished_20261125 USING btree (finished, state, drop_at);

CREATE INDEX finished_20261125_id_idx ON mainspring_stored.finished_20261125 USING btree (id);

CREATE INDEX finished_20261126_drop_at_idx ON mainspring_stored.finished_20261126 USING btree (drop_at) WHERE (drop_at IS NOT NULL);

CREATE INDEX finished_20261126_finished_state_drop_at_idx ON mainspring_stored.finished_20261126 USING btree (finished, state, drop_at);

CREATE INDEX finished_20261126_id_idx ON mainspring_stored.finished_20261126 USING btree (id);

CREATE INDEX finished_20261127_drop_at_idx ON mainspring_stored.finished_20261127 USING btree (drop_at) WHERE (drop_at IS NOT NULL);

CREATE INDEX finished_20261127_finished_state_drop_at_idx ON mainspring_stored.finished_20261127 USING btree (finished, state, drop_at);

CREATE INDEX finished_20261127_id_idx ON mainspring_stored.finished_20261127 USING btree (id);

CREATE INDEX finished_rest_drop_at_idx ON mainspring_stored.finished_rest USING btree (drop_at) WHERE (drop_at IS NOT NULL);

CREATE INDEX finished_rest_finished_state_drop_at_idx ON mainspring_stored.finished_rest USING btree (finished, state, drop_at);

CREATE INDEX finished_rest_id_idx ON mainspring_stored.finished_rest USING btree (id);

CREATE INDEX flow_work_at ON mainspring_stored.flow_work USING btree (at, id);

CREATE INDEX holder_tokens_token ON mainspring_stored.holder_tokens USING btree (token);

CREATE INDEX holders_bucket ON mainspring_stored.holders USING btree (bucket, until);

CREATE INDEX jobs_counted ON mainspring_stored.jobs USING btree (queue, enqueued, id) WHERE (counted AND (state <> 'running'::text));

CREATE INDEX jobs_expiring ON mainspring_stored.jobs USING btree (expires) WHERE ((expires IS NOT NULL) AND (state <> 'running'::text));

CREATE INDEX jobs_later ON mainspring_stored.jobs USING btree (due, seq, state) WHERE (state = ANY (ARRAY['scheduled'::text, 'retrying'::text]));

CREATE INDEX jobs_ordered ON mainspring_stored.jobs USING btree (worker) WHERE (ordered IS NOT NULL);

CREATE INDEX jobs_ready ON mainspring_stored.jobs USING btree (lane, priority DESC, seq) WHERE (state = 'ready'::text);

CREATE INDEX jobs_running ON mainspring_stored.jobs USING btree (worker, turn) WHERE (state = 'running'::text);

CREATE INDEX keyed_lanes_fair ON mainspring_stored.keyed_lanes USING btree (lane_set, priority DESC, vtime, seq) WHERE ((waits_for IS NULL) AND (vtime IS NOT NULL));

CREATE INDEX keyed_lanes_lane ON mainspring_stored.keyed_lanes USING btree (lane, priority);

CREATE INDEX keyed_lanes_order ON mainspring_stored.keyed_lanes USING btree (lane_set, priority DESC, seq) WHERE (waits_for IS NULL);

CREATE INDEX keyed_lanes_recheck ON mainspring_stored.keyed_lanes USING btree (recheck_at) WHERE (recheck_at IS NOT NULL);

CREATE INDEX keyed_lanes_waiting ON mainspring_stored.keyed_lanes USING btree (waits_for, lane_set, priority DESC, seq) WHERE (waits_for IS NOT NULL);

CREATE INDEX keys_job ON mainspring_stored.keys USING btree (job);

CREATE INDEX marks_job ON mainspring_stored.marks USING btree (job);

CREATE INDEX rate_starts_bucket ON mainspring_stored.rate_starts USING btree (bucket, last);

CREATE INDEX retried_batches_at ON mainspring_stored.retried_batches USING btree (at);

CREATE INDEX schedules_gone ON mainspring_stored.schedules USING btree (rev) WHERE (doc IS NULL);

CREATE INDEX schedules_look ON mainspring_stored.schedules USING btree (look, name) WHERE (look IS NOT NULL);

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

ALTER INDEX mainspring_stored.finished_drop ATTACH PARTITION mainspring_stored.finished_20261124_drop_at_idx;

ALTER INDEX mainspring_stored.finished_age ATTACH PARTITION mainspring_stored.finished_20261124_finished_state_drop_at_idx;

ALTER INDEX mainspring_stored.finished_id ATTACH PARTITION mainspring_stored.finished_20261124_id_idx;

ALTER INDEX mainspring_stored.finished_drop ATTACH PARTITION mainspring_stored.finished_20261125_drop_at_idx;

ALTER INDEX mainspring_stored.finished_age ATTACH PARTITION mainspring_stored.finished_20261125_finished_state_drop_at_idx;

ALTER INDEX mainspring_stored.finished_id ATTACH PARTITION mainspring_stored.finished_20261125_id_idx;

ALTER INDEX mainspring_stored.finished_drop ATTACH PARTITION mainspring_stored.finished_20261126_drop_at_idx;

ALTER INDEX mainspring_stored.finished_age ATTACH PARTITION mainspring_stored.finished_20261126_finished_state_drop_at_idx;

ALTER INDEX mainspring_stored.finished_id ATTACH PARTITION mainspring_stored.finished_20261126_id_idx;

ALTER INDEX mainspring_stored.finished_drop ATTACH PARTITION mainspring_stored.finished_20261127_drop_at_idx;

ALTER INDEX mainspring_stored.finished_age ATTACH PARTITION mainspring_stored.finished_20261127_finished_state_drop_at_idx;

ALTER INDEX mainspring_stored.finished_id ATTACH PARTITION mainspring_stored.finished_20261127_id_idx;

ALTER INDEX mainspring_stored.finished_drop ATTACH PARTITION mainspring_stored.finished_rest_drop_at_idx;

ALTER INDEX mainspring_stored.finished_age ATTACH PARTITION mainspring_stored.finished_rest_finished_state_drop_at_idx;

ALTER INDEX mainspring_stored.finished_id ATTACH PARTITION mainspring_stored.finished_rest_id_idx;

