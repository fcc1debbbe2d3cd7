-- Breakers: limits that let no job start while they are open.
--
-- The row of a breaker is guarded by the lock of its bucket. A breaker without a row is closed and has counted nothing.
-- A job or holder that starts while the breaker is half open is a probe; its result closes the breaker or opens it
-- again.

-- names_breaker: whether one of these buckets belongs to a breaker.
create function {schema}.names_breaker_v1(p_names text[]) returns boolean language plpgsql immutable as $$
begin
    return strpos(array_to_string(p_names, '=') || '=', {BREAKER_SUFFIX} || '=') > 0;
end
$$;

-- count_probes: how many jobs and holders probe a breaker that is half open since p_since.
create function {schema}.count_probes_v1(p_name text, p_since bigint, p_now bigint) returns bigint language plpgsql as $$
begin
    return (
        select count(*) from {schema}.bucket_uses x cross join lateral (
            select from {schema}.jobs o
            where o.state = {RUNNING} and o.worker = x.worker and p_name = any(o.buckets) and o.started >= p_since
        ) j
        where x.bucket = p_name
    ) + (select count(*) from {schema}.holders g where g.bucket = p_name and g.until > p_now);
end
$$;

-- read_breaker_capacity: the capacity of a breaker: unlimited while closed, none while open, its probes while half
-- open.
create function {schema}.read_breaker_capacity_v1(p_name text, p_probes bigint, p_now bigint) returns {schema}.capacity_v1
language plpgsql as $$
declare
    v_until bigint := coalesce((select b.until from {schema}.breakers b where b.name = p_name), 0);
    v_used bigint := 0;
begin
    if v_until = 0 then
        return row(p_name, {LIMIT_BREAKER}, p_probes, 0, {UNLIMITED}, 1, 0)::{schema}.capacity_v1;
    elsif v_until > p_now then
        return row(p_name, {LIMIT_BREAKER}, p_probes, 0, 0, 1, 0)::{schema}.capacity_v1;
    end if;
    v_used := {schema}.count_probes_v1(p_name, v_until, p_now);
    return row(p_name, {LIMIT_BREAKER}, p_probes, v_used, greatest(p_probes - v_used, 0), 1, 0)::{schema}.capacity_v1;
end
$$;

-- read_breaker: the breaker as JSON, in the fields of BreakerRow.
create function {schema}.read_breaker_v1(p_name text, p_now bigint) returns text language plpgsql as $$
declare
    v_breaker {schema}.breakers;
    v_span bigint;
begin
    select * into v_breaker from {schema}.breakers b where b.name = p_name;
    if v_breaker.name is null then
        return jsonb_build_object('name', p_name)::text;
    elsif v_breaker.until = 0 then
        v_span := (select l.span from {schema}.limits l where l.name = p_name and l.share > 0);
        if v_span is not null then
            v_breaker := {schema}.trim_window_v1(v_breaker, v_span, p_now);
        end if;
        return jsonb_build_object(
            'name', p_name, 'failures', v_breaker.failures, 'calls', v_breaker.calls,
            'error', case when v_breaker.failures > 0 then v_breaker.error else '' end
        )::text;
    end if;
    return jsonb_build_object(
        'name', p_name, 'failures', v_breaker.failures, 'calls', v_breaker.calls, 'opened', v_breaker.opened,
        'state', case when v_breaker.until > p_now then {BREAKER_OPEN} else {BREAKER_HALF_OPEN} end,
        'until', case when v_breaker.until < {FOREVER} then v_breaker.until end,
        'error', v_breaker.error, 'tripped', v_breaker.tripped
    )::text;
end
$$;

-- trim_window: the breaker without the counts that lie before its window; counts of one piece of the window are added
-- up.
create function {schema}.trim_window_v1(p_breaker {schema}.breakers, p_span bigint, p_now bigint) returns {schema}.breakers
language plpgsql as $$
begin
    select coalesce(jsonb_agg(jsonb_build_array(s.begin, s.good, s.bad)), '[]'), coalesce(sum(s.bad), 0),
        coalesce(sum(s.good + s.bad), 0)
    into p_breaker.counts, p_breaker.failures, p_breaker.calls from (
        select (c ->> 0)::bigint as begin, sum((c ->> 1)::bigint) as good, sum((c ->> 2)::bigint) as bad
        from jsonb_array_elements(p_breaker.counts) as c where (c ->> 0)::bigint > p_now - p_span group by 1
    ) s;
    return p_breaker;
end
$$;

-- update_breaker: count results for a breaker whose bucket the caller has locked.
-- p_succeeded, p_failed: when the last job that succeeded, and that failed, was started (null: none). p_bad: the number
-- of failures. p_good: the number of successes that were reported as a number.
-- returns the queues in which a job waits for the breaker, if it has opened or closed
create function {schema}.update_breaker_v1(
    p_name text, p_succeeded bigint, p_failed bigint, p_bad bigint, p_good bigint, p_error text, p_now bigint
) returns text[] language plpgsql as $$
declare
    v_limit {schema}.limits;
    v_breaker {schema}.breakers;
    v_before bigint;
    v_opens boolean := false;
    v_woken text[] := '{}';
begin
    select * into v_limit from {schema}.limits l where l.name = p_name and l.kind = {LIMIT_BREAKER};
    if v_limit.name is null then
        return '{}';
    end if;
    select * into v_breaker from {schema}.breakers b where b.name = p_name;
    if v_breaker.name is null then
        v_breaker := row(p_name, 0, 0, 0, 0, false, false, '', '[]'::jsonb, null)::{schema}.breakers;
    end if;
    v_before := v_breaker.until;
    if v_before > p_now or v_before > coalesce(greatest(p_succeeded, p_failed), 0) then
        return '{}';
    elsif v_before > 0 and v_before > coalesce(p_succeeded, 0) then
        v_opens := true;
    else
        if v_before > 0 then
            v_breaker := row(p_name, 0, 0, 0, 0, false, false, '', '[]'::jsonb, null)::{schema}.breakers;
        elsif p_bad = 0 and (v_limit.share > 0 and p_good = 0 or v_limit.share = 0 and v_breaker.failures = 0) then
            return '{}';
        end if;
        if v_limit.share > 0 then
            v_breaker.counts := v_breaker.counts
                || jsonb_build_array(jsonb_build_array(p_now - p_now % greatest(v_limit.span / {BREAKER_PIECES}, 1),
                    p_good, p_bad));
            v_breaker := {schema}.trim_window_v1(v_breaker, v_limit.span, p_now);
            v_opens := p_bad > 0 and v_breaker.calls >= v_limit.burst
                and v_breaker.failures * {SHARE_WHOLE} >= v_limit.share * v_breaker.calls;
        else
            v_breaker.failures := case when p_succeeded is null and p_good = 0 then v_breaker.failures else 0 end + p_bad;
            v_breaker.calls := 0;
            v_breaker.counts := '[]';
            v_opens := p_bad > 0 and v_breaker.failures >= v_limit.burst;
        end if;
    end if;
    if p_bad > 0 then
        v_breaker.error := p_error;
    end if;
    if v_opens then
        v_breaker.until := p_now + v_limit.per;
        v_breaker.opened := p_now;
        v_breaker.probing := false;
        v_breaker.tripped := false;
        v_breaker.counts := '[]';
    end if;
    if v_breaker.until <> v_before then
        v_breaker.changed_by := pg_current_xact_id();
        with waiting as (
            delete from {schema}.waiting_queues w where w.bucket = p_name returning w.queue
        )
        select array(select t.queue from waiting t) into v_woken;
    end if;
    perform {schema}.write_breaker_v1(v_breaker);
    return v_woken;
end
$$;

-- write_breaker: insert or replace the row of a breaker.
create function {schema}.write_breaker_v1(p_breaker {schema}.breakers) returns void language plpgsql as $$
begin
    insert into {schema}.breakers select p_breaker.* on conflict (name) do update set
        failures = excluded.failures, calls = excluded.calls, until = excluded.until, opened = excluded.opened,
        probing = excluded.probing, tripped = excluded.tripped, error = excluded.error, counts = excluded.counts,
        changed_by = excluded.changed_by;
end
$$;

-- report_acks: count the acks of a worker, whose buckets are all locked, for the breakers that the jobs name, and the
-- successes that were reported as numbers (p_good, by breaker). Called before the jobs are moved.
-- returns the queues in which a job waits for a breaker that has opened or closed
create function {schema}.report_acks_v1(
    p_worker text, p_done bytea[], p_token bigint[], p_acks {schema}.ack_v1[], p_names text[], p_good jsonb, p_now bigint
) returns text[] language plpgsql as $$
declare
    v_result record;
    v_woken text[] := '{}';
begin
    if p_good is null and not exists (select 1 from unnest(p_acks) a where a.fault is not null) and not exists (
        select 1 from {schema}.breakers b where b.name = any(p_names) and (b.until > 0 or b.failures > 0)
    ) then
        return '{}';
    end if;
    for v_result in
        with acked as (
            select b.name, a.fault, a.n, j.started from (
                select u.id, u.token, null as fault, 0 as n from unnest(p_done, p_token) as u(id, token)
                union all
                select x.id, x.token, x.fault, x.n from unnest(p_acks) x where x.fault is not null or x.outcome = {SUCCEEDED}
            ) a
            join {schema}.jobs j on j.id = any(array[a.id]) and j.token = a.token and j.state || '' = {RUNNING}
                and j.worker || '' = p_worker
            cross join unnest(j.buckets) as b(name)
            where right(b.name, length({BREAKER_SUFFIX})) = {BREAKER_SUFFIX}
        ), ends as (
            select a.name, max(a.started) filter (where a.fault is null) as succeeded,
                max(a.started) filter (where a.fault is not null) as failed, count(a.fault) as bad,
                (array_agg(a.fault order by a.n desc) filter (where a.fault is not null))[1] as error
            from acked a group by a.name
        ), good as (
            select g.key as name, g.value::bigint as good from jsonb_each_text(coalesce(p_good, '{}')) g
        )
        select name, e.succeeded, e.failed, coalesce(e.bad, 0) as bad, coalesce(g.good, 0) as good, e.error
        from ends e full join good g using (name) order by name
    loop
        v_woken := v_woken || {schema}.update_breaker_v1(
            v_result.name, v_result.succeeded, v_result.failed, v_result.bad, v_result.good, v_result.error, p_now
        );
    end loop;
    return v_woken;
end
$$;

-- report_lost_worker: the worker is lost or has crashed: count one failure for each breaker that its running jobs name.
-- All buckets of these jobs are locked. returns as report_acks
create function {schema}.report_lost_worker_v1(p_worker text, p_cause text, p_now bigint) returns text[] language plpgsql as $$
declare
    v_result record;
    v_woken text[] := '{}';
begin
    for v_result in
        select b.name, max(j.started) as failed from {schema}.jobs j cross join unnest(j.buckets) as b(name)
        where j.worker = p_worker and j.state = {RUNNING} and right(b.name, length({BREAKER_SUFFIX})) = {BREAKER_SUFFIX}
        group by b.name order by b.name
    loop
        v_woken := v_woken || {schema}.update_breaker_v1(
            v_result.name, null, v_result.failed, 1, 0,
            'its worker ' || case p_cause when {LOST} then 'is ' else 'has ' end || p_cause, p_now
        );
    end loop;
    return v_woken;
end
$$;

-- begin_probes: jobs were claimed, or a holder came, under these buckets: breakers that are half open are being probed
-- now.
create function {schema}.begin_probes_v1(p_names text[], p_now bigint) returns void language plpgsql as $$
begin
    update {schema}.breakers b set probing = true, changed_by = pg_current_xact_id()
    where b.name = any(p_names) and b.until between 1 and p_now and not b.probing;
end
$$;

-- list_changed_breakers: those of these breakers that this transaction has opened, closed or begun to probe, as JSON.
create function {schema}.list_changed_breakers_v1(p_names text[], p_now bigint) returns setof text language plpgsql as $$
begin
    return query select {schema}.read_breaker_v1(b.name, p_now) from {schema}.breakers b
    where b.name = any(p_names) and b.changed_by = pg_current_xact_id_if_assigned() order by b.name;
end
$$;

-- trip_breaker: open a breaker by hand for p_span microseconds, with null until it is reset; 0 closes it.
-- returns the queues in which a job waits for it; null if there is no such breaker
create function {schema}.trip_breaker_v1(p_name text, p_span bigint, p_now bigint) returns text[] language plpgsql as $$
declare
    v_now bigint;
    v_woken text[];
begin
    perform {schema}.guard_v1();
    if not exists (select 1 from {schema}.limits l where l.name = p_name and l.kind = {LIMIT_BREAKER}) then
        return null;
    end if;
    perform {schema}.lock_buckets_v1(array[p_name]);
    v_now := {schema}.now_v1(p_now);
    delete from {schema}.breakers b where b.name = p_name;
    if p_span is distinct from 0 then
        insert into {schema}.breakers (name, until, opened, tripped)
        values (p_name, coalesce(v_now + p_span, {FOREVER}), v_now, true);
    end if;
    with waiting as (
        delete from {schema}.waiting_queues w where w.bucket = p_name returning w.queue
    )
    select array(select t.queue from waiting t) into v_woken;
    return v_woken;
end
$$;

-- report_breaker: count the results of work that was no job. First looks without a lock whether there is anything to
-- count, for most calls have nothing.
-- returns the breaker as JSON if it has opened or closed, and the queues in which a job waits for it
create function {schema}.report_breaker_v1(p_name text, p_started bigint, p_good bigint, p_fault text, p_now bigint)
returns table (changed text, woken text[]) language plpgsql as $$
declare
    v_now bigint;
    v_share bigint := (select l.share from {schema}.limits l where l.name = p_name and l.kind = {LIMIT_BREAKER});
    v_woken text[];
begin
    perform {schema}.guard_v1();
    if v_share is null or p_fault = '' and v_share = 0 and not exists (
        select 1 from {schema}.breakers b where b.name = p_name and (b.until > 0 or b.failures > 0)
    ) then
        return query select null, '{}'::text[];
        return;
    end if;
    perform {schema}.lock_buckets_v1(array[p_name]);
    v_now := {schema}.now_v1(p_now);
    v_woken := {schema}.update_breaker_v1(
        p_name, case when p_good > 0 then p_started end, case when p_fault <> '' then p_started end, (p_fault <> '')::integer,
        p_good, p_fault, v_now
    );
    return query select (select n from {schema}.list_changed_breakers_v1(array[p_name], v_now) n), v_woken;
end
$$;
