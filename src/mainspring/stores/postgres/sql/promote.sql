-- scheduled, retrying -> ready when due; any waiting state -> cancelled (expired).

-- promote: expired jobs first, then a step of a flow that has ended, then due jobs in the order of due. Then recheck lanes whose moment has come, and lanes of
-- changed limits.
-- returns how many were promoted, which expired, the queues that got work, the queues to wake, and when to call again
create function {schema}.promote_v1(p_limit integer, p_now bigint)
returns table (now bigint, promoted integer, ended bytea[], queues text[], woken text[], next_due bigint)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    v_now bigint := {schema}.now_v1(p_now);
    v_expired bytea[];
    v_due bytea[];
    v_queues text[];
    v_woken text[];
    v_limited bytea[];
    v_rechecked text[];
    v_more boolean := false;
begin
    perform {schema}.guard_v1();
    perform {schema}.note_time_v1(v_now);
    perform {schema}.follow_clock_v1(v_now);
    v_expired := array(
        select j.id from {schema}.jobs j where j.expires is not null and j.state <> {RUNNING} and j.expires <= v_now
        order by j.expires limit p_limit for update skip locked
    );
    v_woken := {schema}.finish_v1(
        array(select row(x.id, {CANCELLED}, {EXPIRED}, null, null, null, null, 0, null)::{schema}.ending_v1
            from unnest(v_expired) x(id)), v_now
    );
    v_woken := v_woken || {schema}.advance_flows_v1(p_limit, v_now);
    v_due := array(
        select j.id from {schema}.jobs j where j.state in ({SCHEDULED}, {RETRYING}) and j.due <= v_now
            and (j.expires is null or j.expires > v_now)
        order by j.due, j.seq limit p_limit for update skip locked
    );
    with placed as materialized (  -- numbered once and in order, whatever the plan of the join is
        select d.id, nextval('{schema}.seq') as seq
        from (select * from unnest(v_due) with ordinality as x(id, n) order by x.n) d
    ), ready as (
        update {schema}.jobs j set state = {READY}, due = null, seq = case when j.seq < 0 then -u.seq else u.seq end
        from placed u
        where j.id = any(array[u.id])
        returning j.id, j.queue, j.buckets
    )
    select array(select distinct r.queue from ready r order by r.queue),
        array(select r.id from ready r where r.buckets is not null)
    into v_queues, v_limited;
    if cardinality(v_limited) > 0 then
        perform {schema}.add_lane_rows_v1(v_limited, false);
    end if;
    -- last: a transaction that has locked rows of lanes must not wait
    v_woken := v_woken || {schema}.recheck_due_lanes_v1(p_limit, v_now);
    if exists (select 1 from {schema}.rechecks) then
        select s.woken, s.more into v_rechecked, v_more from {schema}.recheck_changed_limits_v1() s;
        v_woken := v_woken || v_rechecked;
    end if;
    return query select v_now, cardinality(v_due), v_expired, v_queues, v_woken,
        least(case when v_more then v_now end, {schema}.next_promotion_v1());
end
$$;

-- next_promotion: when the next job is due or expires, the next lane is to be rechecked, or a flow has more to do
create function {schema}.next_promotion_v1() returns bigint language plpgsql as $$
begin
    return least(
        (select j.due from {schema}.jobs j where j.state in ({SCHEDULED}, {RETRYING}) order by j.due limit 1),
        (select j.expires from {schema}.jobs j where j.expires is not null and j.state <> {RUNNING}
         order by j.expires limit 1),
        (select l.recheck_at from {schema}.keyed_lanes l where l.recheck_at is not null order by l.recheck_at limit 1),
        (select w.at from {schema}.flow_work w order by w.at limit 1)
    );
end
$$;
