-- make_limits: store those of these limits that nobody knows; the others stand as they are, and are not locked
create function {schema}.make_limits_v1(p_limits jsonb) returns void language plpgsql as $$
begin
    insert into {schema}.limits (name, kind, size, per, burst, share, span)
    select u.name, u.kind, u.size, u.per, u.burst, u.share, u.span
    from jsonb_to_recordset(p_limits)
        as u(name text, kind text, size bigint, per bigint, burst bigint, share bigint, span bigint)
    where not exists (select 1 from {schema}.limits l where l.name = any(array[u.name]))
    order by u.name collate "C"
    on conflict (name) do nothing;
end
$$;

-- declare: store these limits, over those of the same names. returns the queues in which something may start now
create function {schema}.declare_v1(p_limits jsonb) returns text[] language plpgsql as $$
declare
    v_changed text[] := array(
        select u.name from jsonb_to_recordset(p_limits)
            as u(name text, kind text, size bigint, per bigint, burst bigint, share bigint, span bigint)
        where not exists (
            select 1 from {schema}.limits l
            where l.name = any(array[u.name])
                and (l.kind, l.size, l.per, l.burst, l.share, l.span) = (u.kind, u.size, u.per, u.burst, u.share, u.span)
        )
    );
begin
    perform {schema}.guard_v1();
    if cardinality(v_changed) = 0 then
        return '{}';
    end if;
    insert into {schema}.limits (name, kind, size, per, burst, share, span)
    select u.name, u.kind, u.size, u.per, u.burst, u.share, u.span
    from jsonb_to_recordset(p_limits)
        as u(name text, kind text, size bigint, per bigint, burst bigint, share bigint, span bigint)
    where u.name = any(v_changed)
    order by u.name collate "C"
    on conflict (name) do update
    set kind = excluded.kind, size = excluded.size, per = excluded.per, burst = excluded.burst, share = excluded.share,
        span = excluded.span;
    return {schema}.changed_v1(v_changed);
end
$$;

-- set_size: what a limit lets through in place of its declared size; null takes that back. returns null for no limit
create function {schema}.set_size_v1(p_limit text, p_size bigint) returns text[] language plpgsql as $$
begin
    perform {schema}.guard_v1();
    update {schema}.limits l set set_size = p_size where l.name = p_limit;
    return case when found then {schema}.changed_v1(array[p_limit]) end;
end
$$;

-- forget_limit: its buckets let everything through. returns null for no limit
create function {schema}.forget_limit_v1(p_limit text) returns text[] language plpgsql as $$
begin
    perform {schema}.guard_v1();
    delete from {schema}.breakers b where b.name = p_limit;
    delete from {schema}.limits l where l.name = p_limit;
    return case when found then {schema}.changed_v1(array[p_limit]) end;
end
$$;

-- changed: wait for the turns that have read these limits already; no turn reads meanwhile. Whatever waits for their buckets
-- has to be looked at again: see stir. The caller has written the limits: a producer's open transaction is waited for before,
-- never here
create function {schema}.changed_v1(p_limits text[]) returns text[] language plpgsql as $$
declare
    v_woken text[];
begin
    perform pg_advisory_xact_lock({schema}.modes_lock_v1());
    insert into {schema}.stirs (name, bucket) select u.name, u.name from unnest(p_limits) as u(name) order by u.name collate "C"
    on conflict (name) do update set bucket = excluded.bucket;
    with told as (
        delete from {schema}.waits w using unnest(p_limits) as u(name) where w.bucket = any(array[u.name]) returning w.queue
    )
    select array(select distinct t.queue from told t) into v_woken;
    return v_woken;
end
$$;

-- stir: open the next lanes that wait for a limit which was changed. What a turn has in hand is passed over: it has read the
-- limit as it stands. returns the queues in which something may start, and whether there is more to open
create function {schema}.stir_v1(p_limit integer, out woken text[], out more boolean) language plpgsql as $$
declare
    v_stir {schema}.stirs;
    v_lanes bigint[];
    v_last text;
begin
    select s.* into v_stir from {schema}.stirs s order by s.name limit 1 for update;
    woken := '{}';
    more := found;
    if not found then
        return;
    end if;
    select coalesce(array_agg(n.id), '{}'), max(n.parked_on) into v_lanes, v_last from (
        select l.id, l.parked_on from {schema}.lanes l
        where l.parked_on >= v_stir.bucket and l.parked_on < v_stir.name || '>' and split_part(l.parked_on, '=', 1) = v_stir.name
        order by l.parked_on limit p_limit for no key update skip locked
    ) n;
    if cardinality(v_lanes) < p_limit then
        delete from {schema}.stirs s where s.name = v_stir.name;
    else
        update {schema}.stirs s set bucket = v_last where s.name = v_stir.name;
    end if;
    with opened as (
        update {schema}.lanes l set parked_on = null, parked_until = null from unnest(v_lanes) as i(id)
        where l.id = any(array[i.id]) returning l.queue
    )
    select array(select distinct o.queue from opened o) into woken;
    more := exists (select 1 from {schema}.stirs);
end
$$;
