-- What starts use and what ends give back: the counts of running jobs (bucket_uses) and the starts of rates
-- (rate_starts, and tat of a smooth rate). All functions here expect that the caller has locked the buckets.

-- list_buckets: the buckets that these jobs name, each as often as it is named.
create function {schema}.list_buckets_v1(p_ids bytea[]) returns text[] language plpgsql as $$
begin
    return array(
        select b.name from {schema}.jobs j cross join unnest(j.buckets) as b(name)
            where j.id = any(p_ids) and j.buckets is not null
    );
end
$$;

-- list_acked_buckets: the buckets that these acks of a worker may free. If the worker uses only a few unkeyed buckets,
-- all of these are returned without a look at the jobs; else the buckets that the acked jobs name.
create function {schema}.list_acked_buckets_v1(p_worker text, p_done bytea[], p_acks {schema}.ack_v1[]) returns text[]
language plpgsql as $$
declare
    v_names text[] := array(select u.bucket from {schema}.bucket_uses u where u.worker = p_worker
        order by u.bucket limit {FEW_BUCKETS} + 1);
    v_acked integer := cardinality(p_done) + cardinality(p_acks);
begin
    if strpos(array_to_string(v_names, ''), '=') = 0
        and cardinality(v_names) <= greatest(1, least({FEW_BUCKETS}, v_acked / {ACKS_PER_BUCKET})) then
        return v_names;
    end if;
    return {schema}.list_buckets_v1(p_done || array(select a.id from unnest(p_acks) a));
end
$$;

-- record_starts: record p_numbers starts of jobs that name a bucket at a cost (null: 1).
create function {schema}.record_starts_v1(p_worker text, p_names text[], p_costs bigint[], p_numbers bigint[], p_now bigint)
returns void
language plpgsql as $$
declare
    v_names text[];
    v_amounts bigint[];
    v_times bigint[];
begin
    insert into {schema}.bucket_uses (bucket, worker, n)
    select u.name, p_worker, sum(u.n) from unnest(p_names, p_numbers) as u(name, n) group by u.name
    on conflict (bucket, worker) do update set n = bucket_uses.n + excluded.n;
    select array_agg(s.name), array_agg(s.amount), array_agg(s.time) into v_names, v_amounts, v_times from (
        select u.name, sum(c.cost * u.n) as amount, sum({schema}.smooth_time_v1(c.cost, l.per, c.size) * u.n) as time
        from unnest(p_names, p_costs, p_numbers) as u(name, cost, n)
        join {schema}.limits l on l.name = any(array[split_part(u.name, '=', 1)]) and l.kind in ({LIMIT_RATE}, {LIMIT_SMOOTH})
        cross join lateral (select coalesce(l.set_size, l.size) as size) z
        cross join lateral (select z.size, least(coalesce(u.cost, 1), z.size) as cost) c
        group by u.name
    ) s;
    if v_names is not null then
        perform {schema}.charge_rates_v1(p_worker, v_names, v_amounts, v_times, p_now);
    end if;
end
$$;

-- record_lane_starts: record p_n starts of one lane, each at a cost of 1 in every bucket of the lane.
create function {schema}.record_lane_starts_v1(p_worker text, p_names text[], p_n bigint, p_now bigint) returns void
language plpgsql as $$
declare
    v_rates text[];
    v_times bigint[];
begin
    insert into {schema}.bucket_uses (bucket, worker, n) select u.name, p_worker, p_n from unnest(p_names) as u(name)
    on conflict (bucket, worker) do update set n = bucket_uses.n + excluded.n;
    select array_agg(l.name), array_agg({schema}.smooth_time_v1(1, l.per, coalesce(l.set_size, l.size)) * p_n)
    into v_rates, v_times from {schema}.limits l where l.name = any(p_names) and l.kind in ({LIMIT_RATE}, {LIMIT_SMOOTH});
    if v_rates is not null then
        perform {schema}.charge_rates_v1(p_worker, v_rates, array_fill(p_n, array[cardinality(v_rates)]), v_times, p_now);
    end if;
end
$$;

-- charge_rates: charge these amounts to the rates of these buckets, and these times to smooth rates (null: each amount
-- is the cost of one start); buckets without a rate are skipped. Other transactions may charge the same bucket at the
-- same time: this function waits for no row of theirs.
create function {schema}.charge_rates_v1(
    p_worker text, p_names text[], p_amounts bigint[], p_times bigint[], p_now bigint
) returns void language plpgsql as $$
begin
    with used as materialized (
        select u.name, u.amount, l.per, s.at, coalesce((p_now - s.first) * {RATE_PIECES} < l.per, false) as joins
        from unnest(p_names, p_amounts) as u(name, amount)
        join {schema}.limits l on l.name = any(array[split_part(u.name, '=', 1)]) and l.kind = {LIMIT_RATE}
        left join lateral (
            select x.ctid as at, x.first from {schema}.rate_starts x
            where x.bucket = u.name and x.worker = p_worker and (p_now - x.last) * {RATE_PIECES} < l.per
                order by x.last desc limit 1
        ) s on true
    ), joined as (
        update {schema}.rate_starts x set last = greatest(x.last, p_now), n = x.n + u.amount
        from used u where x.ctid = u.at and u.joins
    ), over as (
        delete from {schema}.rate_starts x using used u
        where not u.joins and x.ctid = any(array(
            select o.ctid from {schema}.rate_starts o where o.bucket = u.name and o.last <= p_now - u.per for update skip locked
        ))
    )
    insert into {schema}.rate_starts (bucket, worker, first, last, n)
    select u.name, p_worker, p_now, p_now, u.amount from used u where not u.joins;
    update {schema}.buckets b
    set tat = greatest(b.tat, p_now)
        + coalesce(u.time, {schema}.smooth_time_v1(u.amount, l.per, coalesce(l.set_size, l.size)))
    from unnest(p_names, p_amounts, p_times) as u(name, amount, time)
    join {schema}.limits l on l.name = any(array[split_part(u.name, '=', 1)]) and l.kind = {LIMIT_SMOOTH}
    where b.name = any(array[u.name]);
end
$$;

-- release_uses: jobs of this worker that named these buckets no longer run. A bucket is named once per job.
create function {schema}.release_uses_v1(p_worker text, p_names text[]) returns void language plpgsql as $$
begin
    with freed as materialized (
        select b.name, count(*) as n from unnest(p_names) as b(name) group by b.name
    ), ended as (
        delete from {schema}.bucket_uses u using freed f where u.bucket = any(array[f.name]) and u.worker = p_worker
            and u.n <= f.n
    )
    update {schema}.bucket_uses u set n = u.n - f.n from freed f
    where u.bucket = any(array[f.name]) and u.worker = p_worker and u.n > f.n;
end
$$;

-- correct_costs: correct the rates of these buckets after a start of p_costs: p_spent has the real cost by limit, and
-- for p_slow microseconds from now the rates let nothing start.
create function {schema}.correct_costs_v1(p_names text[], p_costs bigint[], p_spent jsonb, p_slow bigint, p_now bigint)
returns void
language plpgsql as $$
declare
    v_charge record;
    v_back bigint;
    v_start record;
begin
    for v_charge in
        select u.name, l.kind, c.spent - c.cost as more,
            {schema}.smooth_time_v1(c.spent, l.per, s.size) - {schema}.smooth_time_v1(c.cost, l.per, s.size) as time
        from unnest(p_names, p_costs) as u(name, cost)
        join {schema}.limits l on l.name = any(array[split_part(u.name, '=', 1)]) and l.kind in ({LIMIT_RATE}, {LIMIT_SMOOTH})
        cross join lateral (select coalesce(l.set_size, l.size) as size) s
        cross join lateral (
            select least(coalesce(u.cost, 1), s.size) as cost,
                case when (p_spent ->> l.name) is not null then greatest((p_spent ->> l.name)::bigint, 0) end as spent
        ) c
    loop
        if p_slow > 0 then
            update {schema}.buckets b set blocked_until = greatest(b.blocked_until, p_now + p_slow) where b.name = v_charge.name;
        end if;
        continue when v_charge.more is null;
        if v_charge.kind = {LIMIT_SMOOTH} then
            update {schema}.buckets b set tat = greatest(b.tat, p_now) + v_charge.time where b.name = v_charge.name;
        elsif v_charge.more > 0 then
            perform {schema}.charge_rates_v1('', array[v_charge.name], array[v_charge.more], null, p_now);
        else
            v_back := -v_charge.more;
            for v_start in
                select s.ctid as at, s.n from {schema}.rate_starts s where s.bucket = v_charge.name and v_back > 0
                    order by s.last desc
            loop
                exit when v_back <= 0;
                update {schema}.rate_starts s set n = s.n - least(v_back, v_start.n) where s.ctid = v_start.at;
                v_back := v_back - v_start.n;
            end loop;
        end if;
    end loop;
end
$$;

-- correct_acked_costs: correct_costs for the jobs of these acks. A job that is handed back with new buckets has cost
-- nothing.
create function {schema}.correct_acked_costs_v1(p_acks {schema}.ack_v1[], p_now bigint) returns void language plpgsql as $$
declare
    v_ack record;
begin
    for v_ack in
        select case when a.buckets is null then a.spent else {schema}.zero_costs_v1(j.buckets) end as spent, a.slow,
            j.buckets, j.costs
        from unnest(p_acks) a join {schema}.jobs j on j.id = any(array[a.id])
        where (a.slow > 0 or a.spent is not null or a.buckets is not null) and j.buckets is not null
    loop
        perform {schema}.correct_costs_v1(v_ack.buckets, v_ack.costs, v_ack.spent, coalesce(v_ack.slow, 0), p_now);
    end loop;
end
$$;

-- zero_costs: the real cost of an attempt that never began, for the limits of these buckets: 0 each.
create function {schema}.zero_costs_v1(p_names text[]) returns jsonb language sql immutable as $$
    select jsonb_object_agg(split_part(b.name, '=', 1), 0) from unnest(p_names) as b(name)
$$;
