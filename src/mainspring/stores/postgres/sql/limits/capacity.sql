-- Buckets: their locks, and the capacity that they have at this moment.
--
-- The lock of a bucket is the lock on its row. An unkeyed bucket (a name without "=") has an advisory lock as well,
-- which is taken first: several turns may share it while the bucket is plentiful (see claim/unkeyed.sql).

-- add_buckets: insert the rows of these buckets that do not exist yet. Two transactions that insert the same row would
-- wait for each other in any order. So a transaction that inserts a row holds an advisory lock on the bucket's name. A
-- caller that must not wait (p_wait false: it holds job rows) leaves out a bucket whose lock another transaction holds,
-- and inserts at most {NEW_BUCKETS} rows per call.
create function {schema}.add_buckets_v1(p_names text[], p_wait boolean) returns void language plpgsql as $$
declare
    c_most constant integer := {NEW_BUCKETS};
    v_new text[] := array(
        select distinct u.name collate "C" from unnest(p_names) as u(name)
        where not exists (select 1 from {schema}.buckets b where b.name = any(array[u.name]))
    );
begin
    if cardinality(v_new) = 0 then
        return;
    elsif p_wait then
        perform pg_advisory_xact_lock(k.key) from (
            select distinct hashtextextended('{schema} bucket ' || u.name, 0) as key from unnest(v_new) as u(name) order by 1
        ) k;
    else
        v_new := array(
            select u.name from unnest(v_new[1:c_most]) as u(name)
            where pg_try_advisory_xact_lock(hashtextextended('{schema} bucket ' || u.name, 0))
        );
    end if;
    insert into {schema}.buckets (name) select u.name from unnest(v_new) as u(name) order by u.name collate "C"
    on conflict (name) do nothing;
end
$$;

-- unkeyed_lock: the key of the advisory lock of an unkeyed bucket. The transaction that holds it exclusively decides by
-- what it reads. Transactions that share it (see lock_unkeyed) claim no more than they may without knowing of each
-- other.
create function {schema}.unkeyed_lock_v1(p_name text) returns bigint language sql immutable as $$
    select hashtextextended('{schema} unkeyed ' || p_name, 0)
$$;

-- lock_buckets: lock these buckets, before any job row: first the advisory locks of unkeyed buckets, then all rows by
-- name.
create function {schema}.lock_buckets_v1(p_names text[]) returns void language plpgsql as $$
declare
    v_names text[] := array(select distinct u.name from unnest(p_names) as u(name));
begin
    perform pg_advisory_xact_lock(k.key) from (
        select distinct {schema}.unkeyed_lock_v1(u.name) as key from unnest(v_names) as u(name) where strpos(u.name, '=') = 0
        order by 1
    ) k;
    perform {schema}.lock_bucket_rows_v1(v_names);
end
$$;

-- lock_bucket_rows: lock the rows of these buckets, each named once. The advisory locks of unkeyed buckets are held
-- already.
create function {schema}.lock_bucket_rows_v1(p_names text[]) returns void language plpgsql as $$
declare
    v_locked integer;
begin
    loop
        perform {schema}.add_buckets_v1(p_names, true);
        perform 1 from {schema}.buckets b where b.name = any(p_names) order by b.name for update;
        get diagnostics v_locked = row_count;
        exit when v_locked = cardinality(p_names);  -- else a bucket was pruned in between
    end loop;
end
$$;

-- try_lock_buckets: lock those of these buckets that no other transaction has locked. returns the locked ones
create function {schema}.try_lock_buckets_v1(p_names text[]) returns text[] language plpgsql as $$
declare
    v_names text[] := array(
        select u.name from unnest(p_names) as u(name)
        where case when strpos(u.name, '=') > 0 then true else pg_try_advisory_xact_lock({schema}.unkeyed_lock_v1(u.name)) end
    );
begin
    if cardinality(v_names) = 0 then
        return '{}';
    end if;
    perform {schema}.add_buckets_v1(v_names, false);
    return array(select b.name from {schema}.buckets b where b.name = any(v_names) order by b.name for update skip locked);
end
$$;

-- read_capacities: the capacity of these buckets, in the order asked for. A claim decides by it after it has locked
-- them.
create function {schema}.read_capacities_v1(p_names text[], p_now bigint) returns {schema}.capacity_v1[] language plpgsql as $$
begin
    if cardinality(p_names) = 1 then
        return array[{schema}.read_capacity_v1(p_names[1], p_now)];
    end if;
    return array(
        select case when l.kind = {LIMIT_BREAKER} then {schema}.read_breaker_capacity_v1(a.name, coalesce(l.set_size,
            l.size), p_now)
            else {schema}.compute_capacity_v1(a.name, l, b, u.used, p_now) end
        from unnest(p_names) with ordinality as a(name, at)
        left join {schema}.limits l on l.name = any(array[split_part(a.name, '=', 1)])
        left join {schema}.buckets b on b.name = any(array[a.name])
        cross join lateral (
            select case l.kind
                when {LIMIT_CONCURRENCY} then
                    (select coalesce(sum(x.n), 0) from {schema}.bucket_uses x where x.bucket = a.name)
                    + (select count(*) from {schema}.holders g where g.bucket = a.name and g.until > p_now)
                when {LIMIT_RATE} then
                    (select coalesce(sum(x.n), 0) from {schema}.rate_starts x where x.bucket = a.name and x.last > p_now - l.per)
            end::bigint as used
            offset 0  -- else the planner copies this subquery to every place that names it
        ) u
        order by a.at
    );
end
$$;

-- read_capacity: the capacity of one bucket. Costs a fifth of the statement for several buckets.
create function {schema}.read_capacity_v1(p_name text, p_now bigint) returns {schema}.capacity_v1 language plpgsql as $$
declare
    v_limit {schema}.limits;
    v_bucket {schema}.buckets;
    v_used bigint;
begin
    select * into v_limit from {schema}.limits l where l.name = split_part(p_name, '=', 1);
    case v_limit.kind
        when {LIMIT_BREAKER} then
            return {schema}.read_breaker_capacity_v1(p_name, coalesce(v_limit.set_size, v_limit.size), p_now);
        when {LIMIT_CONCURRENCY} then
            v_used := (select coalesce(sum(x.n), 0) from {schema}.bucket_uses x where x.bucket = p_name)
                + (select count(*) from {schema}.holders g where g.bucket = p_name and g.until > p_now);
        when {LIMIT_RATE} then
            v_used := (
                select coalesce(sum(x.n), 0) from {schema}.rate_starts x where x.bucket = p_name and x.last > p_now - v_limit.per
            );
            select * into v_bucket from {schema}.buckets b where b.name = p_name;
        else
            select * into v_bucket from {schema}.buckets b where b.name = p_name;
    end case;
    return {schema}.compute_capacity_v1(p_name, v_limit, v_bucket, v_used, p_now);
end
$$;

-- smooth_time: the microseconds by which a start of this cost moves tat, rounded up. See stores/shared/rates.py.
create function {schema}.smooth_time_v1(p_cost bigint, p_per bigint, p_size bigint) returns bigint language sql immutable as $$
    select div(greatest(p_cost, 0)::numeric * p_per + greatest(p_size, 1) - 1, greatest(p_size, 1))::bigint
$$;

-- smooth_slack: the microseconds by which tat may be late because each start of a burst is rounded up; 0 if nothing is
-- rounded.
create function {schema}.smooth_slack_v1(p_limit {schema}.limits) returns bigint language sql immutable as $$
    select case when p_limit.per % greatest(s.size, 1) = 0 then 0
        else least(greatest(p_limit.burst, 1), {schema}.smooth_time_v1(1, p_limit.per, s.size) - 1) end
    from (select coalesce(p_limit.set_size, p_limit.size) as size) s
$$;

-- compute_capacity: the capacity of a bucket of which p_used is used. A smooth rate computes p_used here.
create function {schema}.compute_capacity_v1(
    p_name text, p_limit {schema}.limits, p_bucket {schema}.buckets, p_used bigint, p_now bigint
) returns {schema}.capacity_v1 language plpgsql immutable as $$
declare
    v_size bigint := coalesce(p_limit.set_size, p_limit.size);
    v_burst bigint := greatest(p_limit.burst, 1);
    v_after bigint;
begin
    if p_limit.kind is null then
        return row(p_name, null, null, 0, {UNLIMITED}, 1, 0)::{schema}.capacity_v1;
    elsif p_limit.kind = {LIMIT_CONCURRENCY} then
        return row(p_name, p_limit.kind, v_size, p_used, v_size - p_used, 1, 0)::{schema}.capacity_v1;
    elsif p_limit.kind = {LIMIT_SMOOTH} then
        v_after := greatest(p_bucket.tat - {schema}.smooth_slack_v1(p_limit) - p_now, 0);
        p_used := div(v_after::numeric * greatest(v_size, 0) + greatest(p_limit.per, 1) - 1, greatest(p_limit.per, 1));
    end if;
    if v_size <= 0 or p_bucket.blocked_until > p_now then
        return row(p_name, p_limit.kind, v_size, p_used, 0, greatest(v_size, 1), greatest(v_size, 0))::{schema}.capacity_v1;
    elsif p_limit.kind = {LIMIT_RATE} then
        return row(p_name, p_limit.kind, v_size, p_used, v_size - p_used, v_size, v_size)::{schema}.capacity_v1;
    end if;
    return row(
        p_name, p_limit.kind, v_size, p_used, greatest(v_burst - p_used, 0), least(v_burst, v_size), v_size
    )::{schema}.capacity_v1;
end
$$;

-- compute_headroom: how much can be claimed ahead of a free slot: the bucket stays plentiful (see PLENTIFUL).
create function {schema}.compute_headroom_v1(p_capacity {schema}.capacity_v1) returns bigint language plpgsql immutable as $$
begin
    return case
        when strpos(p_capacity.name, '=') > 0 or p_capacity.kind in ({LIMIT_RATE}, {LIMIT_SMOOTH}) then 0
        when p_capacity.kind is null then p_capacity.available
        -- capacity of a closed one: twice that
        when p_capacity.kind = {LIMIT_BREAKER} then p_capacity.available - {CLOSED_HEADROOM}
        else p_capacity.available - greatest(p_capacity.size / {PLENTIFUL_PART}, {PLENTIFUL})
    end;
end
$$;

-- find_next_start: when a start of this cost fits into a bucket of a rate, or when a breaker ends its open time.
-- returns null if it fits now, or if the moment is not known
create function {schema}.find_next_start_v1(p_name text, p_cost bigint, p_now bigint) returns bigint language plpgsql as $$
declare
    v_limit {schema}.limits;
    v_bucket {schema}.buckets;
    v_size bigint;
    v_cost bigint;
    v_at bigint;
begin
    select * into v_limit from {schema}.limits l where l.name = split_part(p_name, '=', 1);
    v_size := coalesce(v_limit.set_size, v_limit.size);
    if v_limit.kind = {LIMIT_BREAKER} then
        return (select b.until from {schema}.breakers b where b.name = p_name and b.until > p_now and b.until < {FOREVER});
    elsif v_limit.name is null or v_limit.kind = {LIMIT_CONCURRENCY} or v_size <= 0 then
        return null;
    end if;
    select * into v_bucket from {schema}.buckets b where b.name = p_name;
    v_cost := least(p_cost, v_size);
    if v_limit.kind = {LIMIT_SMOOTH} then
        v_cost := greatest(v_cost, 1);
        v_at := coalesce(v_bucket.tat, 0) - {schema}.smooth_slack_v1(v_limit)
            - div((greatest(v_limit.burst, v_cost) - v_cost)::numeric * v_limit.per, v_size);
    else
        -- behind: what still counts once an entry and all entries before it are over
        select min(e.over) filter (where e.behind + greatest(v_cost, 1) <= v_size) into v_at from (
            select s.last + v_limit.per as over,
                sum(s.n) over (order by s.last desc rows between unbounded preceding and current row) - s.n as behind
            from {schema}.rate_starts s where s.bucket = p_name and s.last > p_now - v_limit.per
            union all
            select p_now, coalesce(sum(s.n), 0) from {schema}.rate_starts s
                where s.bucket = p_name and s.last > p_now - v_limit.per
        ) e;
    end if;
    v_at := greatest(v_at, v_bucket.blocked_until);
    return case when v_at > p_now then v_at end;
end
$$;

-- find_recheck_time: when to recheck a bucket that has no capacity: as find_next_start, or when the first holder's time
-- ends.
create function {schema}.find_recheck_time_v1(p_name text, p_kind text, p_cost bigint, p_now bigint) returns bigint
language plpgsql as $$
begin
    if p_kind <> {LIMIT_CONCURRENCY} then
        p_cost := {schema}.find_next_start_v1(p_name, p_cost, p_now);
        if p_kind <> {LIMIT_BREAKER} or p_cost is not null then
            return p_cost;
        end if;
    end if;
    return (select min(g.until) from {schema}.holders g where g.bucket = p_name and g.until > p_now);
end
$$;

-- buckets: the size and use of these buckets, by the rules of a claim, and the jobs that hold them.
-- Buckets whose limit is not stored are left out.
create function {schema}.buckets_v1(p_names text[], p_costs bigint[], p_now bigint)
returns table (at bigint, kind text, size bigint, used bigint, next_at bigint, holders bytea[], breaker text)
    language plpgsql as $$
#variable_conflict use_column
declare
    v_now bigint := {schema}.now_v1(p_now);
begin
    return query
    select u.n, r.kind, r.size,
        -- While all places are taken, the reserved next place is none of them.
        r.used - (r.kind = {LIMIT_CONCURRENCY} and r.used > r.size and exists (
            select 1 from {schema}.holders g where g.holder = {RESERVED_PLACE} and g.bucket = u.name and g.until > v_now
        ))::integer,
        {schema}.find_next_start_v1(u.name, u.cost, v_now), array(
        select j.id from {schema}.bucket_uses x cross join lateral (
            select o.id, o.started from {schema}.jobs o
            where o.state = {RUNNING} and o.worker = x.worker and u.name = any(o.buckets)
        ) j
        where x.bucket = u.name order by j.started, j.id limit {HOLDERS_SHOWN}
    ), case when r.kind = {LIMIT_BREAKER} then {schema}.read_breaker_v1(u.name, v_now) end
    from unnest(p_names, p_costs) with ordinality as u(name, cost, n)
    cross join lateral (select (({schema}.read_capacities_v1(array[u.name], v_now))[1]).*) r
    where r.kind is not null order by u.n;
end
$$;
