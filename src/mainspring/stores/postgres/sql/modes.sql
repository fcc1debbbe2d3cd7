-- set_mode: what queues do from now on. Waits for the turns that have looked already, and no turn looks meanwhile
create function {schema}.set_mode_v1(p_queues text[], p_mode text, p_now bigint) returns void language plpgsql as $$
begin
    perform pg_advisory_xact_lock({schema}.modes_lock_v1());
    if p_mode = 'open' then
        update {schema}.queues q set mode = 'open', since = 0 where q.name = any(p_queues);
        perform {schema}.forget_queues_v1(p_queues);
        return;
    end if;
    insert into {schema}.queues (name, mode, since)
    select distinct u.name collate "C", p_mode, {schema}.now_v1(p_now) from unnest(p_queues) as u(name) order by 1
    on conflict (name) do update set mode = excluded.mode, since = excluded.since
    where queues.mode <> excluded.mode;
end
$$;
