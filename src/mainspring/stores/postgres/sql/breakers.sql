-- guarded: whether there is the name of a breaker among these buckets
create function {schema}.guarded_v1(p_names text[]) returns boolean language plpgsql immutable as $$
begin
    return strpos(array_to_string(p_names, '=') || '=', ':breaker=') > 0;
end
$$;

-- probing: how many jobs, and guests, probe a breaker that is half open since p_since
create function {schema}.probing_v1(p_name text, p_since bigint, p_now bigint) returns bigint language plpgsql as $$
begin
    return (
        select count(*) from {schema}.uses x cross join lateral (
            select from {schema}.jobs o
            where o.state = 'running' and o.worker = x.worker and p_name = any(o.buckets) and o.started >= p_since
        ) j
        where x.bucket = p_name
    ) + (select count(*) from {schema}.guests g where g.bucket = p_name and g.until > p_now);
end
$$;

-- breaker_room: what a breaker lets through
create function {schema}.breaker_room_v1(p_name text, p_probes bigint, p_now bigint) returns {schema}.room_v1
language plpgsql as $$
declare
    v_until bigint := coalesce((select b.until from {schema}.breakers b where b.name = p_name), 0);
    v_used bigint := 0;
begin
    if v_until = 0 then
        return row(p_name, 'breaker', p_probes, 0, 4611686018427387904, 1, 0)::{schema}.room_v1;
    elsif v_until > p_now then
        return row(p_name, 'breaker', p_probes, 0, 0, 1, 0)::{schema}.room_v1;
    end if;
    v_used := {schema}.probing_v1(p_name, v_until, p_now);
    return row(p_name, 'breaker', p_probes, v_used, greatest(p_probes - v_used, 0), 1, 0)::{schema}.room_v1;
end
$$;

-- breaker: how a breaker stands, as json
create function {schema}.breaker_v1(p_name text, p_now bigint) returns text language plpgsql as $$
declare
    v_is {schema}.breakers;
    v_span bigint;
begin
    select * into v_is from {schema}.breakers b where b.name = p_name;
    if v_is.name is null then
        return jsonb_build_object('name', p_name)::text;
    elsif v_is.until = 0 then
        v_span := (select l.span from {schema}.limits l where l.name = p_name and l.share > 0);
        if v_span is not null then
            v_is := {schema}.window_v1(v_is, v_span, p_now);
        end if;
        return jsonb_build_object(
            'name', p_name, 'failures', v_is.failures, 'calls', v_is.calls,
            'error', case when v_is.failures > 0 then v_is.error else '' end
        )::text;
    end if;
    return jsonb_build_object(
        'name', p_name, 'state', case when v_is.until > p_now then 'open' else 'half_open' end, 'failures', v_is.failures,
        'calls', v_is.calls, 'opened', v_is.opened, 'until', case when v_is.until < 4503599627370496 then v_is.until end,
        'error', v_is.error, 'tripped', v_is.tripped
    )::text;
end
$$;

-- window: a breaker without what lies before its window, what is of one part of it as one
create function {schema}.window_v1(p_is {schema}.breakers, p_span bigint, p_now bigint) returns {schema}.breakers
language plpgsql as $$
begin
    select coalesce(jsonb_agg(jsonb_build_array(s.begin, s.good, s.bad)), '[]'), coalesce(sum(s.bad), 0),
        coalesce(sum(s.good + s.bad), 0)
    into p_is.counts, p_is.failures, p_is.calls from (
        select (c ->> 0)::bigint as begin, sum((c ->> 1)::bigint) as good, sum((c ->> 2)::bigint) as bad
        from jsonb_array_elements(p_is.counts) as c where (c ->> 0)::bigint > p_now - p_span group by 1
    ) s;
    return p_is;
end
$$;

-- hear_one: a breaker, whose bucket the caller has locked, is told when the last of those began that succeeded (null: none)
-- and of those that failed, how many failed, how many successes were told in numbers
-- returns the queues in which something waits for it, if it has changed
create function {schema}.hear_one_v1(
    p_name text, p_succeeded bigint, p_failed bigint, p_bad bigint, p_good bigint, p_error text, p_now bigint
) returns text[] language plpgsql as $$
declare
    v_limit {schema}.limits;
    v_is {schema}.breakers;
    v_before bigint;
    v_opens boolean := false;
    v_woken text[] := '{}';
begin
    select * into v_limit from {schema}.limits l where l.name = p_name and l.kind = 'breaker';
    if v_limit.name is null then
        return '{}';
    end if;
    select * into v_is from {schema}.breakers b where b.name = p_name;
    if v_is.name is null then
        v_is := row(p_name, 0, 0, 0, 0, false, false, '', '[]'::jsonb, null)::{schema}.breakers;
    end if;
    v_before := v_is.until;
    if v_before > p_now or v_before > coalesce(greatest(p_succeeded, p_failed), 0) then
        return '{}';
    elsif v_before > 0 and v_before > coalesce(p_succeeded, 0) then
        v_opens := true;
    else
        if v_before > 0 then
            v_is := row(p_name, 0, 0, 0, 0, false, false, '', '[]'::jsonb, null)::{schema}.breakers;
        elsif p_bad = 0 and (v_limit.share > 0 and p_good = 0 or v_limit.share = 0 and v_is.failures = 0) then
            return '{}';
        end if;
        if v_limit.share > 0 then
            v_is.counts := v_is.counts
                || jsonb_build_array(jsonb_build_array(p_now - p_now % greatest(v_limit.span / 10, 1), p_good, p_bad));
            v_is := {schema}.window_v1(v_is, v_limit.span, p_now);
            v_opens := p_bad > 0 and v_is.calls >= v_limit.burst and v_is.failures * 1000000 >= v_limit.share * v_is.calls;
        else
            v_is.failures := case when p_succeeded is null and p_good = 0 then v_is.failures else 0 end + p_bad;
            v_is.calls := 0;
            v_is.counts := '[]';
            v_opens := p_bad > 0 and v_is.failures >= v_limit.burst;
        end if;
    end if;
    if p_bad > 0 then
        v_is.error := p_error;
    end if;
    if v_opens then
        v_is.until := p_now + v_limit.per;
        v_is.opened := p_now;
        v_is.half := false;
        v_is.tripped := false;
        v_is.counts := '[]';
    end if;
    if v_is.until <> v_before then
        v_is.news := pg_current_xact_id();
        with told as (
            delete from {schema}.waits w where w.bucket = p_name returning w.queue
        )
        select array(select t.queue from told t) into v_woken;
    end if;
    perform {schema}.put_breaker_v1(v_is);
    return v_woken;
end
$$;

create function {schema}.put_breaker_v1(p_is {schema}.breakers) returns void language plpgsql as $$
begin
    insert into {schema}.breakers select p_is.* on conflict (name) do update set
        failures = excluded.failures, calls = excluded.calls, until = excluded.until, opened = excluded.opened,
        half = excluded.half, tripped = excluded.tripped, error = excluded.error, counts = excluded.counts,
        news = excluded.news;
end
$$;

-- hear: what the acks of a worker, all of whose buckets are locked, and successes told in numbers (by breaker) mean to
-- breakers. Before the jobs are moved. returns the queues in which something waits for one that has changed
create function {schema}.hear_v1(
    p_worker text, p_done bytea[], p_token bigint[], p_acks {schema}.ack_v1[], p_names text[], p_good jsonb, p_now bigint
) returns text[] language plpgsql as $$
declare
    v_told record;
    v_woken text[] := '{}';
begin
    if p_good is null and not exists (select 1 from unnest(p_acks) a where a.fault is not null) and not exists (
        select 1 from {schema}.breakers b where b.name = any(p_names) and (b.until > 0 or b.failures > 0)
    ) then
        return '{}';
    end if;
    for v_told in
        with acked as (
            select b.name, a.fault, a.n, j.started from (
                select u.id, u.token, null as fault, 0 as n from unnest(p_done, p_token) as u(id, token)
                union all
                select x.id, x.token, x.fault, x.n from unnest(p_acks) x where x.fault is not null or x.outcome = 'succeeded'
            ) a
            join {schema}.jobs j on j.id = any(array[a.id]) and j.token = a.token and j.state || '' = 'running'
                and j.worker || '' = p_worker
            cross join unnest(j.buckets) as b(name)
            where right(b.name, 8) = ':breaker'
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
        v_woken := v_woken || {schema}.hear_one_v1(
            v_told.name, v_told.succeeded, v_told.failed, v_told.bad, v_told.good, v_told.error, p_now
        );
    end loop;
    return v_woken;
end
$$;

-- bereave: the worker that ran these jobs, all of whose buckets are locked, is gone: one failure for each breaker that they
-- name. returns as hear
create function {schema}.bereave_v1(p_worker text, p_cause text, p_now bigint) returns text[] language plpgsql as $$
declare
    v_told record;
    v_woken text[] := '{}';
begin
    for v_told in
        select b.name, max(j.started) as failed from {schema}.jobs j cross join unnest(j.buckets) as b(name)
        where j.worker = p_worker and j.state = 'running' and right(b.name, 8) = ':breaker' group by b.name order by b.name
    loop
        v_woken := v_woken || {schema}.hear_one_v1(
            v_told.name, null, v_told.failed, 1, 0,
            'its worker ' || case p_cause when 'lost' then 'is ' else 'has ' end || p_cause, p_now
        );
    end loop;
    return v_woken;
end
$$;

-- probe: jobs were claimed, or a guest let in, behind these gates: those that are half open are probed from now on
create function {schema}.probe_v1(p_names text[], p_now bigint) returns void language plpgsql as $$
begin
    update {schema}.breakers b set half = true, news = pg_current_xact_id()
    where b.name = any(p_names) and b.until between 1 and p_now and not b.half;
end
$$;

-- news: those of these breakers that this transaction has opened or closed or begun to probe, as json
create function {schema}.news_v1(p_names text[], p_now bigint) returns setof text language plpgsql as $$
begin
    return query select {schema}.breaker_v1(b.name, p_now) from {schema}.breakers b
    where b.name = any(p_names) and b.news = pg_current_xact_id_if_assigned() order by b.name;
end
$$;

-- trip: open a breaker by hand, for p_span or (null) until it is reset; 0 closes it. returns the queues in which something
-- waits for it, null if there is none
create function {schema}.trip_v1(p_name text, p_span bigint, p_now bigint) returns text[] language plpgsql as $$
declare
    v_now bigint;
    v_woken text[];
begin
    perform {schema}.guard_v1();
    if not exists (select 1 from {schema}.limits l where l.name = p_name and l.kind = 'breaker') then
        return null;
    end if;
    perform {schema}.lock_buckets_v1(array[p_name]);
    v_now := {schema}.now_v1(p_now);
    delete from {schema}.breakers b where b.name = p_name;
    if p_span is distinct from 0 then
        insert into {schema}.breakers (name, until, opened, tripped)
        values (p_name, coalesce(v_now + p_span, 4503599627370496), v_now, true);
    end if;
    with told as (
        delete from {schema}.waits w where w.bucket = p_name returning w.queue
    )
    select array(select t.queue from told t) into v_woken;
    return v_woken;
end
$$;

-- tell: what came of work that no job did. Looks without a lock whether that means anything, for most does not
-- returns the breaker as json if it has changed, and the queues in which something waits for it
create function {schema}.tell_v1(p_name text, p_started bigint, p_good bigint, p_fault text, p_now bigint)
returns table (news text, woken text[]) language plpgsql as $$
declare
    v_now bigint;
    v_share bigint := (select l.share from {schema}.limits l where l.name = p_name and l.kind = 'breaker');
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
    v_woken := {schema}.hear_one_v1(
        p_name, case when p_good > 0 then p_started end, case when p_fault <> '' then p_started end, (p_fault <> '')::integer,
        p_good, p_fault, v_now
    );
    return query select (select n from {schema}.news_v1(array[p_name], v_now) n), v_woken;
end
$$;
