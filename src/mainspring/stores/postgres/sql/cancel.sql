-- cancel: blocked, scheduled, retrying, ready -> cancelled (by_user); running gets an order, told with its owner's next turn
-- One live table and a lock by id first: a claim that commits meanwhile leaves a running row to be found, never nothing.
-- returns what was done (state null) and what was refused with its state
create function {schema}.cancel_v1(p_ids bytea[], p_reason text, p_now bigint)
returns table (id bytea, state text)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
    v_now bigint;
    v_live bytea[];
    v_waiting {schema}.ending_v1[];
begin
    perform {schema}.guard_v1();
    perform 1 from {schema}.jobs j where j.id = any(p_ids) order by j.id for update;
    v_now := {schema}.now_v1(p_now);
    v_live := array(select j.id from {schema}.jobs j where j.id = any(p_ids));
    return query
    select f.id, f.state from {schema}.finished f where f.id = any(p_ids) and f.id <> all(v_live)
    union all
    select d.id, d.state from {schema}.dead d where d.id = any(p_ids) and d.id <> all(v_live);
    update {schema}.jobs j set ordered = coalesce(j.ordered, p_reason)
    where j.id = any(v_live) and j.state || '' = 'running';
    v_waiting := array(
        select row(j.id, 'cancelled', 'by_user', null, null, 0)::{schema}.ending_v1 from {schema}.jobs j
        where j.id = any(v_live) and j.state || '' <> 'running'
    );
    perform {schema}.finish_v1(v_waiting, v_now);
    return query select u.id, null from unnest(v_live) u(id);
end
$$;
