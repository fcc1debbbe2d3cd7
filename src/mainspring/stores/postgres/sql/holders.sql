-- Capacity that is held outside of a claim, for a time: limiters, locks and semaphores.
--
-- Two ids are not holders. {RESERVED_PLACE}: the next place in this bucket is reserved for holders until then; it
-- counts as used, so no job gets it. {RESTED_BUCKET}, under a name that no bucket has ("=" and the bucket): no place is
-- reserved there until then, because a holder has just released one.

-- next_token: the next token of these buckets, which the caller has locked: larger than every token that they gave.
create function {schema}.next_token_v1(p_names text[], p_now bigint) returns bigint language plpgsql as $$
#variable_conflict use_column
declare
    v_token bigint := greatest(p_now, (select max(f.token) + 1 from {schema}.holder_tokens f where f.bucket = any(p_names)));
begin
    insert into {schema}.holder_tokens (bucket, token) select n, v_token from unnest(p_names) n
    on conflict (bucket) do update set token = excluded.token;
    return v_token;
end
$$;

-- hold: capacity in all of these buckets, or in none. A holder that holds them already holds them for longer. Without
-- buckets the function only renews.
-- returns whether it holds them, until when, and the token; else the position of the first full bucket, when to ask
-- again, and whether the next places are reserved for holders (p_keep: for how many microseconds)
create function {schema}.hold_v1(
    p_holder bytea, p_names text[], p_costs bigint[], p_ttl bigint, p_limits jsonb, p_keep bigint, p_info bytea, p_fenced boolean,
    p_now bigint
) returns table (
    ok boolean, now bigint, until bigint, next_at bigint, full_at integer, kept boolean, token bigint, woken text[]
) language plpgsql as $$
#variable_conflict use_column
declare
    v_now bigint;
    v_held record;
    v_reserved jsonb;
    v_full record;
    v_token bigint;
begin
    perform {schema}.guard_v1();
    if p_limits is not null then
        perform {schema}.add_limits_v1(p_limits);
    end if;
    perform pg_advisory_xact_lock_shared({schema}.queue_modes_lock_v1());
    perform {schema}.lock_buckets_v1(
        case when cardinality(p_names) > 0 then p_names
        else array(select g.bucket from {schema}.holders g where g.holder = p_holder order by 1) end
    );
    v_now := {schema}.now_v1(p_now);
    with kept as (
        update {schema}.holders g set until = greatest(g.until, v_now + p_ttl) where g.holder = p_holder and g.until > v_now
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
    delete from {schema}.holders g where g.holder = p_holder;
    v_reserved := {schema}.take_reservations_v1(p_names, v_now);
    select f.* into v_full from {schema}.find_full_buckets_v1(p_names, p_costs, v_now) f;
    if v_full.at is not null then
        return query select false, v_now, 0::bigint, v_full.next_at, v_full.at, k.kept, 0::bigint, k.woken
        from {schema}.reserve_places_v1(v_full.names, v_reserved, case when v_full.counts then p_keep else 0 end, v_now) k;
        return;
    end if;
    v_token := {schema}.add_holder_v1(p_holder, p_names, p_costs, v_now + p_ttl, p_info, p_fenced, v_now);
    return query select true, v_now, v_now + p_ttl, null::bigint, null::integer, false, v_token, '{}'::text[];
end
$$;

-- find_full_buckets: those of these buckets, which the caller has locked, that have no capacity for their costs.
-- returns the position of the first, when all of them may have capacity, their names, and whether all of them count what
-- runs; the position is null if all have capacity
create function {schema}.find_full_buckets_v1(
    p_names text[], p_costs bigint[], p_now bigint, out at integer, out next_at bigint, out names text[], out counts boolean
) language plpgsql as $$
begin
    select min(u.n), case when bool_and(m.at is not null) then max(m.at) end, array_agg(u.name),
        bool_and(r.kind = {LIMIT_CONCURRENCY})
    into at, next_at, names, counts
    from unnest(p_names, p_costs) with ordinality as u(name, cost, n)
    join unnest({schema}.read_capacities_v1(p_names, p_now)) r on r.name = u.name
    cross join lateral (select {schema}.find_next_start_v1(u.name, u.cost, p_now) as at) m
    where r.available < greatest(1, least(u.cost, r.cap));
end
$$;

-- add_holder: give a holder capacity in all of these buckets, which have it, and charge their rates. returns the token
create function {schema}.add_holder_v1(
    p_holder bytea, p_names text[], p_costs bigint[], p_until bigint, p_info bytea, p_fenced boolean, p_now bigint
) returns bigint language plpgsql as $$
declare
    v_token bigint := case when p_fenced then {schema}.next_token_v1(p_names, p_now) else 0 end;
begin
    insert into {schema}.holders (holder, bucket, cost, until, token, since, info)
    select p_holder, u.name, u.cost, p_until, v_token, p_now, p_info from unnest(p_names, p_costs) as u(name, cost);
    perform {schema}.charge_rates_v1(
        '', array(select u.name from unnest(p_names) with ordinality as u(name, n) order by u.n),
        array(
            select least(u.cost, r.unit) from unnest(p_names, p_costs) with ordinality as u(name, cost, n)
            join unnest({schema}.read_capacities_v1(p_names, p_now)) r on r.name = u.name order by u.n
        ), null, p_now
    );
    return v_token;
end
$$;

-- take_reservations: remove the reserved places of these buckets. returns, by bucket, until when they were reserved
create function {schema}.take_reservations_v1(p_names text[], p_now bigint) returns jsonb language plpgsql as $$
declare
    v_reserved jsonb;
begin
    with gone as (
        delete from {schema}.holders g where g.holder = {RESERVED_PLACE} and g.bucket = any(p_names) returning g.bucket, g.until
    )
    select jsonb_object_agg(g.bucket, g.until) into v_reserved from gone g where g.until > p_now;
    return coalesce(v_reserved, '{}');
end
$$;

-- reserve_places: reserve the next place in each of these buckets, and the places that were reserved before, for
-- holders, unless a holder has just released one there. returns whether each bucket has a reserved place, and the
-- queues to wake
create function {schema}.reserve_places_v1(p_names text[], p_reserved jsonb, p_keep bigint, p_now bigint, out kept boolean,
    out woken text[])
language plpgsql as $$
declare
    v_asked text[] := '{}';
begin
    if p_keep > 0 then
        v_asked := array(
            select u.name from unnest(p_names) as u(name) where not exists (
                select 1 from {schema}.holders g where g.holder = {RESTED_BUCKET} and g.bucket = '=' || u.name and g.until > p_now
            )
        );
    end if;
    woken := {schema}.recheck_waiting_v1(array(select u.name from unnest(v_asked) as u(name) where not p_reserved ? u.name));
    p_reserved := p_reserved || coalesce((
        select jsonb_object_agg(u.name, greatest((p_reserved ->> u.name)::bigint, p_now + p_keep)) from unnest(v_asked) as u(name)
    ), '{}');
    insert into {schema}.holders (holder, bucket, cost, until) select {RESERVED_PLACE}, k.key, 0, k.value::bigint
        from jsonb_each_text(p_reserved) k;
    kept := p_reserved ?& p_names;
end
$$;

-- release: free what a holder holds. returns whether it held anything, and the queues in which a job may start
create function {schema}.release_v1(p_holder bytea, p_spent jsonb, p_slow bigint, p_now bigint)
returns table (held boolean, woken text[]) language plpgsql as $$
#variable_conflict use_column
declare
    v_names text[] := array(select g.bucket from {schema}.holders g where g.holder = p_holder);
    v_now bigint;
    v_gone text[];
    v_costs bigint[];
begin
    perform {schema}.guard_v1();
    perform {schema}.lock_buckets_v1(v_names);
    v_now := {schema}.now_v1(p_now);
    with gone as (
        delete from {schema}.holders g where g.holder = p_holder and g.bucket = any(v_names) and g.until > v_now
        returning g.bucket, g.cost
    )
    select array_agg(o.bucket), array_agg(o.cost) into v_gone, v_costs from gone o;
    if v_gone is null then
        return query select false, '{}'::text[];
        return;
    end if;
    -- Under a name that no bucket has, so that it uses no capacity.
    insert into {schema}.holders (holder, bucket, cost, until)
    select {RESTED_BUCKET}, '=' || k.name, 0, v_now + {HOLDER_REST}
        from jsonb_object_keys({schema}.take_reservations_v1(v_gone, v_now)) as k(name)
    on conflict (holder, bucket) do update set until = excluded.until;
    perform {schema}.correct_costs_v1(v_gone, v_costs, p_spent, p_slow, v_now);
    return query select true, {schema}.recheck_freed_v1(v_gone, p_spent is not null, v_now);
end
$$;

-- holders: holders whose time is not over, of one bucket, or with p_after of the buckets from p_bucket up to that name.
create function {schema}.holders_v1(p_bucket text, p_after text, p_limit integer, p_now bigint)
returns table (bucket text, holder bytea, token bigint, since bigint, until bigint, remaining bigint, info bytea)
    language plpgsql as $$
#variable_conflict use_column
declare
    v_now bigint := {schema}.now_v1(p_now);
begin
    return query
    select g.bucket::text, g.holder, g.token, g.since, g.until, g.until - v_now, g.info from {schema}.holders g
    where g.bucket >= p_bucket and (g.bucket < p_after or p_after is null and g.bucket = p_bucket) and g.until > v_now
        and g.holder not in ({RESERVED_PLACE}, {RESTED_BUCKET})
    order by g.bucket, g.since, g.holder limit p_limit;
end
$$;
