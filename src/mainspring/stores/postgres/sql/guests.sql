-- number: the next number of these buckets, which the caller has locked: larger than any that they gave
create function {schema}.number_v1(p_names text[], p_now bigint) returns bigint language plpgsql as $$
#variable_conflict use_column
declare
    v_token bigint := greatest(p_now, (select max(f.token) + 1 from {schema}.fences f where f.bucket = any(p_names)));
begin
    insert into {schema}.fences (bucket, token) select n, v_token from unnest(p_names) n
    on conflict (bucket) do update set token = excluded.token;
    return v_token;
end
$$;

-- admit: places outside of a claim: room in all of these buckets, or in none. A guest that has places has them for longer;
-- without buckets nothing else is done
-- returns whether it has them, until when, and their number; else the place of the first bucket without room, when to ask
-- again, and whether the next places are kept for guests: p_keep is for how long
create function {schema}.admit_v1(
    p_guest bytea, p_names text[], p_costs bigint[], p_ttl bigint, p_limits jsonb, p_keep bigint, p_info bytea, p_fenced boolean,
    p_now bigint
) returns table (
    ok boolean, now bigint, until bigint, next_at bigint, full_at integer, kept boolean, news text[], token bigint, woken text[]
) language plpgsql as $$
#variable_conflict use_column
declare
    v_now bigint;
    v_full integer;
    v_next bigint;
    v_stuck text[];
    v_counts boolean;
    v_kept jsonb;
    v_token bigint;
    v_until bigint;
    v_news text[] := '{}';
begin
    perform {schema}.guard_v1();
    if p_limits is not null then
        perform {schema}.make_limits_v1(p_limits);
    end if;
    perform pg_advisory_xact_lock_shared({schema}.modes_lock_v1());
    perform {schema}.lock_buckets_v1(
        case when cardinality(p_names) > 0 then p_names
        else array(select g.bucket from {schema}.guests g where g.guest = p_guest order by 1) end
    );
    v_now := {schema}.now_v1(p_now);
    with kept as (
        update {schema}.guests g set until = greatest(g.until, v_now + p_ttl) where g.guest = p_guest and g.until > v_now
        returning g.token, g.until
    )
    select max(k.token), max(k.until) into v_token, v_until from kept k;
    if v_token is null and cardinality(p_names) = 0 then
        return query select false, v_now, 0::bigint, null::bigint, null::integer, false, '{}'::text[], 0::bigint, '{}'::text[];
        return;
    end if;
    if v_token is null then
        v_until := v_now + p_ttl;
        delete from {schema}.guests g where g.guest = p_guest;
        v_kept := {schema}.kept_v1(p_names, v_now);
        select min(u.n), case when bool_and(m.at is not null) then max(m.at) end, array_agg(u.name), bool_and(r.kind = 'concurrency')
        into v_full, v_next, v_stuck, v_counts
        from unnest(p_names, p_costs) with ordinality as u(name, cost, n)
        join unnest({schema}.rooms_v1(p_names, v_now)) r on r.name = u.name
        cross join lateral (select {schema}.next_at_v1(u.name, u.cost, v_now) as at) m
        where r.room < greatest(1, least(u.cost, r.cap));
        if v_full is not null then
            return query select false, v_now, 0::bigint, v_next, v_full, k.kept, '{}'::text[], 0::bigint, k.woken
            from {schema}.keep_v1(v_stuck, v_kept, case when v_counts then p_keep else 0 end, v_now) k;
            return;
        end if;
        v_token := case when p_fenced then {schema}.number_v1(p_names, v_now) else 0 end;
        insert into {schema}.guests (guest, bucket, cost, until, token, since, info)
        select p_guest, u.name, u.cost, v_until, v_token, v_now, p_info from unnest(p_names, p_costs) as u(name, cost);
        perform {schema}.use_up_v1(
            '', array(select u.name from unnest(p_names) with ordinality as u(name, n) order by u.n),
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
    return query select true, v_now, v_until, null::bigint, null::integer, false, v_news, v_token, '{}'::text[];
end
$$;

-- kept: of these buckets, those in which a place is kept for guests, and until when: now it is not
create function {schema}.kept_v1(p_names text[], p_now bigint) returns jsonb language plpgsql as $$
declare
    v_kept jsonb;
begin
    with gone as (
        delete from {schema}.guests g where g.guest = 'next' and g.bucket = any(p_names) returning g.bucket, g.until
    )
    select jsonb_object_agg(g.bucket, g.until) into v_kept from gone g where g.until > p_now;
    return coalesce(v_kept, '{}');
end
$$;

-- keep: the next places in these buckets, and those that were kept, are kept for guests, unless one has just given a place back
-- there. returns whether one is kept in each of them, and the queues in which somebody has to learn of that
create function {schema}.keep_v1(p_names text[], p_kept jsonb, p_keep bigint, p_now bigint, out kept boolean, out woken text[])
language plpgsql as $$
declare
    v_asked text[] := '{}';
begin
    if p_keep > 0 then
        v_asked := array(
            select u.name from unnest(p_names) as u(name) where not exists (
                select 1 from {schema}.guests g where g.guest = 'rest' and g.bucket = '=' || u.name and g.until > p_now
            )
        );
    end if;
    woken := {schema}.look_again_v1(array(select u.name from unnest(v_asked) as u(name) where not p_kept ? u.name));
    p_kept := p_kept || coalesce((
        select jsonb_object_agg(u.name, greatest((p_kept ->> u.name)::bigint, p_now + p_keep)) from unnest(v_asked) as u(name)
    ), '{}');
    insert into {schema}.guests (guest, bucket, cost, until) select 'next', k.key, 0, k.value::bigint from jsonb_each_text(p_kept) k;
    kept := p_kept ?& p_names;
end
$$;

-- look_again: whoever waits for these buckets, which the caller has locked, is to learn when there may be room: one of each
-- group is enough. returns the queues concerned
create function {schema}.look_again_v1(p_names text[]) returns text[] language plpgsql as $$
declare
    v_lanes bigint[];
    v_woken text[];
begin
    with recursive groups as (
        select u.name, n.* from unnest(p_names) as u(name) cross join lateral (
            select l.grp, l.id from {schema}.lanes l where l.parked_on = u.name order by l.grp, l.priority desc, l.seq limit 1
        ) n
        union all
        select g.name, n.* from groups g cross join lateral (
            select l.grp, l.id from {schema}.lanes l where l.parked_on = g.name and l.grp > g.grp
            order by l.grp, l.priority desc, l.seq limit 1
        ) n
    )
    select coalesce(array_agg(g.id order by g.id), '{}') into v_lanes from groups g;
    perform 1 from unnest(v_lanes) as i(id) join {schema}.lanes l on l.id = any(array[i.id]) for no key update of l;
    with opened as (
        update {schema}.lanes l set parked_on = null, parked_until = null from unnest(v_lanes) as i(id)
        where l.id = any(array[i.id]) returning l.queue
    ), told as (
        delete from {schema}.waits w where w.bucket = any(p_names) returning w.queue
    )
    select array(select o.queue from opened o union select t.queue from told t) into v_woken;
    return v_woken;
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
    -- Under a name that no bucket has: it uses nothing up.
    insert into {schema}.guests (guest, bucket, cost, until)
    select 'rest', '=' || k.name, 0, v_now + 1000000 from jsonb_object_keys({schema}.kept_v1(v_gone, v_now)) as k(name)
    on conflict (guest, bucket) do update set until = excluded.until;
    perform {schema}.amend_v1(v_gone, v_costs, p_spent, p_slow, v_now);
    return query select true, {schema}.freed_v1(v_gone, p_spent is not null, v_now);
end
$$;

-- guests_in: guests whose time is not over, of one bucket, or with p_after of those from there up to that name; places that
-- are kept are none
create function {schema}.guests_in_v1(p_bucket text, p_after text, p_limit integer, p_now bigint)
returns table (bucket text, guest bytea, token bigint, since bigint, until bigint, remaining bigint, info bytea) language plpgsql as $$
#variable_conflict use_column
declare
    v_now bigint := {schema}.now_v1(p_now);
begin
    return query
    select g.bucket::text, g.guest, g.token, g.since, g.until, g.until - v_now, g.info from {schema}.guests g
    where g.bucket >= p_bucket and (g.bucket < p_after or p_after is null and g.bucket = p_bucket) and g.until > v_now
        and g.guest not in ('next', 'rest')
    order by g.bucket, g.since, g.guest limit p_limit;
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
    select u.n, r.kind, r.size,
        -- While all places are taken, the next one that is kept for guests is none of them.
        r.used - (r.kind = 'concurrency' and r.used > r.size and exists (
            select 1 from {schema}.guests g where g.guest = 'next' and g.bucket = u.name and g.until > v_now
        ))::integer,
        {schema}.next_at_v1(u.name, u.cost, v_now), array(
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
