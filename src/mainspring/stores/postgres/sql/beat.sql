-- beat: count up the numbers of the workers that have a row and are not lost; make the rows of those that register
-- returns the living, with their numbers
create function {schema}.beat_v1(
    p_worker text[], p_new text[], p_queues text[], p_tasks text[], p_lease bigint[], p_info bytea[], p_now bigint
) returns table (id text, number bigint)
language plpgsql
set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
    v_now bigint;
    v_made text[];
begin
    perform 1 from {schema}.workers w where w.id = any(p_worker) order by w.id for update;
    v_now := {schema}.now_v1(p_now);
    with made as (
        insert into {schema}.workers (id, number, started, seen, queues, tasks, lease, info)
        select r.id, 0, v_now, v_now, array(select jsonb_array_elements_text(r.queues::jsonb)),
            array(select jsonb_array_elements_text(r.tasks::jsonb)), r.lease, r.info
        from unnest(p_new, p_queues, p_tasks, p_lease, p_info) as r(id, queues, tasks, lease, info)
        order by r.id
        on conflict (id) do update set info = excluded.info where not workers.lost
        returning workers.id
    ) select array_agg(made.id) into v_made from made;
    return query
    update {schema}.workers w set number = w.number + 1, seen = v_now
    where w.id = any(p_worker) and not w.lost
    returning w.id, w.number;
end
$$;
