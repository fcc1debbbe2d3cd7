-- chunks: finished is kept by day of its end (UTC), so that old history goes by dropping a table. A day is made a week
-- before it is needed; what fits no day lies in finished_rest, and goes row by row.
-- The functions run with the rights of the schema's owner: the app may not make or drop tables by itself. None of them waits
-- for a lock longer than a moment, for all acks would stand behind it; the caller comes again.
create table {schema}.finished_rest partition of {schema}.finished default;

-- make_chunks: the days from p_from, for p_days; returns how many were made now
create function {schema}.make_chunks_v1(p_from bigint, p_days integer) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '100ms' as $$
declare
    c_day constant bigint := 86400000000;
    v_day bigint;
    v_name text;
    v_made integer := 0;
begin
    if not pg_try_advisory_xact_lock(hashtextextended('mainspring chunks {schema}', 0)) then
        return 0;
    end if;
    for v_day in p_from / c_day .. p_from / c_day + least(p_days, 400) loop
        v_name := 'finished_' || to_char(to_timestamp(v_day * 86400) at time zone 'UTC', 'YYYYMMDD');
        continue when to_regclass('{schema}.' || v_name) is not null;
        begin
            execute format('create table {schema}.%I (like {schema}.finished including defaults including constraints)', v_name);
            execute format(
                'alter table {schema}.finished attach partition {schema}.%I for values from (%s) to (%s)',
                v_name, v_day * c_day, (v_day + 1) * c_day
            );
            v_made := v_made + 1;
        exception
            -- jobs of that day lie among the rest already; or somebody is in the way
            when check_violation or lock_not_available then null;
        end;
    end loop;
    return v_made;
end
$$;

-- old_chunk: the oldest day that ended before p_before and can go whole: none of its jobs has a keep of its own that is
-- running or is held by the window of its unique key
create function {schema}.old_chunk_v1(p_before bigint, p_now bigint) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_name text;
    v_held boolean;
begin
    for v_name in select c.name from {schema}.chunks_v1() c where c.until <= p_before order by c.until loop
        execute format(
            'select exists (select 1 from {schema}.%1$I where drop_at > $1) or exists ('
            'select 1 from {schema}.keys k join {schema}.%1$I f on f.id = k.job '
            'where {schema}.key_until_v1(k, f.state, f.started, f.finished) > $1)', v_name
        ) into v_held using {schema}.now_v1(p_now);
        if not v_held then
            return v_name;
        end if;
    end loop;
    return null;
end
$$;

-- chunks: the days that there are, with the end of each
create function {schema}.chunks_v1() returns table (name text, until bigint)
language sql stable set search_path = pg_catalog, pg_temp as $$
    select c.relname::text,
        (extract(epoch from to_date(substring(c.relname from 10), 'YYYYMMDD')::timestamp) * 1000000)::bigint + 86400000000
    from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = '{schema}.finished'::regclass and c.relname ~ '^finished_[0-9]{8}$'
$$;

-- sweep_chunk: delete the next jobs of a day, by id, with all that stands beside them: whoever finds one finds it whole
-- returns how many there were and the last of them
create function {schema}.sweep_chunk_v1(p_name text, p_after bytea, p_limit integer) returns table (n integer, last bytea)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_ids bytea[];
    v_gone bytea[];
begin
    execute format('select array(select id from {schema}.%I where id > $1 order by id limit $2)', p_name)
    into v_ids using p_after, p_limit;
    perform {schema}.lock_keys_of_v1(v_ids, false, null);
    -- A new statement: one that somebody retried meanwhile is not here any more.
    execute format(
        'with gone as (delete from {schema}.%I where id = any($1) returning id) select array(select id from gone)', p_name
    ) into v_gone using v_ids;
    perform {schema}.forget_v1(v_gone);
    return query select cardinality(v_ids), v_ids[cardinality(v_ids)];
end
$$;

-- drop_chunk: let go of a day that ended before p_before and is empty. A reader in the way is an error, not a wait
create function {schema}.drop_chunk_v1(p_name text, p_before bigint) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '100ms' as $$
declare
    v_full boolean;
begin
    if exists (select 1 from {schema}.chunks_v1() c where c.name = p_name and c.until <= p_before) then
        execute format('select exists (select 1 from {schema}.%I)', p_name) into v_full;
        if not v_full then
            execute format('drop table {schema}.%I', p_name);
        end if;
    end if;
end
$$;

select {schema}.make_chunks_v1({schema}.now_v1(null), 7);
