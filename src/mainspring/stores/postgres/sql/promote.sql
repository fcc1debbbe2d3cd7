-- promote: scheduled, retrying -> ready when due, in the order of due; any waiting -> cancelled (expired), which goes first
-- Lanes that waited for a moment that has come are opened, and those of a limit that was changed. Parts of which there is news
-- are looked at.
-- returns how many were promoted, which expired, the queues that got work, and when to come again
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
    v_stirred text[];
    v_more boolean := false;
begin
    perform {schema}.guard_v1();
    v_expired := array(
        select j.id from {schema}.jobs j where j.expires is not null and j.state <> 'running' and j.expires <= v_now
        order by j.expires limit p_limit for update skip locked
    );
    v_woken := {schema}.finish_v1(
        array(select row(x.id, 'cancelled', 'expired', null, null, null, null, 0)::{schema}.ending_v1 from unnest(v_expired) x(id)), v_now
    );
    v_due := array(
        select j.id from {schema}.jobs j where j.state in ('scheduled', 'retrying') and j.due <= v_now
            and (j.expires is null or j.expires > v_now)
        order by j.due, j.seq limit p_limit for update skip locked
    );
    with placed as materialized (  -- once and in order, whichever way the join goes
        select d.id, nextval('{schema}.seq') as seq
        from (select * from unnest(v_due) with ordinality as x(id, n) order by x.n) d
    ), ready as (
        update {schema}.jobs j set state = 'ready', due = null, seq = case when j.seq < 0 then -u.seq else u.seq end
        from placed u
        where j.id = any(array[u.id])
        returning j.id, j.queue, j.buckets
    )
    select array(select distinct r.queue from ready r order by r.queue),
        array(select r.id from ready r where r.buckets is not null)
    into v_queues, v_limited;
    if cardinality(v_limited) > 0 then
        perform {schema}.line_up_v1(v_limited, false);
    end if;
    if exists (select 1 from {schema}.part_news) then
        v_woken := v_woken || {schema}.hear_news_v1(p_limit, v_now);
    end if;
    v_woken := v_woken || {schema}.open_due_v1(p_limit, v_now);  -- last: who holds rows of lanes waits for nobody
    if exists (select 1 from {schema}.stirs) then
        select s.woken, s.more into v_stirred, v_more from {schema}.stir_v1(p_limit) s;
        v_woken := v_woken || v_stirred;
    end if;
    return query select v_now, cardinality(v_due), v_expired, v_queues, v_woken,
        least(
            case when v_more then v_now end,
            (select j.due from {schema}.jobs j where j.state in ('scheduled', 'retrying') order by j.due limit 1),
            (select j.expires from {schema}.jobs j where j.expires is not null and j.state <> 'running'
             order by j.expires limit 1),
            (select l.parked_until from {schema}.lanes l where l.parked_until is not null order by l.parked_until limit 1)
        );
end
$$;
