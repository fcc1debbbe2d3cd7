-- Unkeyed limits in a turn: which of them are locked, exclusively or shared, before any job row is locked.

-- list_unkeyed: the names of the unkeyed buckets of these lanes, and of the buckets in p_names.
create function {schema}.list_unkeyed_v1(p_lanes {schema}.lane_v1[], p_names text[]) returns text[] language plpgsql as $$
declare
    v_lane {schema}.lane_v1;
begin
    foreach v_lane in array p_lanes loop
        p_names := p_names || v_lane.buckets;
    end loop;
    return case when cardinality(p_names) < 2 then p_names
        else array(select distinct u.name from unnest(p_names) as u(name) order by 1) end;
end
$$;

-- find_other_key: the lowest order key of the first jobs of the other, lower priorities of a lane; null if all its ready
-- jobs have this priority, that of its first job.
create function {schema}.find_other_key_v1(p_lane text, p_priority integer) returns bigint language plpgsql as $$
declare
    v_lowest bigint;
    v_next record;
begin
    loop
        select j.priority, {schema}.order_key_v1(j.seq, j.priority) as key into v_next from {schema}.jobs j
        where j.state = {READY} and j.lane = p_lane and j.priority < p_priority
        order by j.priority desc, j.seq limit 1;
        exit when not found;
        p_priority := v_next.priority;
        v_lowest := least(v_lowest, v_next.key);
    end loop;
    return v_lowest;
end
$$;

-- may_share: whether turns may share the lock of an unkeyed bucket, each of which starts at most p_n jobs at a cost of
-- 1 there. {SHARERS} turns share it at a time, and none sees what the others claim: together that is at most a quarter
-- of the size. Another quarter may be in use, so that the bucket has capacity for all of them and is still plentiful
-- after that (see PLENTIFUL). A turn that may not share it decides by every single place: it holds the lock
-- exclusively.
create function {schema}.may_share_v1(p_capacity {schema}.capacity_v1, p_n bigint) returns boolean
language plpgsql immutable as $$
begin
    return case
        when strpos(p_capacity.name, '=') > 0 or starts_with(p_capacity.name, '*') then false
        when p_capacity.kind is null then true
        when p_capacity.kind in ({LIMIT_CONCURRENCY}, {LIMIT_RATE})
            then p_n <= p_capacity.size / ({SHARED_PART} * {SHARERS})
                and p_capacity.available >= p_capacity.size - p_capacity.size / {SHARED_PART}
        else false
    end;
end
$$;

-- lock_limits: lock what a turn must lock before it touches a job row. p_acked are the buckets of its acks.
create function {schema}.lock_limits_v1(
    p_lanes {schema}.lane_v1[], p_acked text[], p_n integer[], p_ahead boolean[], p_acks {schema}.ack_v1[],
    p_worker text, p_before bigint, p_now bigint
) returns {schema}.limit_locks_v1 language plpgsql as $$
declare
    v_capacities {schema}.capacity_v1[] := {schema}.read_capacities_v1({schema}.list_unkeyed_v1(p_lanes, p_acked), p_before);
    v_ahead text[] := '{}';
    v_lanes {schema}.lane_v1[] := p_lanes;
    v_reply {schema}.limit_locks_v1;
    v_all bigint := 0;
    v_exact boolean := false;
    v_n integer;
begin
    if true = any(p_ahead) then
        v_ahead := array(select r.name from unnest(v_capacities) r where {schema}.compute_headroom_v1(r) > 0);
        if true = all(p_ahead) then
            v_lanes := {schema}.claimable_ahead_v1(p_lanes, v_ahead);
            if cardinality(v_lanes) < cardinality(p_lanes) then
                v_capacities := array(select r from unnest(v_capacities) r
                    where r.name = any({schema}.list_unkeyed_v1(v_lanes, p_acked)));
            end if;
        end if;
    end if;
    if cardinality(p_acks) > 0 then
        v_exact := exists (
            select 1 from unnest(p_acks) a where a.slow > 0 or a.spent is not null or a.buckets is not null
        );
    end if;
    foreach v_n in array p_n loop
        v_all := v_all + greatest(v_n, 0);
    end loop;
    v_reply := {schema}.lock_unkeyed_v1(v_lanes, p_acked, v_capacities, v_all, v_exact, p_worker, p_now);
    v_reply.ahead := v_ahead;
    return v_reply;
end
$$;

-- lock_unkeyed: lock the buckets of the acks, and the unkeyed buckets of the lanes from which the turn may claim up to
-- p_n jobs. A full bucket is not locked if its queue is noted: the transaction that frees a place wakes the queue after
-- this turn has looked.
-- p_exact: the acks change more than what runs, so nothing is shared
create function {schema}.lock_unkeyed_v1(
    p_lanes {schema}.lane_v1[], p_acked text[], p_capacities {schema}.capacity_v1[], p_n bigint, p_exact boolean, p_worker text,
    p_now bigint
) returns {schema}.limit_locks_v1 language plpgsql as $$
declare
    v_reply {schema}.limit_locks_v1 := row('{}', '{}', '{}', '{}', '{}', p_lanes, 0);
    v_lane {schema}.lane_v1;
    v_capacity {schema}.capacity_v1;
    v_counted text[] := '{}';
    v_lock record;
begin
    foreach v_lane in array p_lanes loop
        if v_lane.keyed or v_lane.costs is not null then
            v_counted := v_counted || v_lane.buckets;
        end if;
    end loop;
    foreach v_capacity in array p_capacities loop
        if v_capacity.available <= 0 and v_capacity.name <> all(p_acked) and not exists (
            select 1 from unnest(p_lanes) l where v_capacity.name = any(l.buckets) and not exists (
                select 1 from {schema}.waiting_queues w where w.bucket = v_capacity.name and w.queue = split_part(l.lane, '/', 1)
            )
        ) then
            v_reply.skipped := v_reply.skipped || v_capacity.name;
        elsif not p_exact and v_capacity.name <> all(v_counted) and {schema}.may_share_v1(v_capacity, p_n) then
            v_reply.shared := v_reply.shared || v_capacity.name;
        else
            v_reply.exclusive := v_reply.exclusive || v_capacity.name;
        end if;
    end loop;
    if cardinality(v_reply.shared) = 0 then
        perform {schema}.lock_buckets_v1(v_reply.exclusive);
    elsif cardinality(v_reply.shared) = 1 and cardinality(v_reply.exclusive) = 0 then
        perform pg_advisory_xact_lock_shared({schema}.unkeyed_lock_v1(v_reply.shared[1]));
    else
        for v_lock in
            select {schema}.unkeyed_lock_v1(g.name) as key, bool_or(g.exclusive) as exclusive from (
                select u.name, true as exclusive from unnest(v_reply.exclusive) as u(name) where strpos(u.name, '=') = 0
                union all
                select u.name, false from unnest(v_reply.shared) as u(name)
            ) g group by 1 order by 1
        loop
            if v_lock.exclusive then
                perform pg_advisory_xact_lock(v_lock.key);
            else
                perform pg_advisory_xact_lock_shared(v_lock.key);
            end if;
        end loop;
        perform {schema}.lock_bucket_rows_v1(v_reply.exclusive);
    end if;
    if p_n > 0 and cardinality(v_reply.shared) > 0 then
        perform {schema}.take_share_v1(v_reply.shared, p_worker);
    end if;
    v_reply.now := {schema}.now_v1(p_now);
    -- New statements: they count what other transactions did before the locks were taken.
    foreach v_capacity in array {schema}.read_capacities_v1(
        v_reply.exclusive || v_reply.shared || v_reply.skipped, v_reply.now
    ) loop
        if v_capacity.name = any(v_reply.skipped) then
            -- A rate wakes no queue: a bucket that has capacity by now counts as not looked at.
            if v_capacity.available > 0 then
                v_reply.skipped := array_remove(v_reply.skipped, v_capacity.name);
            end if;
        elsif v_capacity.name = any(v_reply.shared) and not {schema}.may_share_v1(v_capacity, p_n) then
            v_reply.shared := array_remove(v_reply.shared, v_capacity.name);
        elsif {schema}.compute_headroom_v1(v_capacity) >= p_n then
            v_reply.plentiful := v_reply.plentiful || v_capacity.name;
        end if;
    end loop;
    return v_reply;
end
$$;

-- take_share: become one of the {SHARERS} turns that claim at the same time under each of these buckets.
create function {schema}.take_share_v1(p_names text[], p_worker text) returns void language plpgsql as $$
declare
    v_first integer := hashtext(p_worker) & ({SHARERS} - 1);
    v_name text;
    v_taken boolean;
begin
    foreach v_name in array p_names loop
        for v_n in 0 .. {SHARERS} - 1 loop
            v_taken := pg_try_advisory_xact_lock(
                hashtextextended('{schema} unkeyed ' || v_name, 1 + ((v_first + v_n) & ({SHARERS} - 1)))
            );
            exit when v_taken;
        end loop;
        if not v_taken then
            perform pg_advisory_xact_lock(hashtextextended('{schema} unkeyed ' || v_name, 1 + v_first));
        end if;
    end loop;
end
$$;

-- passes_over: whether a turn, which asked for p_n jobs in these lanes, has passed over a job that may start, but is not
-- claimed ahead of a free slot. A job behind the last claimed one is not passed over.
create function {schema}.passes_over_v1(p_lanes {schema}.lane_v1[], p_n bigint, p_worker text, p_number bigint, p_now bigint)
returns boolean language plpgsql as $$
declare
    v_capacities {schema}.capacity_v1[] := {schema}.read_capacities_v1({schema}.list_unkeyed_v1(p_lanes, '{}'), p_now);
    v_plentiful text[] := array(select r.name from unnest(v_capacities) r where {schema}.compute_headroom_v1(r) > 0);
    v_full text[] := array(select r.name from unnest(v_capacities) r where r.available <= 0);
    v_claimable text[] := array(select l.lane from unnest({schema}.claimable_ahead_v1(p_lanes, v_plentiful)) l);
    v_last bigint;
begin
    select max({schema}.order_key_v1(j.seq, j.priority)) into v_last from {schema}.jobs j
    where j.state = {RUNNING} and j.worker = p_worker and j.turn = p_number having count(*) >= p_n;
    return exists (
        select 1 from unnest(p_lanes) l cross join lateral (
            (select j.seq, j.priority from {schema}.jobs j
                where not l.keyed and j.state = {READY} and j.lane = l.lane and (j.expires is null or j.expires > p_now)
                order by j.priority desc, j.seq limit 1)
            union all
            (select k.seq, k.priority from {schema}.keyed_lanes k
                where l.keyed and k.waits_for is null and k.lane_set = l.lane order by k.priority desc, k.seq limit 1)
        ) h
        where l.lane <> all(v_claimable) and not l.buckets && v_full
            and coalesce({schema}.order_key_v1(h.seq, h.priority) < v_last, true)
    );
end
$$;

-- claimable_ahead: those of these lanes whose jobs may be claimed ahead of a free slot: lanes without limits, and lanes
-- all of whose buckets are plentiful.
create function {schema}.claimable_ahead_v1(p_lanes {schema}.lane_v1[], p_plentiful text[]) returns {schema}.lane_v1[]
language plpgsql as $$
begin
    return array(
        select l from unnest(p_lanes) l
        where l.buckets is null or {schema}.is_unlimited_fair_set_v1(l.lane) or not l.keyed and l.buckets <@ p_plentiful
    );
end
$$;
