-- Breakers: limits that let no job start while they are open. mainspring/breakers/counting.py decides when they open.
--
-- The row of a breaker is guarded by the lock of its bucket. A breaker without a row is closed and has counted nothing.
-- A job or holder that starts while the breaker is half open is a probe.

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

-- read_breaker: a declared breaker as a JSON array, in the fields of StoredBreaker; null if it is not declared.
create function {schema}.read_breaker_v1(p_name text, p_now bigint) returns text language plpgsql as $$
begin
    return (
        select json_build_array(p_now, l.name, coalesce(l.set_size, l.size), l.per, l.burst, l.share, l.span,
            coalesce(b.rev, 0), coalesce(b.until, 0), coalesce(b.opened, 0), coalesce(b.doc, ''))::text
        from {schema}.limits l left join {schema}.breakers b on b.name = l.name
        where l.name = p_name and l.kind = {LIMIT_BREAKER}
    );
end
$$;

-- list_swapped: the breakers that these swaps write; their buckets must be locked.
create function {schema}.list_swapped_v1(p_swaps jsonb) returns text[] language plpgsql as $$
begin
    return array(select s.name from jsonb_to_recordset(p_swaps) as s(name text, rev bigint) where s.rev > 0);
end
$$;

-- swap_rows: write the rows of breakers whose number is the expected one. Their buckets are locked.
-- returns the queues in which a job waits for a breaker that was opened or closed
create function {schema}.swap_rows_v1(p_swaps jsonb, p_now bigint) returns text[] language plpgsql as $$
declare
    v_woken text[];
begin
    insert into {schema}.breakers (name) select s.name
    from jsonb_to_recordset(p_swaps) as s(name text, expected bigint, rev bigint)
    join {schema}.limits l on l.name = s.name and l.kind = {LIMIT_BREAKER}
    where s.rev > 0 and s.expected = 0 order by s.name
    on conflict do nothing;
    with swapped as (
        update {schema}.breakers b
        set rev = s.rev, doc = s.doc,
            until = case when s.open_for > 0 then least(p_now + s.open_for, {FOREVER}) else coalesce(s.open_for, b.until) end,
            opened = case when s.open_for > 0 then p_now else coalesce(s.open_for, b.opened) end
        from jsonb_to_recordset(p_swaps) as s(name text, expected bigint, rev bigint, open_for bigint, doc text)
        where b.name = s.name and b.rev = s.expected and s.rev > 0
        returning b.name, s.open_for
    ), waiting as (
        delete from {schema}.waiting_queues w using swapped s where w.bucket = s.name and s.open_for is not null
        returning w.queue
    )
    select array(select t.queue from waiting t) into v_woken;
    return v_woken;
end
$$;

-- swap_breakers: write or read these breakers.
-- returns them as JSON, and the queues in which a job waits for a breaker that was opened or closed
create function {schema}.swap_breakers_v1(p_swaps jsonb, p_now bigint) returns table (breakers text[], woken text[])
language plpgsql as $$
declare
    v_names text[] := {schema}.list_swapped_v1(p_swaps);
    v_now bigint;
    v_woken text[] := '{}';
begin
    perform {schema}.guard_v1();
    if cardinality(v_names) > 0 then
        perform {schema}.lock_buckets_v1(v_names);
    end if;
    v_now := {schema}.now_v1(p_now);
    if cardinality(v_names) > 0 then
        v_woken := {schema}.swap_rows_v1(p_swaps, v_now);
    end if;
    return query select array(
        select r.breaker from jsonb_array_elements(p_swaps) with ordinality as s(swap, n)
        cross join lateral {schema}.read_breaker_v1(s.swap ->> 'name', v_now) as r(breaker)
        where r.breaker is not null order by s.n
    ), v_woken;
end
$$;
