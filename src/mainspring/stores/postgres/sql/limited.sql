-- pick_limited: as pick, for lanes and groups of lanes some of which have buckets. The gates in p_locked are locked, those in
-- p_shared too, but not by us alone; those in p_passed are known to be full. At most p_few of the jobs need a place in a
-- short bucket. Nobody waits here, for job rows may be locked by now: a gate that nobody knew of when the turn began, for what
-- the acks made ready, is locked if nobody else has it.
create function {schema}.pick_limited_v1(
    p_lanes {schema}.lane_v1[], p_n integer, p_oldest integer, p_few integer, p_locked text[], p_shared text[],
    p_passed text[], p_now bigint
) returns {schema}.picked_v1 language plpgsql as $$
declare
    v_said {schema}.picked_v1 := row('{}', '{}', '{}', p_locked, false);
    v_late text[] := array(
        select distinct g.name from unnest(p_lanes) l cross join unnest(l.buckets) as g(name)
        where g.name <> all(p_locked || p_shared || p_passed)
    );
    v_names text[] := '{}';
    v_room bigint[] := '{}';
    v_spare bigint[] := '{}';
    v_cap bigint[] := '{}';
    v_unit bigint[] := '{}';
    v_new {schema}.room_v1;
    v_lanes {schema}.lane_v1[];
    v_groups text[];
    v_fair text[];
    v_rows bigint[] := '{}';
    v_fair_rows bigint[] := '{}';
    v_all boolean;
    v_queue text;
    v_look {schema}.looked_v1;
    v_age boolean;
    v_most integer;
    v_free integer;
    v_chosen bytea[];
    v_got bytea[];
    v_stuck text[];
    v_head record;
    v_fits boolean;
    v_short boolean;
    v_at integer;
    v_use bigint;
begin
    if cardinality(v_late) > 0 then
        v_said.locked := p_locked || {schema}.try_buckets_v1(v_late);
        v_said.more := not v_late <@ v_said.locked;
    end if;
    foreach v_new in array {schema}.rooms_v1(v_said.locked || p_shared, p_now) loop
        v_names := v_names || v_new.name;
        v_room := v_room || v_new.room;
        v_spare := v_spare || {schema}.spare_v1(v_new);
        v_cap := v_cap || v_new.cap;
        v_unit := v_unit || v_new.unit;
    end loop;
    v_lanes := array(
        select l from unnest(p_lanes) l where not exists (
            select 1 from unnest(l.buckets) as g(name) where coalesce(v_room[array_position(v_names, g.name)], 0) <= 0
        )
    );
    v_fair := array(select l.lane from unnest(v_lanes) l where l.keyed and {schema}.is_fair_v1(l.lane, split_part(l.lane, '/', 1)));
    v_groups := array(select l.lane from unnest(v_lanes) l where l.keyed and l.lane <> all(v_fair));
    v_lanes := array(select l from unnest(v_lanes) l where not l.keyed);
    if cardinality(v_fair) > 0 then
        null;
    elsif cardinality(v_groups) = 0 and not exists (select 1 from unnest(v_lanes) l where l.buckets is not null) then
        v_said.ids := {schema}.pick_v1(v_lanes, p_n, p_oldest, p_now);
        return v_said;
    elsif cardinality(v_groups) = 0 and cardinality(v_lanes) = 1 and v_lanes[1].costs is null and (
        p_oldest = 0 or {schema}.is_flat_v1(v_lanes[1].lane, v_lanes[1].priority)
    ) then
        -- One lane: all that there is room for at once, unless one of them has costs.
        select least(p_n, greatest(0, min(v_spare[a.at]))), least(p_n, min(v_room[a.at])) into v_free, v_most
        from unnest(v_lanes[1].buckets) as g(name) cross join lateral (select array_position(v_names, g.name) as at) a;
        with locked as (
            select j.id, j.priority, j.seq, j.costs from {schema}.jobs j
            where j.state = 'ready' and j.lane = v_lanes[1].lane and (j.expires is null or j.expires > p_now)
            order by j.priority desc, j.seq limit least(v_most, v_free + p_few) for update skip locked
        )
        select coalesce(array_agg(l.id order by l.priority desc, l.seq), '{}'), count(l.costs) into v_got, v_most from locked l;
        if v_most = 0 then
            v_said.ids := v_got;
            v_said.short := v_got[v_free + 1:];
            return v_said;
        end if;
    end if;
    foreach v_age in array case when p_oldest > 0 then array[true, false] else array[false] end loop
        v_most := case when v_age then least(p_n, p_oldest) else p_n end - cardinality(v_said.ids);
        continue when v_most <= 0;
        if cardinality(v_groups) > 0 and cardinality(v_said.short) < p_few then
            v_look := {schema}.look_v1(
                v_groups, least(v_most, p_few - cardinality(v_said.short)), v_age, v_said.looked, v_said.locked, array(
                    select u.name from unnest(v_names, v_room) as u(name, room) where u.room <= 0
                ), p_now
            );
            foreach v_new in array v_look.rooms loop
                v_names := v_names || v_new.name;
                v_room := v_room || v_new.room;
                v_spare := v_spare || {schema}.spare_v1(v_new);
                v_cap := v_cap || v_new.cap;
                v_unit := v_unit || v_new.unit;
            end loop;
            v_rows := v_rows || v_look.good;
            v_said.looked := v_look.looked;
            v_said.locked := v_look.locked;
            v_said.more := v_said.more or v_look.more;
        end if;
        for v_queue in select distinct split_part(g.grp, '/', 1) from unnest(v_fair) as g(grp) loop
            v_look := {schema}.look_v1(
                array(
                    select g.grp from unnest(v_fair) as g(grp)
                    where split_part(g.grp, '/', 1) = v_queue and ({schema}.is_free_v1(g.grp) or cardinality(v_said.short) < p_few)
                ), v_most, v_age, v_said.looked, v_said.locked, array(
                    select u.name from unnest(v_names, v_room) as u(name, room) where u.room <= 0
                ), p_now, true
            );
            foreach v_new in array v_look.rooms loop
                v_names := v_names || v_new.name;
                v_room := v_room || v_new.room;
                v_spare := v_spare || {schema}.spare_v1(v_new);
                v_cap := v_cap || v_new.cap;
                v_unit := v_unit || v_new.unit;
            end loop;
            v_fair_rows := v_fair_rows || v_look.good;
            v_said.looked := v_look.looked;
            v_said.locked := v_look.locked;
            v_said.more := v_said.more or v_look.more;
        end loop;
        v_chosen := '{}';
        v_stuck := '{}';
        v_all := false;
        <<again>>
        loop
            for v_head in select * from (
                select *, 0::bigint as nth from {schema}.heads_v1(v_lanes, v_rows, p_n, v_age, v_names, v_room, p_now)
                union all
                select * from {schema}.fair_heads_v1(v_fair_rows, p_n, v_age, v_all, v_names, v_room, p_now)
            ) h order by case when v_age then 0 else -h.priority end, h.seq, h.nth loop
                exit again when cardinality(v_chosen) >= v_most;
                continue when v_head.lane = any(v_stuck) or v_head.id = any(v_said.ids) or v_head.id = any(v_chosen);
                v_fits := true;
                v_short := v_head.keyed and coalesce(cardinality(v_head.buckets), 0) > 0;
                if v_head.costs is not null and v_head.buckets && p_shared then
                    -- Nobody knows what the others take: its gates are had alone when it is the first of its lane.
                    v_said.more := true;
                    v_stuck := v_stuck || v_head.lane;
                    continue;
                end if;
                for v_n in 1 .. coalesce(cardinality(v_head.buckets), 0) loop
                    v_at := array_position(v_names, v_head.buckets[v_n]);
                    v_fits := coalesce(v_room[v_at] >= greatest(1, least(coalesce(v_head.costs[v_n], 1), v_cap[v_at])), false);
                    exit when not v_fits;
                    v_short := v_short or v_spare[v_at] < case when v_unit[v_at] = 0 then 1
                        else least(coalesce(v_head.costs[v_n], 1), v_unit[v_at]) end;
                end loop;
                if (v_short or not v_fits) and cardinality(v_said.short) >= p_few then
                    -- Nobody passes in a lane, though a cheaper one behind it may not be short.
                    v_stuck := v_stuck || v_head.lane;
                    continue;
                end if;
                if not v_fits then
                    v_stuck := v_stuck || v_head.lane;
                    -- Its lane will be parked: there may be others behind those that were looked at.
                    v_said.more := v_said.more or v_head.keyed and coalesce(v_room[v_at] > 0 or strpos(v_names[v_at], '=') > 0, true);
                    continue;
                end if;
                for v_n in 1 .. coalesce(cardinality(v_head.buckets), 0) loop
                    v_at := array_position(v_names, v_head.buckets[v_n]);
                    v_use := case when v_unit[v_at] = 0 then 1 else least(coalesce(v_head.costs[v_n], 1), v_unit[v_at]) end;
                    v_room[v_at] := v_room[v_at] - v_use;
                    v_spare[v_at] := v_spare[v_at] - v_use;
                end loop;
                v_chosen := v_chosen || v_head.id;
                v_said.short := v_said.short || array(select v_head.id where v_short);
            end loop;
            -- The part of a key that has fewer jobs, or no room for them, is for the others.
            exit again when v_all or cardinality(v_fair_rows) = 0 or cardinality(v_chosen) >= v_most;
            v_all := true;
        end loop;
        v_got := array(
            select j.id from {schema}.jobs j where j.id = any(v_chosen) and j.state || '' = 'ready' for update skip locked
        );
        if cardinality(v_got) < cardinality(v_chosen) then
            -- Others were quicker: go past what they have locked where nothing is limited; the rest is for the next turn.
            v_said.more := true;
            for v_head in select l.lane from unnest(v_lanes) l where l.buckets is null and not v_age loop
                v_got := v_got || array(
                    select j.id from {schema}.jobs j
                    where j.state = 'ready' and j.lane = v_head.lane and (j.expires is null or j.expires > p_now)
                        and j.id <> all(v_said.ids || v_got)
                    order by j.priority desc, j.seq limit v_most - cardinality(v_got) for update skip locked
                );
            end loop;
        end if;
        if cardinality(v_fair_rows) > 0 then
            perform {schema}.charge_v1(v_got, v_age);
        end if;
        v_said.ids := v_said.ids || array(
            select j.id from {schema}.jobs j where j.id = any(v_got)
            order by case when v_age then 0 else -j.priority end,
                case when cardinality(v_fair_rows) > 0 then array_position(v_chosen, j.id) else 0 end, j.seq
        );
    end loop;
    return v_said;
end
$$;

-- heads: the first jobs of these lanes, and of the rows of lanes with keys, by age or by (priority desc, seq); of a row no
-- more than there is room for
create function {schema}.heads_v1(
    p_lanes {schema}.lane_v1[], p_rows bigint[], p_n integer, p_age boolean, p_names text[], p_room bigint[], p_now bigint
) returns table (id bytea, lane text, buckets text[], costs bigint[], priority integer, seq bigint, keyed boolean)
language plpgsql as $$
begin
    return query
    select h.* from (
        select a.*, false as keyed from {schema}.heads_by_age_v1(p_lanes, p_n, p_now) a where p_age
        union all
        select x.*, false from unnest(p_lanes) l cross join lateral (
            select j.id, j.lane::text, j.buckets, j.costs, j.priority, j.seq from {schema}.jobs j
            where j.state = 'ready' and j.lane = l.lane and (j.expires is null or j.expires > p_now)
            order by j.priority desc, j.seq limit p_n
        ) x where not p_age
        union all
        select x.*, true from {schema}.lane_rows_v1(p_rows) l cross join lateral (
            select least(p_n, (
                select greatest(min(p_room[array_position(p_names, b.name)]), 0) from unnest(l.buckets) as b(name)
            )) as most
        ) m cross join lateral (
            select j.id, j.lane::text, j.buckets, j.costs, j.priority, j.seq from {schema}.jobs j
            where j.state = 'ready' and j.lane = l.lane and j.priority = l.priority and (j.expires is null or j.expires > p_now)
            order by j.seq limit m.most
        ) x
    ) h order by case when p_age then 0 else -h.priority end, h.seq;
end
$$;

-- look: rows of these groups whose lanes have room and a job to hand out, as many as are wanted
-- They are read in their order, a few at a time; their buckets are locked as they come, those that another has passed over.
-- It ends after so many: rows without room leave the order when they are settled, so the next turn begins behind them.
create function {schema}.look_v1(
    p_groups text[], p_n integer, p_age boolean, p_looked bigint[], p_locked text[], p_full text[], p_now bigint,
    p_fair boolean default false
) returns {schema}.looked_v1 language plpgsql as $$
declare
    c_most constant integer := 128;
    v_said {schema}.looked_v1 := row('{}', p_looked, p_locked, '{}', false);
    v_size integer := p_n;
    v_rows bigint[];
    v_new text[];
    v_full text[];
    v_good bigint[];
    v_behind bigint[];
    v_seqs bigint[];
    v_again integer := 0;
begin
    loop
        v_size := least(v_size, c_most + cardinality(p_looked) - cardinality(v_said.looked) - v_again);
        v_rows := case when p_fair and not p_age then {schema}.fair_window_v1(p_groups, v_size, v_said.looked)
            else {schema}.window_v1(p_groups, v_size, p_age, v_said.looked) end;
        exit when cardinality(v_rows) = 0;
        v_said.looked := v_said.looked || v_rows;
        v_new := {schema}.try_buckets_v1(
            array(
                select distinct b.name from {schema}.lane_rows_v1(v_rows) l
                cross join unnest(l.buckets) as b(name) where b.name <> all(v_said.locked)
            )
        );
        v_said.locked := v_said.locked || v_new;
        -- A new statement: what others did to these buckets until we locked them is there to be counted.
        v_said.rooms := v_said.rooms || {schema}.rooms_v1(v_new, p_now);
        v_full := p_full || array(select r.name from unnest(v_said.rooms) r where r.room <= 0);
        select v_said.good || coalesce(array_agg(l.id) filter (where h.seq <= l.seq), '{}'),
            coalesce(array_agg(l.id) filter (where h.seq > l.seq), '{}'), array_agg(h.seq) filter (where h.seq > l.seq)
        into v_good, v_behind, v_seqs from {schema}.lane_rows_v1(v_rows) l cross join lateral (
            select j.seq from {schema}.jobs j
            where j.state = 'ready' and j.lane = l.lane and j.priority = l.priority and (j.expires is null or j.expires > p_now)
            order by j.seq limit 1
        ) h
        where l.buckets <@ v_said.locked and not l.buckets && v_full and not exists (
            -- One before it in its lane waits for a rate: it may cost less, but nobody passes in a lane. It will be parked too.
            select 1 from {schema}.lanes o where o.lane = l.lane and o.priority > l.priority and {schema}.waits_for_rate_v1(o)
        );
        v_said.good := v_good;
        if cardinality(v_behind) > 0 then
            -- Their first jobs were cancelled: they go to where they belong, and are looked at when their turn comes. Those that
            -- were not opened since these stood before them may come first.
            update {schema}.lanes l set seq = u.seq from unnest(v_behind, v_seqs) as u(id, seq) where l.id = any(array[u.id]);
            perform {schema}.open_v1(
                array(select distinct b.name from {schema}.lane_rows_v1(v_behind) l cross join unnest(l.buckets) as b(name)),
                false, p_now
            );
            v_said.looked := array(select u.id from unnest(v_said.looked) as u(id) where u.id <> all(v_behind));
            v_again := v_again + cardinality(v_behind);
        end if;
        v_said.more := v_said.more or exists (
            select 1 from {schema}.lane_rows_v1(v_rows) l
            where not l.buckets <@ v_said.locked
        );
        exit when cardinality(v_said.good) >= p_n;
        if cardinality(v_said.looked) - cardinality(p_looked) + v_again >= c_most then
            v_said.more := true;
            exit;
        end if;
        v_size := v_size * 2;
    end loop;
    return v_said;
end
$$;
