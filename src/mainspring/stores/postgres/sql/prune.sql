-- prune: delete up to p_limit ended jobs past their retention, with all that is kept of them; then what nobody needs
-- A job with a keep of its own goes by drop_at alone; the others by age, or when enough others ended later. One whose
-- unique window is running stays, and is set aside until that is over: none is looked at each time. returns how many went
create function {schema}.prune_v1(
    p_limit integer, p_now bigint, p_keep bigint, p_keep_count integer, p_keep_at_least bigint,
    p_keep_dead bigint, p_keep_dead_count integer, p_keep_workers bigint
) returns integer
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    c_rounds constant integer := 10;
    v_now bigint := {schema}.now_v1(p_now);
    v_young bigint := v_now - p_keep_at_least;
    v_before bigint;
    v_dead_before bigint;
    v_ids bytea[];
    v_dead bytea[];
    v_gone bytea[];
    v_n integer := 0;
begin
    perform {schema}.guard_v1();
    v_before := least(v_young, greatest(v_now - p_keep, case when p_keep_count <= 0 then v_now + 1 else (
        select f.finished from {schema}.finished f where f.drop_at is null order by f.finished desc offset p_keep_count - 1 limit 1
    ) end));
    v_dead_before := least(v_young, greatest(v_now - p_keep_dead, case when p_keep_dead_count <= 0 then v_now + 1 else (
        select d.finished from {schema}.dead d order by d.finished desc offset p_keep_dead_count - 1 limit 1
    ) end));
    for v_round in 1 .. c_rounds loop
        v_ids := array(select f.id from {schema}.finished f where f.drop_at <= v_now order by f.drop_at limit p_limit - v_n);
        v_ids := v_ids || array(
            select f.id from {schema}.finished f where f.finished < v_before and f.drop_at is null
            order by f.finished limit p_limit - v_n - cardinality(v_ids)
        );
        v_dead := array(
            select d.id from {schema}.dead d where d.drop_at <= v_now
            order by d.drop_at limit p_limit - v_n - cardinality(v_ids)
        );
        v_dead := v_dead || array(
            select d.id from {schema}.dead d where d.finished < v_dead_before and d.drop_at is null
            order by d.finished limit p_limit - v_n - cardinality(v_ids) - cardinality(v_dead)
        );
        exit when cardinality(v_ids) + cardinality(v_dead) = 0;
        perform {schema}.lock_keys_of_v1(v_ids || v_dead, false, v_now);
        perform {schema}.set_aside_v1(v_ids, v_dead, v_now);
        -- A new statement: somebody may have retried one meanwhile, or it took its key again.
        with ended as (
            delete from {schema}.finished f
            where f.id = any(v_ids) and (f.drop_at is null or f.drop_at <= v_now) and (
                f.drop_at is not null and f.keep is not null or f.finished < v_before
            )
            returning f.id
        ), buried as (
            delete from {schema}.dead d
            where d.id = any(v_dead) and (d.drop_at is null or d.drop_at <= v_now) and d.finished < v_dead_before
            returning d.id
        )
        select array(select id from ended union all select id from buried) into v_gone;
        perform {schema}.forget_v1(v_gone);
        v_n := v_n + cardinality(v_gone);
        -- Those whose window is over and that are to be kept longer now than when they were set aside.
        update {schema}.finished f set drop_at = null where f.id = any(v_ids) and f.drop_at <= v_now;
        update {schema}.dead d set drop_at = null where d.id = any(v_dead) and d.drop_at <= v_now;
    end loop;
    perform {schema}.tidy_v1(v_now, p_keep_workers);
    return v_n;
end
$$;

-- set_aside: jobs past their retention that hold their unique key by its window: they are looked at again when it is over
create function {schema}.set_aside_v1(p_ids bytea[], p_dead bytea[], p_now bigint) returns void language plpgsql as $$
begin
    update {schema}.finished f set drop_at = {schema}.key_until_v1(k, f.state, f.started, f.finished) from {schema}.keys k
    where f.id = any(p_ids) and k.hash = f.key and k.job = f.id
        and {schema}.key_until_v1(k, f.state, f.started, f.finished) > p_now;
    update {schema}.dead d set drop_at = {schema}.key_until_v1(k, d.state, d.started, d.finished) from {schema}.keys k
    where d.id = any(p_dead) and k.hash = d.key and k.job = d.id
        and {schema}.key_until_v1(k, d.state, d.started, d.finished) > p_now;
end
$$;

-- let_go: an ended job whose key another one took, window or not, goes by its retention again
create function {schema}.let_go_v1(p_job bytea) returns void language plpgsql as $$
begin
    update {schema}.finished f set drop_at = case when f.keep is not null then f.finished + least(f.keep, 4611686018427387904) end
    where f.id = p_job and f.drop_at is not null;
    update {schema}.dead d set drop_at = null where d.id = p_job and d.drop_at is not null;
end
$$;

-- tidy: rows of workers long lost, marks of batches and numbers of schedules of yesterday; of limits, what nothing waits for and nobody uses any more
create function {schema}.tidy_v1(p_now bigint, p_keep_workers bigint) returns void language plpgsql as $$
begin
    delete from {schema}.workers w where w.lost and w.seen < p_now - p_keep_workers;
    delete from {schema}.retried r where r.at < p_now - 86400000000;
    delete from {schema}.guests g where g.until <= p_now;
    delete from {schema}.fences f where f.token <= p_now - 86400000000;
    perform {schema}.tidy_buckets_v1(p_now);
    perform {schema}.tidy_lanes_v1(p_now);
    perform {schema}.tidy_clocks_v1();
    perform {schema}.tidy_schedules_v1(p_now);
end
$$;

-- tidy_buckets: starts whose window is over, and buckets that have nothing to remember: whoever needs one makes it anew
create function {schema}.tidy_buckets_v1(p_now bigint) returns void language plpgsql as $$
declare
    c_most constant integer := 10000;
    v_idle text[];
begin
    if not exists (select 1 from {schema}.buckets) then
        return;
    end if;
    delete from {schema}.starts s where s.ctid = any(array(
        select o.ctid from {schema}.starts o
        left join {schema}.limits l on l.name = any(array[split_part(o.bucket, '=', 1)]) and l.kind = 'rate'
        where o.last <= p_now - coalesce(l.per, 0) limit c_most for update of o skip locked
    ));
    v_idle := array(
        select b.name from {schema}.buckets b
        where b.tat <= p_now and b.blocked <= p_now
            and not exists (select 1 from {schema}.uses u where u.bucket = b.name)
            and not exists (select 1 from {schema}.starts s where s.bucket = b.name)
            and not exists (select 1 from {schema}.guests g where g.bucket = b.name)
        limit c_most for update skip locked
    );
    -- A new statement: somebody may have used one until we locked it.
    delete from {schema}.buckets b
    where b.name = any(v_idle) and b.tat <= p_now and b.blocked <= p_now
        and not exists (select 1 from {schema}.uses u where u.bucket = b.name)
        and not exists (select 1 from {schema}.starts s where s.bucket = b.name)
        and not exists (select 1 from {schema}.guests g where g.bucket = b.name);
end
$$;

-- tidy_lanes: rows of lanes without jobs that no claim comes upon; looks at a part of all, another one each time
create function {schema}.tidy_lanes_v1(p_now bigint) returns void language plpgsql as $$
declare
    c_most constant integer := 1000;
    v_empty bigint[] := array(
        select l.id from (
            select o.* from {schema}.lanes o
            where o.id >= (select min(x.id) + ((max(x.id) - min(x.id)) * random())::bigint - c_most / 2 from {schema}.lanes x)
            order by o.id limit c_most
        ) l
        -- Not "not exists": with stale statistics that reads all ready jobs, for each lane again.
        left join lateral (
            select true as there from {schema}.jobs j
            where j.state = 'ready' and j.lane = l.lane and j.priority = l.priority limit 1
        ) h on true
        where h.there is null
    );
begin
    if cardinality(v_empty) > 0 then
        perform {schema}.settle_v1(
            v_empty, {schema}.try_buckets_v1(
                array(
                    select distinct b.name from {schema}.lane_rows_v1(v_empty) l
                    cross join unnest(l.buckets) as b(name)
                )
            ), p_now
        );
    end if;
end
$$;
