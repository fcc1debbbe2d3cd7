-- Retention: delete ended jobs, and whole days of history.
--
-- finished is partitioned by the day of the end (UTC), so that old history is deleted by dropping a table. A day is made a
-- week before it is needed; rows that fit no day are in finished_rest, and are deleted row by row. The functions that
-- make and drop partitions run with the rights of the schema's owner: the app may not make or drop tables. None of them
-- waits for a lock longer than {LOCK_WAIT}, for all acks would wait behind it; the caller tries again later.

-- prune: delete up to p_limit ended jobs past their retention, with all that is stored of them; then other rows that
-- are not needed. A job with a keep of its own is deleted by drop_at alone, other jobs by age, or when enough others ended
-- later. A job whose unique window is running stays, and its pruning is postponed until the window is over, so that it
-- is not looked at each time. Jobs of a flow are deleted with the join that the flow ends with, its root.
-- returns how many were deleted, and the queues in which a job became ready
create function {schema}.prune_v1(
    p_limit integer, p_now bigint, p_keep bigint, p_keep_count integer, p_keep_at_least bigint,
    p_keep_dead bigint, p_keep_dead_count integer, p_keep_workers bigint, out deleted integer, out woken text[]
)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    c_rounds constant integer := {PRUNE_ROUNDS};
    v_now bigint := {schema}.now_v1(p_now);
    v_young bigint := v_now - p_keep_at_least;
    v_before bigint;
    v_dead_before bigint;
    v_found integer;
    v_deleted integer;
    v_woken text[];
begin
    perform {schema}.guard_v1();
    deleted := 0;
    woken := '{}';
    v_before := least(v_young, greatest(v_now - p_keep, case when p_keep_count <= 0 then v_now + 1 else (
        select f.finished from {schema}.finished f where f.drop_at is null
            order by f.finished desc offset p_keep_count - 1 limit 1
    ) end));
    v_dead_before := least(v_young, greatest(v_now - p_keep_dead, case when p_keep_dead_count <= 0 then v_now + 1 else (
        select d.finished from {schema}.dead d where d.drop_at is null or d.drop_at < {FLOW_KEEP} order by d.finished desc offset p_keep_dead_count - 1 limit 1
    ) end));
    for v_round in 1 .. c_rounds loop
        select e.* into v_found, v_deleted, v_woken
        from {schema}.prune_ended_v1(p_limit - deleted, v_before, v_dead_before, v_now) e;
        exit when v_found = 0;
        deleted := deleted + v_deleted;
        woken := woken || v_woken;
    end loop;
    perform {schema}.prune_others_v1(v_now, p_keep_workers);
end
$$;

-- prune_ended: find up to p_limit ended jobs past their retention, lock their keys, and delete those of them that are
-- still past it. p_before, p_dead_before: the moments before which a finished or a dead job without a keep of its own has
-- ended. If the root of a flow is found, only jobs of its flow are deleted, as long as there are any.
-- returns how many jobs were found, how many were deleted, and the queues in which a job became ready
create function {schema}.prune_ended_v1(
    p_limit integer, p_before bigint, p_dead_before bigint, p_now bigint, out candidates integer, out deleted integer,
    out woken text[]
) language plpgsql as $$
declare
    v_ids bytea[];
    v_dead bytea[];
    v_gone bytea[];
    v_roots bytea[];
begin
    select coalesce(array_agg(c.id), '{}'), array_agg(c.id) filter (where c.followed & {IS_JOIN} > 0) into v_ids, v_roots from (
        (
            select f.id, f.followed from {schema}.finished f
            where f.drop_at <= p_now and (f.followed & {IS_JOIN} = 0 or not {schema}.is_flow_live_v1(f.id))
            order by f.drop_at limit p_limit
        )
        union all
        (
            select f.id, f.followed from {schema}.finished f
            where f.finished < p_before and f.drop_at is null
                and (f.followed & {IS_JOIN} = 0 or not {schema}.is_flow_live_v1(f.id))
            order by f.finished limit p_limit
        )
        limit p_limit
    ) c;
    if v_roots is not null then
        v_gone := {schema}.list_flow_jobs_v1(v_roots, p_limit, p_now);
        if cardinality(v_gone) > 0 then
            update {schema}.joins o set pruning = true where o.id = any(v_roots) and not o.pruning;
            candidates := cardinality(v_gone);
            select f.* into deleted, woken from {schema}.prune_flow_jobs_v1(v_gone, p_now) f;
            return;
        end if;
        v_roots := {schema}.list_kept_roots_v1(v_roots);
        v_ids := array(select u.id from unnest(v_ids) as u(id) where u.id <> all(v_roots));
    end if;
    v_dead := array(
        select d.id from {schema}.dead d where d.drop_at <= p_now order by d.drop_at limit p_limit - cardinality(v_ids)
    );
    v_dead := v_dead || array(
        select d.id from {schema}.dead d where d.finished < p_dead_before and d.drop_at is null
        order by d.finished limit p_limit - cardinality(v_ids) - cardinality(v_dead)
    );
    candidates := cardinality(v_ids) + cardinality(v_dead);
    deleted := 0;
    woken := '{}';
    if candidates = 0 then
        return;
    end if;
    perform {schema}.lock_keys_of_v1(v_ids || v_dead, false, p_now);
    perform {schema}.postpone_pruning_v1(v_ids, v_dead, p_now);
    -- A new statement: a job may have been retried meanwhile, or have taken its key again.
    with ended as (
        delete from {schema}.finished f
        where f.id = any(v_ids) and (f.drop_at is null or f.drop_at <= p_now) and (
            f.drop_at is not null and f.keep is not null or f.finished < p_before
        )
        returning f.id
    ), buried as (
        delete from {schema}.dead d
        where d.id = any(v_dead) and (d.drop_at is null or d.drop_at <= p_now) and d.finished < p_dead_before
        returning d.id
    )
    select array(select id from ended union all select id from buried) into v_gone;
    woken := {schema}.resolve_pruned_v1(v_gone, p_now);
    perform {schema}.delete_details_v1(v_gone);
    deleted := cardinality(v_gone);
    -- Jobs whose window is over and that have a longer retention now than when their pruning was postponed.
    update {schema}.finished f set drop_at = null where f.id = any(v_ids) and f.drop_at <= p_now;
    update {schema}.dead d set drop_at = null where d.id = any(v_dead) and d.drop_at <= p_now;
end
$$;

-- prune_flow_jobs: delete those of these jobs that have ended. returns as prune_ended
create function {schema}.prune_flow_jobs_v1(p_ids bytea[], p_now bigint, out deleted integer, out woken text[])
language plpgsql as $$
declare
    v_gone bytea[];
begin
    perform {schema}.lock_keys_of_v1(p_ids, false, p_now);
    with ended as (
        delete from {schema}.finished f where f.id = any(p_ids) returning f.id
    ), buried as (
        delete from {schema}.dead d where d.id = any(p_ids) returning d.id
    )
    select array(select id from ended union all select id from buried) into v_gone;
    woken := {schema}.resolve_pruned_v1(v_gone, p_now);
    perform {schema}.delete_details_v1(v_gone);
    deleted := cardinality(v_gone);
end
$$;

-- resolve_pruned: jobs that still wait for a pruned dead job end.
create function {schema}.resolve_pruned_v1(p_ids bytea[], p_now bigint) returns text[] language plpgsql as $$
begin
    if not exists (select 1 from {schema}.edges e where e.parent = any(p_ids)) then
        return '{}';
    end if;
    perform {schema}.follow_clock_v1(p_now);
    return {schema}.resolve_deleted_v1(p_ids, p_now);
end
$$;

-- postpone_pruning: jobs past their retention that hold their unique key by its window are looked at again when the
-- window is over.
create function {schema}.postpone_pruning_v1(p_ids bytea[], p_dead bytea[], p_now bigint) returns void language plpgsql as $$
begin
    update {schema}.finished f set drop_at = {schema}.key_until_v1(k, f.state, f.started, f.finished) from {schema}.keys k
    where f.id = any(p_ids) and k.hash = f.key and k.job = f.id
        and {schema}.key_until_v1(k, f.state, f.started, f.finished) > p_now;
    update {schema}.dead d set drop_at = {schema}.key_until_v1(k, d.state, d.started, d.finished) from {schema}.keys k
    where d.id = any(p_dead) and k.hash = d.key and k.job = d.id
        and {schema}.key_until_v1(k, d.state, d.started, d.finished) > p_now;
end
$$;

-- resume_pruning: an ended job whose key another job took, window or not, is deleted by its retention again.
create function {schema}.resume_pruning_v1(p_job bytea) returns void language plpgsql as $$
begin
    update {schema}.finished f set drop_at = case when f.keep is not null then f.finished + least(f.keep, {UNLIMITED}) end
    where f.id = p_job and f.drop_at is not null;
    update {schema}.dead d set drop_at = null
    where d.id = p_job and d.drop_at is not null and d.keep is distinct from {FLOW_KEEP};
end
$$;

-- prune_others: delete rows of workers that are lost for long, records of batches and tokens of a day ago, and what
-- limits, lanes, fair keys and schedules no longer need.
create function {schema}.prune_others_v1(p_now bigint, p_keep_workers bigint) returns void language plpgsql as $$
begin
    delete from {schema}.workers w where w.lost and w.seen < p_now - p_keep_workers;
    delete from {schema}.retried_batches r where r.at < p_now - {DAY};
    delete from {schema}.holders g where g.until <= p_now;
    delete from {schema}.holder_tokens f where f.token <= p_now - {NUMBERS_KEPT};
    perform {schema}.prune_buckets_v1(p_now);
    perform {schema}.prune_lane_rows_v1(p_now);
    perform {schema}.prune_fair_clocks_v1();
    perform {schema}.prune_schedules_v1(p_now);
end
$$;

-- make_partitions: make the days from p_from, for p_days. returns how many were made now
create function {schema}.make_partitions_v1(p_from bigint, p_days integer) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = {LOCK_WAIT} as $$
declare
    c_day constant bigint := {DAY};
    v_day bigint;
    v_name text;
    v_made integer := 0;
begin
    if not pg_try_advisory_xact_lock(hashtextextended('mainspring partitions {schema}', 0)) then
        return 0;
    end if;
    for v_day in p_from / c_day .. p_from / c_day + least(p_days, {MOST_DAYS}) loop
        v_name := 'finished_' || to_char(to_timestamp(v_day * {DAY_SECONDS}) at time zone 'UTC', 'YYYYMMDD');
        continue when to_regclass('{schema}.' || v_name) is not null;
        begin
            execute format('create table {schema}.%I (like {schema}.finished including defaults including constraints)', v_name);
            execute format(
                'alter table {schema}.finished attach partition {schema}.%I for values from (%s) to (%s)',
                v_name, v_day * c_day, (v_day + 1) * c_day
            );
            v_made := v_made + 1;
        exception
            -- rows of that day are in finished_rest already, or another transaction holds the table
            when check_violation or lock_not_available then null;
        end;
    end loop;
    return v_made;
end
$$;

-- find_old_partition: the oldest day that ended before p_before and can be dropped whole: none of its jobs has a keep
-- of its own that still runs, or is held by the window of its unique key.
create function {schema}.find_old_partition_v1(p_before bigint, p_now bigint) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_name text;
    v_held boolean;
begin
    for v_name in select c.name from {schema}.list_partitions_v1() c where c.until <= p_before order by c.until loop
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

-- list_partitions: the days that exist, with the end of each.
create function {schema}.list_partitions_v1() returns table (name text, until bigint)
language sql stable set search_path = pg_catalog, pg_temp as $$
    select c.relname::text,
        (extract(epoch from to_date(substring(c.relname from 10), 'YYYYMMDD')::timestamp) * {SECOND})::bigint + {DAY}
    from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = '{schema}.finished'::regclass and c.relname ~ '^finished_[0-9]{8}$'
$$;

-- sweep_partition: delete the next jobs of a day, by id, with all that is stored beside them, so that a reader finds a
-- job whole or not at all. The root of a flow stays while its flow has jobs: prune deletes it after them. returns how many there were, and the last of them
create function {schema}.sweep_partition_v1(p_name text, p_after bytea, p_limit integer) returns table (n integer, last bytea)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_ids bytea[];
    v_gone bytea[];
begin
    execute format(
        'select array(select f.id from {schema}.%I f where f.id > $1 and (f.followed & $3 = 0 or '
        'not exists (select 1 from {schema}.marks m where m.mark = {schema}.flow_mark_v1(f.id))) '
        'order by f.id limit $2)', p_name
    ) into v_ids using p_after, p_limit, {IS_JOIN};
    perform {schema}.lock_keys_of_v1(v_ids, false, null);
    -- A new statement: a job that was retried meanwhile is not here any more.
    execute format(
        'with gone as (delete from {schema}.%I where id = any($1) returning id) select array(select id from gone)', p_name
    ) into v_gone using v_ids;
    perform {schema}.delete_details_v1(v_gone);
    return query select cardinality(v_ids), v_ids[cardinality(v_ids)];
end
$$;

-- drop_partition: drop a day that ended before p_before and is empty. A reader that holds the table is an error, not a
-- wait.
create function {schema}.drop_partition_v1(p_name text, p_before bigint) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = {LOCK_WAIT} as $$
declare
    v_full boolean;
begin
    if exists (select 1 from {schema}.list_partitions_v1() c where c.name = p_name and c.until <= p_before) then
        execute format('select exists (select 1 from {schema}.%I)', p_name) into v_full;
        if not v_full then
            execute format('drop table {schema}.%I', p_name);
        end if;
    end if;
end
$$;

-- the first days, so that the first jobs that end have a partition
select {schema}.make_partitions_v1({schema}.now_v1(null), {DAYS_AHEAD});
