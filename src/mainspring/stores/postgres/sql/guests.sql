-- admit: places outside of a claim: room in all of these buckets, or in none. A guest that has places has them for longer
-- returns whether it has them, until when; else the place of the first bucket without room, and when to ask again
create function {schema}.admit_v1(
    p_guest bytea, p_names text[], p_costs bigint[], p_ttl bigint, p_limits jsonb, p_now bigint
) returns table (ok boolean, now bigint, until bigint, next_at bigint, full_at integer, news text[]) language plpgsql as $$
#variable_conflict use_column
declare
    v_now bigint;
    v_full integer;
    v_next bigint;
    v_news text[] := '{}';
begin
    perform {schema}.guard_v1();
    if p_limits is not null then
        perform {schema}.make_limits_v1(p_limits);
    end if;
    perform pg_advisory_xact_lock_shared({schema}.modes_lock_v1());
    perform {schema}.lock_buckets_v1(p_names);
    v_now := {schema}.now_v1(p_now);
    update {schema}.guests g set until = v_now + p_ttl where g.guest = p_guest and g.until > v_now;
    if not found then
        delete from {schema}.guests g where g.guest = p_guest;
        select min(u.n), case when bool_and(m.at is not null) then max(m.at) end into v_full, v_next
        from unnest(p_names, p_costs) with ordinality as u(name, cost, n)
        join unnest({schema}.rooms_v1(p_names, v_now)) r on r.name = u.name
        cross join lateral (select {schema}.next_at_v1(u.name, u.cost, v_now) as at) m
        where r.room < greatest(1, least(u.cost, r.cap));
        if v_full is not null then
            return query select false, v_now, 0::bigint, v_next, v_full, '{}'::text[];
            return;
        end if;
        insert into {schema}.guests (guest, bucket, cost, until)
        select p_guest, u.name, u.cost, v_now + p_ttl from unnest(p_names, p_costs) as u(name, cost);
        perform {schema}.use_up_v1(
            array(select u.name from unnest(p_names) with ordinality as u(name, n) order by u.n),
            array(
                select least(u.cost, r.unit) from unnest(p_names, p_costs) with ordinality as u(name, cost, n)
                join unnest({schema}.rooms_v1(p_names, v_now)) r on r.name = u.name order by u.n
            ), v_now
        );
        if {schema}.guarded_v1(p_names) then
            perform {schema}.probe_v1(p_names, v_now);
            v_news := array(select n from {schema}.news_v1(p_names, v_now) n);
        end if;
    end if;
    return query select true, v_now, v_now + p_ttl, null::bigint, null::integer, v_news;
end
$$;

-- give: the places of a guest are free again. returns whether it had any, and the queues in which something may start
create function {schema}.give_v1(p_guest bytea, p_spent jsonb, p_slow bigint, p_now bigint)
returns table (held boolean, woken text[]) language plpgsql as $$
#variable_conflict use_column
declare
    v_names text[] := array(select g.bucket from {schema}.guests g where g.guest = p_guest);
    v_now bigint;
    v_gone text[];
    v_costs bigint[];
begin
    perform {schema}.guard_v1();
    perform {schema}.lock_buckets_v1(v_names);
    v_now := {schema}.now_v1(p_now);
    with gone as (
        delete from {schema}.guests g where g.guest = p_guest and g.bucket = any(v_names) and g.until > v_now
        returning g.bucket, g.cost
    )
    select array_agg(o.bucket), array_agg(o.cost) into v_gone, v_costs from gone o;
    if v_gone is null then
        return query select false, '{}'::text[];
        return;
    end if;
    perform {schema}.amend_v1(v_gone, v_costs, p_spent, p_slow, v_now);
    return query select true, {schema}.freed_v1(v_gone, p_spent is not null, v_now);
end
$$;

-- look_at: how these buckets stand, by the rules of a claim, and who is in them; those whose limit nobody knows are left out
create function {schema}.look_at_v1(p_names text[], p_costs bigint[], p_now bigint)
returns table (at bigint, kind text, size bigint, used bigint, next_at bigint, holders bytea[], breaker text) language plpgsql as $$
#variable_conflict use_column
declare
    v_now bigint := {schema}.now_v1(p_now);
begin
    return query
    select u.n, r.kind, r.size, r.used, {schema}.next_at_v1(u.name, u.cost, v_now), array(
        select j.id from {schema}.uses x cross join lateral (
            select o.id, o.started from {schema}.jobs o
            where o.state = 'running' and o.worker = x.worker and u.name = any(o.buckets)
        ) j
        where x.bucket = u.name order by j.started, j.id limit 10
    ), case when r.kind = 'breaker' then {schema}.breaker_v1(u.name, v_now) end
    from unnest(p_names, p_costs) with ordinality as u(name, cost, n)
    cross join lateral (select (({schema}.rooms_v1(array[u.name], v_now))[1]).*) r
    where r.kind is not null order by u.n;
end
$$;
