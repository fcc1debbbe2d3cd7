-- gates: the names of the gates of these lanes, and of these buckets
create function {schema}.gates_v1(p_lanes {schema}.lane_v1[], p_names text[]) returns text[] language plpgsql as $$
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

-- is_flat: whether all that is ready in a lane is of this priority, that of its first job
create function {schema}.is_flat_v1(p_lane text, p_priority integer) returns boolean language plpgsql as $$
begin
    return not exists (
        select 1 from {schema}.jobs j where j.state = 'ready' and j.lane = p_lane and j.priority < p_priority
    );
end
$$;

-- wide: whether turns may share the lock of a gate, each of which starts at most p_n jobs at a cost of 1 there. Sixteen do so
-- at a time, and none sees what the others take: together that is a quarter of its size. A quarter more may be taken, so
-- that it has room for all of them and is not short after that (see ROOMY). Others decide by every single place: they have it alone
create function {schema}.wide_v1(p_room {schema}.room_v1, p_n bigint) returns boolean language plpgsql immutable as $$
begin
    return case
        when strpos(p_room.name, '=') > 0 or starts_with(p_room.name, '*') then false
        when p_room.kind is null then true
        when p_room.kind in ('concurrency', 'rate') then p_n <= p_room.size / 64 and p_room.room >= p_room.size - p_room.size / 4
        else false
    end;
end
$$;

-- gate: what a turn has to know and lock before it touches any job: p_acked are the buckets of its acks
create function {schema}.gate_v1(
    p_lanes {schema}.lane_v1[], p_acked text[], p_n integer[], p_few integer[], p_acks {schema}.ack_v1[], p_exact boolean,
    p_worker text, p_before bigint, p_now bigint
) returns {schema}.gated_v1 language plpgsql as $$
declare
    v_rooms {schema}.room_v1[] := {schema}.rooms_v1({schema}.gates_v1(p_lanes, p_acked), p_before);
    v_ahead text[] := '{}';
    v_lanes {schema}.lane_v1[] := p_lanes;
    v_said {schema}.gated_v1;
    v_all bigint := 0;
    v_n integer;
begin
    if 0 >= any(p_few) then
        v_ahead := array(select r.name from unnest(v_rooms) r where {schema}.spare_v1(r) > 0);
        if 0 >= all(p_few) then
            v_lanes := {schema}.ahead_v1(p_lanes, v_ahead);
            if cardinality(v_lanes) < cardinality(p_lanes) then
                v_rooms := array(select r from unnest(v_rooms) r where r.name = any({schema}.gates_v1(v_lanes, p_acked)));
            end if;
        end if;
    end if;
    if cardinality(p_acks) > 0 then
        p_exact := p_exact or exists (
            select 1 from unnest(p_acks) a where a.slow > 0 or a.spent is not null or a.buckets is not null or a.fault is not null
        );
    end if;
    foreach v_n in array p_n loop
        v_all := v_all + greatest(v_n, 0);
    end loop;
    v_said := {schema}.lock_gates_v1(v_lanes, p_acked, v_rooms, v_all, p_exact, p_worker, p_now);
    v_said.ahead := v_ahead;
    return v_said;
end
$$;

-- lock_gates: lock what a turn has to lock before any job row: the buckets of its acks, and the gates of the lanes that it
-- may claim up to p_n jobs from. But not a gate that is full if that is noted: whoever frees a place there tells of it after
-- we have looked. p_exact: the acks change more than who runs
create function {schema}.lock_gates_v1(
    p_lanes {schema}.lane_v1[], p_acked text[], p_rooms {schema}.room_v1[], p_n bigint, p_exact boolean, p_worker text,
    p_now bigint
) returns {schema}.gated_v1 language plpgsql as $$
declare
    v_said {schema}.gated_v1 := row('{}', '{}', '{}', '{}', '{}', p_lanes, 0);
    v_lane {schema}.lane_v1;
    v_room {schema}.room_v1;
    v_counted text[] := '{}';
    v_gate record;
begin
    foreach v_lane in array p_lanes loop
        if v_lane.keyed or v_lane.costs is not null then
            v_counted := v_counted || v_lane.buckets;
        end if;
    end loop;
    foreach v_room in array p_rooms loop
        if v_room.room <= 0 and v_room.name <> all(p_acked) and not exists (
            select 1 from unnest(p_lanes) l where v_room.name = any(l.buckets) and not exists (
                select 1 from {schema}.waits w where w.bucket = v_room.name and w.queue = split_part(l.lane, '/', 1)
            )
        ) then
            v_said.passed := v_said.passed || v_room.name;
        elsif not p_exact and v_room.name <> all(v_counted) and {schema}.wide_v1(v_room, p_n) then
            v_said.shared := v_said.shared || v_room.name;
        else
            v_said.alone := v_said.alone || v_room.name;
        end if;
    end loop;
    if cardinality(v_said.shared) = 0 then
        perform {schema}.lock_buckets_v1(v_said.alone);
    elsif cardinality(v_said.shared) = 1 and cardinality(v_said.alone) = 0 then
        perform pg_advisory_xact_lock_shared({schema}.gate_lock_v1(v_said.shared[1]));
    else
        for v_gate in
            select {schema}.gate_lock_v1(g.name) as key, bool_or(g.alone) as alone from (
                select u.name, true as alone from unnest(v_said.alone) as u(name) where strpos(u.name, '=') = 0
                union all
                select u.name, false from unnest(v_said.shared) as u(name)
            ) g group by 1 order by 1
        loop
            if v_gate.alone then
                perform pg_advisory_xact_lock(v_gate.key);
            else
                perform pg_advisory_xact_lock_shared(v_gate.key);
            end if;
        end loop;
        perform {schema}.lock_rows_v1(v_said.alone);
    end if;
    if p_n > 0 and cardinality(v_said.shared) > 0 then
        perform {schema}.join_gates_v1(v_said.shared, p_worker);
    end if;
    v_said.now := {schema}.now_v1(p_now);
    -- New statements: what others did until we locked them is there to be counted.
    foreach v_room in array {schema}.rooms_v1(v_said.alone || v_said.shared || v_said.passed, v_said.now) loop
        if v_room.name = any(v_said.passed) then
            -- Of a rate nobody tells: one that has room by now is known as not looked at.
            if v_room.room > 0 then
                v_said.passed := array_remove(v_said.passed, v_room.name);
            end if;
        elsif v_room.name = any(v_said.shared) and not {schema}.wide_v1(v_room, p_n) then
            v_said.shared := array_remove(v_said.shared, v_room.name);
        elsif {schema}.spare_v1(v_room) >= p_n then
            v_said.roomy := v_said.roomy || v_room.name;
        end if;
    end loop;
    return v_said;
end
$$;

-- join_gates: be one of the sixteen that claim at the same time behind each of these gates
create function {schema}.join_gates_v1(p_names text[], p_worker text) returns void language plpgsql as $$
declare
    v_first integer := hashtext(p_worker) & 15;
    v_name text;
    v_in boolean;
begin
    foreach v_name in array p_names loop
        for v_n in 0 .. 15 loop
            v_in := pg_try_advisory_xact_lock(hashtextextended('{schema} gate ' || v_name, 1 + ((v_first + v_n) & 15)));
            exit when v_in;
        end loop;
        if not v_in then
            perform pg_advisory_xact_lock(hashtextextended('{schema} gate ' || v_name, 1 + v_first));
        end if;
    end loop;
end
$$;

-- ahead: those of these lanes whose jobs may be claimed ahead of a free slot: that need no place, or one in these gates
create function {schema}.ahead_v1(p_lanes {schema}.lane_v1[], p_roomy text[]) returns {schema}.lane_v1[] language plpgsql as $$
begin
    return array(
        select l from unnest(p_lanes) l
        where l.buckets is null or {schema}.is_free_v1(l.lane) or not l.keyed and l.buckets <@ p_roomy
    );
end
$$;
