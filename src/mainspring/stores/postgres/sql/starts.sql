-- buckets_of: the buckets that these jobs name, each as often as it is named
create function {schema}.buckets_of_v1(p_ids bytea[]) returns text[] language plpgsql as $$
begin
    return array(
        select b.name from {schema}.jobs j cross join unnest(j.buckets) as b(name) where j.id = any(p_ids) and j.buckets is not null
    );
end
$$;

-- used_by: the buckets in which places may be free after these acks of a worker: those of the jobs, or all that it uses, where
-- that is known sooner
create function {schema}.used_by_v1(p_worker text, p_done bytea[], p_acks {schema}.ack_v1[]) returns text[] language plpgsql as $$
declare
    v_names text[] := array(select u.bucket from {schema}.uses u where u.worker = p_worker order by u.bucket limit 9);
    v_acked integer := cardinality(p_done) + cardinality(p_acks);
begin
    if strpos(array_to_string(v_names, ''), '=') = 0 and cardinality(v_names) <= greatest(1, least(8, v_acked / 8)) then
        return v_names;
    end if;
    return {schema}.buckets_of_v1(p_done || array(select a.id from unnest(p_acks) a));
end
$$;

-- start: so many jobs that name a bucket at a cost (null: 1) run from now on: they take their places, and use up what rates
-- let through. All buckets are locked
create function {schema}.start_v1(p_worker text, p_names text[], p_costs bigint[], p_numbers bigint[], p_now bigint) returns void
language plpgsql as $$
declare
    v_names text[];
    v_amounts bigint[];
begin
    insert into {schema}.uses (bucket, worker, n)
    select u.name, p_worker, sum(u.n) from unnest(p_names, p_numbers) as u(name, n) group by u.name
    on conflict (bucket, worker) do update set n = uses.n + excluded.n;
    select array_agg(s.name), array_agg(s.amount) into v_names, v_amounts from (
        select u.name, sum(least(coalesce(u.cost, 1), coalesce(l.set_size, l.size)) * u.n) as amount
        from unnest(p_names, p_costs, p_numbers) as u(name, cost, n)
        join {schema}.limits l on l.name = any(array[split_part(u.name, '=', 1)]) and l.kind in ('rate', 'smooth')
        group by u.name
    ) s;
    if v_names is not null then
        perform {schema}.use_up_v1(p_worker, v_names, v_amounts, p_now);
    end if;
    if {schema}.guarded_v1(p_names) then
        perform {schema}.probe_v1(p_names, p_now);
    end if;
end
$$;

-- start_lane: the same for so many jobs of a lane, each at a cost of 1
create function {schema}.start_lane_v1(p_worker text, p_names text[], p_n bigint, p_now bigint) returns void
language plpgsql as $$
declare
    v_rates text[];
begin
    insert into {schema}.uses (bucket, worker, n) select u.name, p_worker, p_n from unnest(p_names) as u(name)
    on conflict (bucket, worker) do update set n = uses.n + excluded.n;
    v_rates := array(select l.name from {schema}.limits l where l.name = any(p_names) and l.kind in ('rate', 'smooth'));
    if cardinality(v_rates) > 0 then
        perform {schema}.use_up_v1(p_worker, v_rates, array_fill(p_n, array[cardinality(v_rates)]), p_now);
    end if;
    if {schema}.guarded_v1(p_names) then
        perform {schema}.probe_v1(p_names, p_now);
    end if;
end
$$;

-- use_up: so much was started in each of these buckets, which the caller has locked; those that have no rate pass. Others may
-- do so at the same time: it waits for no row of theirs
create function {schema}.use_up_v1(p_worker text, p_names text[], p_amounts bigint[], p_now bigint) returns void language plpgsql as $$
begin
    with used as materialized (
        select u.name, u.amount, l.per, s.at, coalesce((p_now - s.first) * 1000 < l.per, false) as joins
        from unnest(p_names, p_amounts) as u(name, amount)
        join {schema}.limits l on l.name = any(array[split_part(u.name, '=', 1)]) and l.kind = 'rate'
        left join lateral (
            select x.ctid as at, x.first from {schema}.starts x
            where x.bucket = u.name and x.worker = p_worker and (p_now - x.last) * 1000 < l.per order by x.last desc limit 1
        ) s on true
    ), joined as (
        update {schema}.starts x set last = greatest(x.last, p_now), n = x.n + u.amount
        from used u where x.ctid = u.at and u.joins
    ), over as (
        delete from {schema}.starts x using used u
        where not u.joins and x.ctid = any(array(
            select o.ctid from {schema}.starts o where o.bucket = u.name and o.last <= p_now - u.per for update skip locked
        ))
    )
    insert into {schema}.starts (bucket, worker, first, last, n)
    select u.name, p_worker, p_now, p_now, u.amount from used u where not u.joins;
    update {schema}.buckets b
    set tat = greatest(b.tat, p_now) + ceil(u.amount::numeric * l.per / greatest(coalesce(l.set_size, l.size), 1))
    from unnest(p_names, p_amounts) as u(name, amount)
    join {schema}.limits l on l.name = any(array[split_part(u.name, '=', 1)]) and l.kind = 'smooth'
    where b.name = any(array[u.name]);
end
$$;

-- free: jobs of this worker that named these buckets, each as often as it is named here, run no more
create function {schema}.free_v1(p_worker text, p_names text[]) returns void language plpgsql as $$
begin
    with freed as materialized (
        select b.name, count(*) as n from unnest(p_names) as b(name) group by b.name
    ), ended as (
        delete from {schema}.uses u using freed f where u.bucket = any(array[f.name]) and u.worker = p_worker and u.n <= f.n
    )
    update {schema}.uses u set n = u.n - f.n from freed f
    where u.bucket = any(array[f.name]) and u.worker = p_worker and u.n > f.n;
end
$$;

-- amend: what a start of p_cost in each of these buckets, which the caller has locked, really cost (by limit), and for how
-- long from now on their rates let nothing through
create function {schema}.amend_v1(p_names text[], p_costs bigint[], p_spent jsonb, p_slow bigint, p_now bigint) returns void
language plpgsql as $$
declare
    v_use record;
    v_back bigint;
    v_start record;
begin
    for v_use in
        select u.name, l.kind, case when (p_spent ->> l.name) is not null
                then greatest((p_spent ->> l.name)::bigint, 0) - least(coalesce(u.cost, 1), s.size) end as more,
            l.per, greatest(s.size, 1) as size
        from unnest(p_names, p_costs) as u(name, cost)
        join {schema}.limits l on l.name = any(array[split_part(u.name, '=', 1)]) and l.kind in ('rate', 'smooth')
        cross join lateral (select coalesce(l.set_size, l.size) as size) s
    loop
        if p_slow > 0 then
            update {schema}.buckets b set blocked = greatest(b.blocked, p_now + p_slow) where b.name = v_use.name;
        end if;
        continue when v_use.more is null;
        if v_use.more > 0 then
            perform {schema}.use_up_v1('', array[v_use.name], array[v_use.more], p_now);
        elsif v_use.kind = 'smooth' then
            update {schema}.buckets b set tat = b.tat + ceil(v_use.more::numeric * v_use.per / v_use.size)
            where b.name = v_use.name;
        else
            v_back := -v_use.more;
            for v_start in
                select s.ctid as at, s.n from {schema}.starts s where s.bucket = v_use.name and v_back > 0 order by s.last desc
            loop
                exit when v_back <= 0;
                update {schema}.starts s set n = s.n - least(v_back, v_start.n) where s.ctid = v_start.at;
                v_back := v_back - v_start.n;
            end loop;
        end if;
    end loop;
end
$$;

-- amend_acked: the same for the jobs of these acks; those that are handed back with buckets have cost nothing
create function {schema}.amend_acked_v1(p_acks {schema}.ack_v1[], p_now bigint) returns void language plpgsql as $$
declare
    v_ack record;
begin
    for v_ack in
        select case when a.buckets is null then a.spent else {schema}.unspent_v1(j.buckets) end as spent, a.slow, j.buckets, j.costs
        from unnest(p_acks) a join {schema}.jobs j on j.id = any(array[a.id])
        where (a.slow > 0 or a.spent is not null or a.buckets is not null) and j.buckets is not null
    loop
        perform {schema}.amend_v1(v_ack.buckets, v_ack.costs, v_ack.spent, coalesce(v_ack.slow, 0), p_now);
    end loop;
end
$$;
