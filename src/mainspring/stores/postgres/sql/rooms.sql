-- make_buckets: make the rows of these buckets where there are none
-- Two that make the same row would wait for each other in any order. So whoever makes one holds a lock on its name, and
-- who must not wait (p_wait false: it holds jobs) leaves it out if another has that; of so many at a time at most.
create function {schema}.make_buckets_v1(p_names text[], p_wait boolean) returns void language plpgsql as $$
declare
    c_most constant integer := 64;
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

-- gate_lock: the key of the lock of a gate. Whoever has it alone decides by what is there; those that share it (see
-- lock_gates) take no more than they may without knowing of each other
create function {schema}.gate_lock_v1(p_name text) returns bigint language sql immutable as $$
    select hashtextextended('{schema} gate ' || p_name, 0)
$$;

-- lock_buckets: lock these buckets, before any job row: gates, then all in the order of their names
create function {schema}.lock_buckets_v1(p_names text[]) returns void language plpgsql as $$
declare
    v_names text[] := array(select distinct u.name from unnest(p_names) as u(name));
begin
    perform pg_advisory_xact_lock(k.key) from (
        select distinct {schema}.gate_lock_v1(u.name) as key from unnest(v_names) as u(name) where strpos(u.name, '=') = 0
        order by 1
    ) k;
    perform {schema}.lock_rows_v1(v_names);
end
$$;

-- lock_rows: the rows of these buckets, each named once, whose gates are locked
create function {schema}.lock_rows_v1(p_names text[]) returns void language plpgsql as $$
declare
    v_locked integer;
begin
    loop
        perform {schema}.make_buckets_v1(p_names, true);
        perform 1 from {schema}.buckets b where b.name = any(p_names) order by b.name for update;
        get diagnostics v_locked = row_count;
        exit when v_locked = cardinality(p_names);  -- else one was pruned in between
    end loop;
end
$$;

-- try_buckets: lock those of these buckets that nobody else has locked. returns them
create function {schema}.try_buckets_v1(p_names text[]) returns text[] language plpgsql as $$
declare
    v_names text[] := array(
        select u.name from unnest(p_names) as u(name)
        where case when strpos(u.name, '=') > 0 then true else pg_try_advisory_xact_lock({schema}.gate_lock_v1(u.name)) end
    );
begin
    if cardinality(v_names) = 0 then
        return '{}';
    end if;
    perform {schema}.make_buckets_v1(v_names, false);
    return array(select b.name from {schema}.buckets b where b.name = any(v_names) order by b.name for update skip locked);
end
$$;

-- rooms: how these buckets stand, in the order asked for. A claim decides by this after it has locked them
create function {schema}.rooms_v1(p_names text[], p_now bigint) returns {schema}.room_v1[] language plpgsql as $$
begin
    if cardinality(p_names) = 1 then
        return array[{schema}.room_of_v1(p_names[1], p_now)];
    end if;
    return array(
        select case when l.kind = 'breaker' then {schema}.breaker_room_v1(a.name, coalesce(l.set_size, l.size), p_now)
            else {schema}.standing_v1(a.name, l, b, u.used, p_now) end
        from unnest(p_names) with ordinality as a(name, at)
        left join {schema}.limits l on l.name = any(array[split_part(a.name, '=', 1)])
        left join {schema}.buckets b on b.name = any(array[a.name])
        cross join lateral (
            select case l.kind
                when 'concurrency' then
                    (select coalesce(sum(x.n), 0) from {schema}.uses x where x.bucket = a.name)
                    + (select count(*) from {schema}.guests g where g.bucket = a.name and g.until > p_now)
                when 'rate' then
                    (select coalesce(sum(x.n), 0) from {schema}.starts x where x.bucket = a.name and x.last > p_now - l.per)
            end::bigint as used
            offset 0  -- else all of this is put in wherever it is named, and made ready each time
        ) u
        order by a.at
    );
end
$$;

-- room_of: the same of one bucket, for a fifth of what the large statement costs
create function {schema}.room_of_v1(p_name text, p_now bigint) returns {schema}.room_v1 language plpgsql as $$
declare
    v_limit {schema}.limits;
    v_bucket {schema}.buckets;
    v_used bigint;
begin
    select * into v_limit from {schema}.limits l where l.name = split_part(p_name, '=', 1);
    case v_limit.kind
        when 'breaker' then
            return {schema}.breaker_room_v1(p_name, coalesce(v_limit.set_size, v_limit.size), p_now);
        when 'concurrency' then
            v_used := (select coalesce(sum(x.n), 0) from {schema}.uses x where x.bucket = p_name)
                + (select count(*) from {schema}.guests g where g.bucket = p_name and g.until > p_now);
        when 'rate' then
            v_used := (
                select coalesce(sum(x.n), 0) from {schema}.starts x where x.bucket = p_name and x.last > p_now - v_limit.per
            );
            select * into v_bucket from {schema}.buckets b where b.name = p_name;
        else
            select * into v_bucket from {schema}.buckets b where b.name = p_name;
    end case;
    return {schema}.standing_v1(p_name, v_limit, v_bucket, v_used, p_now);
end
$$;

-- standing: how a bucket stands in which so much is used; of none that is smooth is that known before
create function {schema}.standing_v1(
    p_name text, p_limit {schema}.limits, p_bucket {schema}.buckets, p_used bigint, p_now bigint
) returns {schema}.room_v1 language plpgsql immutable as $$
declare
    v_size bigint := coalesce(p_limit.set_size, p_limit.size);
    v_after bigint := greatest(p_bucket.tat - p_now, 0);
begin
    if p_limit.kind is null then
        return row(p_name, null, null, 0, 4611686018427387904, 1, 0)::{schema}.room_v1;
    elsif p_limit.kind = 'concurrency' then
        return row(p_name, p_limit.kind, v_size, p_used, v_size - p_used, 1, 0)::{schema}.room_v1;
    elsif p_limit.kind = 'smooth' then
        p_used := ceil(v_after::numeric * v_size / greatest(p_limit.per, 1));
    end if;
    if v_size <= 0 or p_bucket.blocked > p_now then
        return row(p_name, p_limit.kind, v_size, p_used, 0, greatest(v_size, 1), greatest(v_size, 0))::{schema}.room_v1;
    elsif p_limit.kind = 'rate' then
        return row(p_name, p_limit.kind, v_size, p_used, v_size - p_used, v_size, v_size)::{schema}.room_v1;
    end if;
    return row(
        p_name, p_limit.kind, v_size, p_used,
        floor(greatest(p_limit.burst, 1) - v_after::numeric * v_size / greatest(p_limit.per, 1)),
        greatest(p_limit.burst, 1), v_size
    )::{schema}.room_v1;
end
$$;

-- spare: how much of a bucket can be taken before it is short (see ROOMY); less than 1: it is short
create function {schema}.spare_v1(p_room {schema}.room_v1) returns bigint language plpgsql immutable as $$
begin
    return case
        when strpos(p_room.name, '=') > 0 or p_room.kind in ('rate', 'smooth') then 0
        when p_room.kind is null then p_room.room
        when p_room.kind = 'breaker' then p_room.room - 2305843009213693952  -- closed: twice that
        else p_room.room - greatest(p_room.size / 2, 100)
    end;
end
$$;

-- next_at: when a start of this cost fits into a bucket of a rate; null: now, or nobody knows
create function {schema}.next_at_v1(p_name text, p_cost bigint, p_now bigint) returns bigint language plpgsql as $$
declare
    v_limit {schema}.limits;
    v_bucket {schema}.buckets;
    v_size bigint;
    v_cost bigint;
    v_at bigint;
begin
    select * into v_limit from {schema}.limits l where l.name = split_part(p_name, '=', 1);
    v_size := coalesce(v_limit.set_size, v_limit.size);
    if v_limit.kind = 'breaker' then
        return (select b.until from {schema}.breakers b where b.name = p_name and b.until > p_now and b.until < 4503599627370496);
    elsif v_limit.name is null or v_limit.kind = 'concurrency' or v_size <= 0 then
        return null;
    end if;
    select * into v_bucket from {schema}.buckets b where b.name = p_name;
    v_cost := least(p_cost, v_size);
    if v_limit.kind = 'smooth' then
        v_at := ceil(
            coalesce(v_bucket.tat, 0)
            - (greatest(v_limit.burst, 1, v_cost) - greatest(v_cost, 1))::numeric * v_limit.per / v_size
        );
    else
        -- behind: what still counts once an entry and all before it have run out
        select min(e.over) filter (where e.behind + greatest(v_cost, 1) <= v_size) into v_at from (
            select s.last + v_limit.per as over,
                sum(s.n) over (order by s.last desc rows between unbounded preceding and current row) - s.n as behind
            from {schema}.starts s where s.bucket = p_name and s.last > p_now - v_limit.per
            union all
            select p_now, coalesce(sum(s.n), 0) from {schema}.starts s where s.bucket = p_name and s.last > p_now - v_limit.per
        ) e;
    end if;
    v_at := greatest(v_at, v_bucket.blocked);
    return case when v_at > p_now then v_at end;
end
$$;

-- moment: when to look again at a bucket that has no room: as above, or when the place of the first guest ends
create function {schema}.moment_v1(p_name text, p_kind text, p_cost bigint, p_now bigint) returns bigint language plpgsql as $$
begin
    if p_kind <> 'concurrency' then
        p_cost := {schema}.next_at_v1(p_name, p_cost, p_now);
        if p_kind <> 'breaker' or p_cost is not null then
            return p_cost;
        end if;
    end if;
    return (select min(g.until) from {schema}.guests g where g.bucket = p_name and g.until > p_now);
end
$$;
