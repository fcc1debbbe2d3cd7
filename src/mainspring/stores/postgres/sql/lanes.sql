-- keyed_at: where the keys begin in the home of a limited job, counted from 1; 0 if it has none
create function {schema}.keyed_at_v1(p_home text, p_queue text) returns integer language sql immutable as $$
    select case when strpos(substr(p_home, length(p_queue) + 2), '=') = 0 then 0
        else strpos(substr(p_home, length(p_queue) + 2), '=') + length(p_queue) + 1 end
$$;

-- lane_rows: these rows of lanes. A function, so that nothing else that is asked of them makes a plan walk all of them
create function {schema}.lane_rows_v1(p_ids bigint[]) returns setof {schema}.lanes language plpgsql as $$
begin
    return query select l.* from unnest(p_ids) as i(id) join {schema}.lanes l on l.id = any(array[i.id]);
end
$$;

-- line_up: these jobs may have become ready, or changed their priority: each lane with keys has a row in its place in the order
-- A row that is there is locked, so that a claim which finds its lane empty leaves it; a claim that was quicker is waited
-- for, and the row made anew. p_open: a caller's transaction, which may stay open: it locks nothing, and makes a row in any case.
create function {schema}.line_up_v1(p_ids bytea[], p_open boolean) returns void language plpgsql as $$
declare
    v_lines {schema}.line_v1[] := array(
        select row(
            j.lane, j.priority, min(j.seq), left(j.home, k.at) || substr(j.lane, length(j.home) + 1), j.queue, j.buckets
        )::{schema}.line_v1
        from {schema}.jobs j cross join lateral (select {schema}.keyed_at_v1(j.home, j.queue) as at) k
        where j.id = any(p_ids) and j.buckets is not null and k.at > 0 and j.state || '' = 'ready'
        group by j.lane, j.priority, j.home, k.at, j.queue, j.buckets
    );
    v_there {schema}.line_v1[] := '{}';
begin
    if cardinality(v_lines) = 0 then
        return;
    end if;
    if not p_open and current_setting('transaction_isolation') = 'read committed' then
        v_there := array(
            select row(l.lane, l.priority, 0, null, null, null)::{schema}.line_v1 from unnest(v_lines) n join {schema}.lanes l
                on l.lane = any(array[n.lane]) and l.priority = n.priority and l.seq <= n.seq
            for key share of l
        );
    end if;
    -- Grouped: a list that is looked through for each lane of a large batch takes longer than a call may.
    insert into {schema}.lanes (lane, priority, seq, grp, queue, buckets, vtime)
    select s.lane, s.priority, max(s.seq), max(s.grp), max(s.queue), max(s.buckets), {schema}.vtime_v1(s.lane, max(s.queue), s.priority)
    from (
        select n.*, false as there from unnest(v_lines) n union all select t.*, true from unnest(v_there) t
    ) s
    group by s.lane, s.priority having not bool_or(s.there);
end
$$;

-- open: there may be room in these buckets, which the caller has locked: of each group as many lanes that are parked on
-- one as it has places are looked at again: the first by priority and the first by age, as a claim may ask for either. Lanes
-- of a group are alike for a claim, but for their other keys: a lane that turns out to be stuck on those, or empty, opens the
-- next (see settle). p_rates: also where something was given back to a rate
create function {schema}.open_v1(p_names text[], p_rates boolean, p_now bigint) returns bigint[] language plpgsql as $$
declare
    c_most constant integer := 1000;
    v_lanes bigint[];
begin
    if not exists (select 1 from {schema}.lanes l where l.parked_on = any(p_names)) then
        return '{}';
    end if;
    with recursive free as (
        select r.name, least(r.room, c_most) as places
        from unnest({schema}.rooms_v1(array(select distinct u.name from unnest(p_names) as u(name)), p_now)) r
        where r.room > 0 and (p_rates or coalesce(r.kind, 'concurrency') = 'concurrency')
    ), groups as (
        select f.name, f.places, n.grp from free f cross join lateral (
            select l.grp from {schema}.lanes l where l.parked_on = f.name order by l.grp limit 1
        ) n
        union all
        select g.name, g.places, n.grp from groups g cross join lateral (
            select l.grp from {schema}.lanes l where l.parked_on = g.name and l.grp > g.grp order by l.grp limit 1
        ) n
    ), levels as (
        select g.*, n.priority from groups g cross join lateral (
            select l.priority from {schema}.lanes l where l.parked_on = g.name and l.grp = g.grp order by l.priority desc limit 1
        ) n
        union all
        select v.name, v.places, v.grp, n.priority from levels v cross join lateral (
            select l.priority from {schema}.lanes l where l.parked_on = v.name and l.grp = v.grp and l.priority < v.priority
            order by l.priority desc limit 1
        ) n
    ), first as (
        select f.id, v.places, row_number() over (partition by v.name, v.grp order by v.priority desc, f.seq) as nth,
            row_number() over (partition by v.name, v.grp order by f.seq) as nth_by_age
        from levels v cross join lateral (
            select l.id, l.seq from {schema}.lanes l where l.parked_on = v.name and l.grp = v.grp and l.priority = v.priority
            order by l.seq limit v.places
        ) f
    )
    select coalesce(array_agg(f.id order by f.id), '{}') into v_lanes from first f
    where f.nth <= f.places or f.nth_by_age <= f.places;
    perform 1 from unnest(v_lanes) as i(id) join {schema}.lanes l on l.id = any(array[i.id]) for no key update of l;
    update {schema}.lanes l set parked_on = null, parked_until = null from unnest(v_lanes) as i(id) where l.id = any(array[i.id]);
    return v_lanes;
end
$$;

-- open_due: open lanes that waited for a moment that has come; what somebody else has in hand is passed over
-- returns the queues in which something may start
create function {schema}.open_due_v1(p_limit integer, p_now bigint) returns text[] language plpgsql as $$
declare
    v_lanes bigint[] := array(
        select l.id from {schema}.lanes l where l.parked_until <= p_now
        order by l.parked_until limit p_limit for no key update skip locked
    );
    v_woken text[];
begin
    if cardinality(v_lanes) = 0 then
        return '{}';
    end if;
    with opened as (
        update {schema}.lanes l set parked_on = null, parked_until = null from unnest(v_lanes) as i(id)
        where l.id = any(array[i.id]) returning l.queue
    )
    select array(select distinct o.queue from opened o) into v_woken;
    return v_woken;
end
$$;

-- open_left: a job left these lanes by another door than a claim: what stands behind it may not have to wait for its moment.
-- A row that a claim has in hand is brought up to date by it
create function {schema}.open_left_v1(p_lanes text[]) returns void language plpgsql as $$
begin
    update {schema}.lanes l set parked_on = null, parked_until = null
    where l.id = any(array(
        select x.id from {schema}.lanes x where x.lane = any(p_lanes) and x.parked_until is not null
        for no key update skip locked
    ));
end
$$;

-- wake: whom to tell of the room that is left in these buckets, which the caller has locked: the queues of lanes that were
-- opened and still stand open, and those that were noted to wait for a gate
create function {schema}.wake_v1(p_names text[], p_opened bigint[], p_rates boolean, p_now bigint) returns text[]
language plpgsql as $$
declare
    v_woken text[] := '{}';
begin
    if cardinality(p_opened) > 0 then
        v_woken := array(
            select distinct l.queue from {schema}.lane_rows_v1(p_opened) l
            where l.parked_on is null
        );
    end if;
    if exists (select 1 from {schema}.waits w where w.bucket = any(p_names)) then
        with told as (
            delete from {schema}.waits w
            where w.bucket = any(array(
                select r.name from unnest({schema}.rooms_v1(p_names, p_now)) r
                where r.room > 0 and (p_rates or coalesce(r.kind, 'concurrency') in ('concurrency', 'breaker'))
            ))
            returning w.queue
        )
        select v_woken || array(select distinct t.queue from told t) into v_woken;
    end if;
    return v_woken;
end
$$;

-- freed: jobs or guests left these buckets, which the caller has locked. returns the queues in which something may start
create function {schema}.freed_v1(p_names text[], p_rates boolean, p_now bigint) returns text[] language plpgsql as $$
begin
    if cardinality(p_names) = 0 then
        return '{}';
    end if;
    return {schema}.wake_v1(p_names, {schema}.open_v1(p_names, p_rates, p_now), p_rates, p_now);
end
$$;

-- lock_held: lock the buckets of all jobs that this worker runs, whose row the caller has locked. returns them
create function {schema}.lock_held_v1(p_worker {schema}.workers) returns text[] language plpgsql as $$
declare
    v_names text[] := '{}';
begin
    if p_worker.limited then
        v_names := array(select u.bucket from {schema}.uses u where u.worker = p_worker.id);
        perform {schema}.lock_buckets_v1(v_names);
    end if;
    return v_names;
end
$$;

-- waits_for_rate: whether a row is parked until a moment at which a rate lets its first job through
create function {schema}.waits_for_rate_v1(p_row {schema}.lanes) returns boolean language plpgsql stable as $$
begin
    return p_row.parked_until is not null and exists (
        select 1 from {schema}.limits k
        where k.name = any(array[split_part(p_row.parked_on, '=', 1)]) and k.kind in ('rate', 'smooth')
    );
end
$$;

-- settle: bring the rows of lanes that a claim looked at up to date, of those all of whose buckets it has locked: in their
-- place by their first job; parked, where that has no room; gone, where there is none. The places that the last two leave to
-- others are passed on. returns the lanes opened by that, and the first moment at which one of those parked may be opened
create function {schema}.settle_v1(p_looked bigint[], p_locked text[], p_now bigint) returns {schema}.settled_v1
language plpgsql as $$
declare
    v_rooms {schema}.room_v1[] := {schema}.rooms_v1(
        array(
            select distinct b.name from {schema}.lane_rows_v1(p_looked) l
            cross join unnest(l.buckets) as b(name) where l.buckets <@ p_locked
        ), p_now
    );
    v_row record;
    v_id bigint[] := '{}';
    v_seq bigint[] := '{}';
    v_on text[] := '{}';
    v_until bigint[] := '{}';
    v_over bigint[] := '{}';
    v_empty bigint[];
    v_left text[] := '{}';
    v_paced text[] := '{}';
    v_paced_on text[] := '{}';
    v_paced_until bigint[] := '{}';
    v_at integer;
begin
    for v_row in
        select l.id, l.seq, l.lane, l.buckets, h.seq as head, coalesce(a.name, f.name) as name,
            case when a.name is null then f.moment else a.moment end as moment, a.name is not null or f.paced as paced,
            row_number() over (partition by l.lane, l.priority order by l.id) > 1 as again
        from {schema}.lane_rows_v1(p_looked) l
        left join lateral (
            select j.seq, j.costs from {schema}.jobs j
            where j.state = 'ready' and j.lane = l.lane and j.priority = l.priority order by j.seq limit 1
        ) h on true
        left join lateral (
            -- A gate that is full holds back the whole group: its lanes stay in their order.
            select r.name, {schema}.moment_v1(r.name, r.kind, coalesce(h.costs[u.n], 1), p_now) as moment, r.unit > 0 as paced
            from unnest(l.buckets) with ordinality as u(name, n) join unnest(v_rooms) r on r.name = u.name
            where h.seq is not null and r.room < greatest(1, least(coalesce(h.costs[u.n], 1), r.cap))
                and (r.room > 0 or strpos(r.name, '=') > 0)
            order by 2 desc nulls first limit 1
        ) f on true
        left join lateral (
            select o.parked_on as name, o.parked_until as moment from {schema}.lanes o
            where h.seq is not null and o.lane = l.lane and o.priority > l.priority and {schema}.waits_for_rate_v1(o)
            order by o.priority desc limit 1
        ) a on true
        where l.buckets <@ p_locked order by l.priority desc
    loop
        -- Who stands behind one that waits for a rate waits with it.
        v_at := array_position(v_paced, v_row.lane::text);
        if v_at is not null then
            v_row.name := v_paced_on[v_at];
            v_row.moment := v_paced_until[v_at];
        elsif v_row.paced and v_row.moment is not null and not v_row.again then
            v_paced := array_append(v_paced, v_row.lane::text);
            v_paced_on := array_append(v_paced_on, v_row.name::text);
            v_paced_until := array_append(v_paced_until, v_row.moment);
        end if;
        if v_row.head is null or v_row.again then
            v_over := array_append(v_over, v_row.id);
            v_left := v_left || v_row.buckets;
        elsif v_row.name is not null or v_row.head <> v_row.seq then
            v_id := array_append(v_id, v_row.id);
            v_seq := array_append(v_seq, v_row.head);
            v_on := array_append(v_on, v_row.name);
            v_until := array_append(v_until, v_row.moment);
            if v_row.name is not null then
                v_left := v_left || array_remove(v_row.buckets, v_row.name);
            end if;
        end if;
    end loop;
    update {schema}.lanes l set seq = u.seq, parked_on = u.name, parked_until = u.until
    from unnest(v_id, v_seq, v_on, v_until) as u(id, seq, name, until) where l.id = any(array[u.id]);
    if cardinality(v_over) > 0 then
        v_empty := array(
            select l.id from unnest(v_over) as i(id) join {schema}.lanes l on l.id = any(array[i.id]) for update of l skip locked
        );
        -- A new statement: it sees the jobs of those who held a row until we locked it.
        delete from {schema}.lanes l using unnest(v_empty) as i(id) where l.id = any(array[i.id]) and (
            not exists (select 1 from {schema}.jobs j where j.state = 'ready' and j.lane = l.lane and j.priority = l.priority)
            or exists (
                select 1 from {schema}.lanes o
                where o.lane = l.lane and o.priority = l.priority and o.id < l.id and o.id <> all(v_over)
            )
        );
        -- Those that somebody is bringing a job to stand back, so that they are in nobody's way meanwhile.
        update {schema}.lanes l set seq = pg_sequence_last_value('{schema}.seq'::regclass) from unnest(v_over) as i(id)
        where l.id = any(array[i.id]) and l.id <> all(v_empty);
    end if;
    return row(
        case when cardinality(v_left) > 0 then {schema}.open_v1(v_left, false, p_now) else '{}' end,
        (select min(u.until) from unnest(v_until) as u(until))
    )::{schema}.settled_v1;
end
$$;

-- window: the next rows in the order of these groups, by age or by (priority desc, seq), without those looked at already
create function {schema}.window_v1(p_groups text[], p_size integer, p_age boolean, p_looked bigint[]) returns bigint[]
language plpgsql as $$
begin
    if p_age then
        return array(
            with recursive levels as (
                select g.grp, n.priority from unnest(p_groups) as g(grp) cross join lateral (
                    select l.priority from {schema}.lanes l where l.parked_on is null and l.grp = g.grp
                    order by l.priority desc limit 1
                ) n
                union all
                select v.grp, n.priority from levels v cross join lateral (
                    select l.priority from {schema}.lanes l where l.parked_on is null and l.grp = v.grp and l.priority < v.priority
                    order by l.priority desc limit 1
                ) n
            )
            select x.id from levels v cross join lateral (
                select l.id, l.seq from {schema}.lanes l
                where l.parked_on is null and l.grp = v.grp and l.priority = v.priority and l.id <> all(p_looked)
                order by l.seq limit p_size
            ) x order by x.seq limit p_size
        );
    end if;
    return array(
        select x.id from unnest(p_groups) as g(grp) cross join lateral (
            select l.id, l.priority, l.seq from {schema}.lanes l
            where l.parked_on is null and l.grp = g.grp and l.id <> all(p_looked)
            order by l.priority desc, l.seq limit p_size
        ) x order by x.priority desc, x.seq limit p_size
    );
end
$$;
