-- Limits as code declares them and as operators change them.
--
-- A change of a limit is written first. Then the function waits for the turns that have read the limit already, notes
-- the limit in the table rechecks, and rechecks the first {RECHECK_SLICE} lanes that wait for buckets of this limit. So the
-- change is one step. If more lanes wait, they are rechecked in slices afterwards, by the caller or by promotions
-- (recheck_changed_limits): a change of a limit with a million waiting lanes stays short.

-- add_limits: store those of these limits that are not stored yet. Stored limits are neither changed nor locked.
create function {schema}.add_limits_v1(p_limits jsonb) returns void language plpgsql as $$
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

-- declare_limits: store these limits in place of the stored limits with the same names.
-- returns the queues in which a job may start now
create function {schema}.declare_limits_v1(p_limits jsonb) returns text[] language plpgsql as $$
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
    return {schema}.request_rechecks_v1(v_changed);
end
$$;

-- set_limit_size: set the size that replaces the declared size of a limit; null removes it.
-- returns the queues in which a job may start now; null if the limit does not exist
create function {schema}.set_limit_size_v1(p_limit text, p_size bigint) returns text[] language plpgsql as $$
begin
    perform {schema}.guard_v1();
    update {schema}.limits l set set_size = p_size where l.name = p_limit;
    return case when found then {schema}.request_rechecks_v1(array[p_limit]) end;
end
$$;

-- forget_limit: delete a limit. Its buckets no longer hold anything back.
-- returns the queues in which a job may start now; null if the limit does not exist
create function {schema}.forget_limit_v1(p_limit text) returns text[] language plpgsql as $$
begin
    perform {schema}.guard_v1();
    delete from {schema}.breakers b where b.name = p_limit;
    delete from {schema}.limits l where l.name = p_limit;
    return case when found then {schema}.request_rechecks_v1(array[p_limit]) end;
end
$$;

-- request_rechecks: wait for the turns that have read these limits already; no turn reads a limit meanwhile. Then note
-- that the lanes which wait for buckets of these limits must be rechecked. The caller has written the limits before: it
-- waits for the open transaction of a producer there, never here.
-- returns the queues in which a job waits for an unkeyed bucket of these limits, or in which a lane was rechecked
create function {schema}.request_rechecks_v1(p_limits text[]) returns text[] language plpgsql as $$
declare
    v_woken text[];
begin
    perform pg_advisory_xact_lock({schema}.queue_modes_lock_v1());
    insert into {schema}.rechecks (name, bucket) select u.name, u.name from unnest(p_limits) as u(name)
        order by u.name collate "C"
    on conflict (name) do update set bucket = excluded.bucket;
    with waiting as (
        delete from {schema}.waiting_queues w using unnest(p_limits) as u(name)
            where w.bucket = any(array[u.name]) returning w.queue
    )
    select array(select distinct t.queue from waiting t) into v_woken;
    return v_woken || (select s.woken from {schema}.recheck_changed_limits_v1() s);
end
$$;

-- recheck_changed_limits: recheck the next {RECHECK_SLICE} lanes that wait for a limit which was changed. A lane that a turn
-- has locked is skipped: that turn has read the new limit.
-- returns the queues in which a job may start, and whether more lanes are left
create function {schema}.recheck_changed_limits_v1(out woken text[], out more boolean) language plpgsql as $$
declare
    c_slice constant integer := {RECHECK_SLICE};
    v_recheck {schema}.rechecks;
    v_lanes bigint[];
    v_last text;
begin
    select s.* into v_recheck from {schema}.rechecks s order by s.name limit 1 for update;
    woken := '{}';
    more := found;
    if not found then
        return;
    end if;
    select coalesce(array_agg(n.id), '{}'), max(n.waits_for) into v_lanes, v_last from (
        select l.id, l.waits_for from {schema}.keyed_lanes l
        where l.waits_for >= v_recheck.bucket and l.waits_for < v_recheck.name || '>'
            and split_part(l.waits_for, '=', 1) = v_recheck.name
        order by l.waits_for limit c_slice for no key update skip locked
    ) n;
    if cardinality(v_lanes) < c_slice then
        delete from {schema}.rechecks s where s.name = v_recheck.name;
    else
        update {schema}.rechecks s set bucket = v_last where s.name = v_recheck.name;
    end if;
    with opened as (
        update {schema}.keyed_lanes l set waits_for = null, recheck_at = null from unnest(v_lanes) as i(id)
        where l.id = any(array[i.id]) returning l.queue
    )
    select array(select distinct o.queue from opened o) into woken;
    more := exists (select 1 from {schema}.rechecks);
end
$$;
