-- Choosing jobs from lanes of which some have limits or keys.

-- pick_limited: as pick, for lanes and lane sets of which some have buckets. The unkeyed buckets in p_locked are locked
-- exclusively, those in p_shared are locked shared, and those in p_skipped are known to be full. p_ahead: the jobs are
-- claimed ahead of a free slot, so they take only what leaves the buckets plentiful. Nothing waits here, for job rows may
-- be locked by now: a bucket that was not known when the turn began (its jobs became ready by the acks) is locked only if
-- no other transaction holds it.
create function {schema}.pick_limited_v1(
    p_lanes {schema}.lane_v1[], p_n integer, p_ahead boolean, p_locked text[], p_shared text[], p_skipped text[],
    p_now bigint
) returns {schema}.picked_v1 language plpgsql as $$
declare
    v_reply {schema}.picked_v1 := row('{}', '{}', p_locked, false);
    v_late text[] := array(
        select distinct g.name from unnest(p_lanes) l cross join unnest(l.buckets) as g(name)
        where g.name <> all(p_locked || p_shared || p_skipped)
    );
    v_names text[] := '{}';
    v_available bigint[] := '{}';
    v_cap bigint[] := '{}';
    v_unit bigint[] := '{}';
    v_new {schema}.capacity_v1;
    v_lanes {schema}.lane_v1[];
    v_lane_sets text[];
    v_fair text[];
    v_rows bigint[] := '{}';
    v_fair_rows bigint[] := '{}';
    v_all boolean;
    v_queue text;
    v_examined {schema}.examined_v1;
    v_most integer;
    v_chosen bytea[];
    v_got bytea[];
    v_stuck_lanes text[];
    v_head record;
    v_fits boolean;
    v_at integer;
    v_use bigint;
begin
    if cardinality(v_late) > 0 then
        v_reply.locked := p_locked || {schema}.try_lock_buckets_v1(v_late);
        v_reply.more := not v_late <@ v_reply.locked;
    end if;
    foreach v_new in array {schema}.read_capacities_v1(v_reply.locked || p_shared, p_now) loop
        v_names := v_names || v_new.name;
        v_available := v_available || case when p_ahead then {schema}.compute_headroom_v1(v_new) else v_new.available end;
        v_cap := v_cap || v_new.cap;
        v_unit := v_unit || v_new.unit;
    end loop;
    v_lanes := array(
        select l from unnest(p_lanes) l where not exists (
            select 1 from unnest(l.buckets) as g(name) where coalesce(v_available[array_position(v_names, g.name)], 0) <= 0
        )
    );
    v_fair := array(select l.lane from unnest(v_lanes) l where l.keyed
        and {schema}.is_fair_lane_v1(l.lane, split_part(l.lane, '/', 1)));
    v_lane_sets := array(select l.lane from unnest(v_lanes) l where l.keyed and l.lane <> all(v_fair));
    v_lanes := array(select l from unnest(v_lanes) l where not l.keyed);
    if cardinality(v_fair) > 0 then
        null;
    elsif cardinality(v_lane_sets) = 0 and not exists (select 1 from unnest(v_lanes) l where l.buckets is not null) then
        v_reply.ids := {schema}.pick_v1(v_lanes, p_n, p_now);
        return v_reply;
    elsif cardinality(v_lane_sets) = 0 and cardinality(v_lanes) = 1 and v_lanes[1].costs is null
        and {schema}.find_other_key_v1(v_lanes[1].lane, v_lanes[1].priority) is null
    then
        -- One lane and one priority: all that it has capacity for in one statement, unless a job has costs.
        select least(p_n, min(v_available[array_position(v_names, g.name)])) into v_most
        from unnest(v_lanes[1].buckets) as g(name);
        with locked as (
            select j.id, j.seq, j.costs from {schema}.jobs j
            where j.state = {READY} and j.lane = v_lanes[1].lane and j.priority = v_lanes[1].priority
                and (j.expires is null or j.expires > p_now)
            order by j.seq limit v_most for update skip locked
        )
        select coalesce(array_agg(l.id order by l.seq), '{}'), count(l.costs) into v_got, v_most from locked l;
        if v_most = 0 then
            v_reply.ids := v_got;
            return v_reply;
        end if;
    end if;
    if cardinality(v_lane_sets) > 0 then
        v_examined := {schema}.examine_lane_rows_v1(
            v_lane_sets, p_n, v_reply.examined, v_reply.locked, array(
                select u.name from unnest(v_names, v_available) as u(name, available) where u.available <= 0
            ), p_now
        );
        foreach v_new in array v_examined.capacities loop
            v_names := v_names || v_new.name;
            v_available := v_available || v_new.available;
            v_cap := v_cap || v_new.cap;
            v_unit := v_unit || v_new.unit;
        end loop;
        v_rows := v_rows || v_examined.eligible;
        v_reply.examined := v_examined.examined;
        v_reply.locked := v_examined.locked;
        v_reply.more := v_reply.more or v_examined.more;
    end if;
    for v_queue in select distinct split_part(g.lane_set, '/', 1) from unnest(v_fair) as g(lane_set) loop
        v_examined := {schema}.examine_lane_rows_v1(
            array(
                select g.lane_set from unnest(v_fair) as g(lane_set) where split_part(g.lane_set, '/', 1) = v_queue
            ), p_n, v_reply.examined, v_reply.locked, array(
                select u.name from unnest(v_names, v_available) as u(name, available) where u.available <= 0
            ), p_now, true
        );
        foreach v_new in array v_examined.capacities loop
            v_names := v_names || v_new.name;
            v_available := v_available || v_new.available;
            v_cap := v_cap || v_new.cap;
            v_unit := v_unit || v_new.unit;
        end loop;
        v_fair_rows := v_fair_rows || v_examined.eligible;
        v_reply.examined := v_examined.examined;
        v_reply.locked := v_examined.locked;
        v_reply.more := v_reply.more or v_examined.more;
    end loop;
    v_chosen := '{}';
    v_stuck_lanes := '{}';
    v_all := false;
    <<again>>
    loop
        for v_head in select * from (
            select *, 0::bigint as nth from {schema}.find_heads_v1(v_lanes, v_rows, p_n, v_names, v_available, p_now)
            union all
            select * from {schema}.find_fair_heads_v1(v_fair_rows, p_n, v_all, v_names, v_available, p_now)
        ) h order by {schema}.order_key_v1(h.seq, h.priority), h.seq, h.nth loop
            exit again when cardinality(v_chosen) >= p_n;
            if v_head.id = any(v_chosen) then
                -- Two rows of one lane: there may be other lanes behind the examined rows.
                v_reply.more := v_reply.more or (v_head.keyed and v_head.nth = 0);
                continue;
            end if;
            continue when v_head.lane = any(v_stuck_lanes);
            v_fits := true;
            if v_head.costs is not null and v_head.buckets && p_shared then
                -- What the sharing turns claim is not known: the buckets are locked exclusively when this job is
                -- the first of its lane.
                v_reply.more := true;
                v_stuck_lanes := v_stuck_lanes || v_head.lane;
                continue;
            end if;
            for v_n in 1 .. coalesce(cardinality(v_head.buckets), 0) loop
                v_at := array_position(v_names, v_head.buckets[v_n]);
                v_fits := coalesce(
                    v_available[v_at] >= greatest(1, least(coalesce(v_head.costs[v_n], 1), v_cap[v_at])), false
                );
                exit when not v_fits;
            end loop;
            if not v_fits then
                v_stuck_lanes := v_stuck_lanes || v_head.lane;
                -- Its lane will wait: there may be other lanes behind the examined rows.
                v_reply.more := v_reply.more or v_head.keyed
                    and coalesce(v_available[v_at] > 0 or strpos(v_names[v_at], '=') > 0, true);
                continue;
            end if;
            for v_n in 1 .. coalesce(cardinality(v_head.buckets), 0) loop
                v_at := array_position(v_names, v_head.buckets[v_n]);
                v_use := case when v_unit[v_at] = 0 then 1 else least(coalesce(v_head.costs[v_n], 1), v_unit[v_at]) end;
                v_available[v_at] := v_available[v_at] - v_use;
            end loop;
            v_chosen := v_chosen || v_head.id;
        end loop;
        -- The share of a key that has fewer jobs, or no capacity for them, goes to the others.
        exit again when v_all or cardinality(v_fair_rows) = 0 or cardinality(v_chosen) >= p_n;
        v_all := true;
    end loop;
    v_got := array(
        select j.id from {schema}.jobs j where j.id = any(v_chosen) and j.state || '' = {READY} for update skip locked
    );
    if cardinality(v_got) < cardinality(v_chosen) then
        -- Other turns were quicker: skip the rows that they have locked in lanes without limits; the rest is for
        -- the next turn.
        v_reply.more := true;
        for v_head in select l.lane from unnest(v_lanes) l where l.buckets is null loop
            v_got := v_got || array(
                select j.id from {schema}.jobs j
                where j.state = {READY} and j.lane = v_head.lane and (j.expires is null or j.expires > p_now)
                    and j.id <> all(v_got)
                order by j.priority desc, j.seq limit p_n - cardinality(v_got) for update skip locked
            );
        end loop;
    end if;
    if cardinality(v_fair_rows) > 0 then
        perform {schema}.charge_fair_lanes_v1(v_got);
    end if;
    v_reply.ids := array(
        select j.id from {schema}.jobs j where j.id = any(v_got)
        order by case when cardinality(v_fair_rows) > 0 then array_position(v_chosen, j.id) else 0 end,
            {schema}.order_key_v1(j.seq, j.priority), j.seq
    );
    return v_reply;
end
$$;

-- find_heads: the first jobs of these lanes, and of these rows of keyed lanes; of a row at most as many as its buckets
-- have capacity for.
create function {schema}.find_heads_v1(
    p_lanes {schema}.lane_v1[], p_rows bigint[], p_n integer, p_names text[], p_available bigint[], p_now bigint
) returns table (id bytea, lane text, buckets text[], costs bigint[], priority integer, seq bigint, keyed boolean)
language plpgsql as $$
begin
    return query
    select a.*, false as keyed from {schema}.find_lane_heads_v1(p_lanes, p_n, p_now) a
    union all
    select x.*, true from {schema}.read_lane_rows_v1(p_rows) l cross join lateral (
        select least(p_n, (
            select greatest(min(p_available[array_position(p_names, b.name)]), 0) from unnest(l.buckets) as b(name)
        )) as most
    ) m cross join lateral (
        select j.id, j.lane::text, j.buckets, j.costs, j.priority, j.seq from {schema}.jobs j
        where j.state = {READY} and j.lane = l.lane and j.priority = l.priority and (j.expires is null or j.expires > p_now)
        order by j.seq limit m.most
    ) x;
end
$$;

-- examine_lane_rows: rows of these lane sets that have capacity and a job to claim, at most p_n. The rows are read in
-- their order, a few at a time, and their buckets are locked as they come; a row whose bucket another transaction holds
-- is passed over. Ends after {EXAMINED_ROWS} rows: rows without capacity leave the order when they are settled, so the
-- next turn begins behind them.
create function {schema}.examine_lane_rows_v1(
    p_lane_sets text[], p_n integer, p_examined bigint[], p_locked text[], p_full text[], p_now bigint,
    p_fair boolean default false
) returns {schema}.examined_v1 language plpgsql as $$
declare
    c_most constant integer := {EXAMINED_ROWS};
    v_reply {schema}.examined_v1 := row('{}', p_examined, p_locked, '{}', false);
    v_size integer := p_n;
    v_rows bigint[];
    v_new text[];
    v_full text[];
    v_eligible bigint[];
    v_behind bigint[];
    v_empty bigint[];
    v_seqs bigint[];
    v_again integer := 0;
begin
    loop
        v_size := least(v_size, c_most + cardinality(p_examined) - cardinality(v_reply.examined) - v_again);
        v_rows := case when p_fair then {schema}.next_fair_rows_v1(p_lane_sets, v_size, v_reply.examined)
            else {schema}.next_lane_rows_v1(p_lane_sets, v_size, v_reply.examined) end;
        exit when cardinality(v_rows) = 0;
        v_reply.examined := v_reply.examined || v_rows;
        v_new := {schema}.try_lock_buckets_v1(
            array(
                select distinct b.name from {schema}.read_lane_rows_v1(v_rows) l
                cross join unnest(l.buckets) as b(name) where b.name <> all(v_reply.locked)
            )
        );
        v_reply.locked := v_reply.locked || v_new;
        -- A new statement: it counts what other transactions did to these buckets before they were locked.
        v_reply.capacities := v_reply.capacities || {schema}.read_capacities_v1(v_new, p_now);
        v_full := p_full || array(select r.name from unnest(v_reply.capacities) r where r.available <= 0);
        select v_reply.eligible || coalesce(array_agg(l.id) filter (where h.seq <= l.seq), '{}'),
            coalesce(array_agg(l.id) filter (where h.seq > l.seq), '{}'), array_agg(h.seq) filter (where h.seq > l.seq),
            coalesce(array_agg(l.id) filter (where h.seq is null), '{}')
        into v_eligible, v_behind, v_seqs, v_empty from {schema}.read_lane_rows_v1(v_rows) l left join lateral (
            select j.seq from {schema}.jobs j
            where j.state = {READY} and j.lane = l.lane and j.priority = l.priority and (j.expires is null or j.expires > p_now)
            order by j.seq limit 1
        ) h on true
        where l.buckets <@ v_reply.locked and not l.buckets && v_full and not exists (
            -- A row before it in its lane waits for a rate: this job may cost less, but no job overtakes in a lane. It
            -- will wait too.
            select 1 from {schema}.keyed_lanes o where o.lane = l.lane and o.priority <> l.priority
                and {schema}.order_key_v1(o.seq, o.priority) < {schema}.order_key_v1(l.seq, l.priority)
                and {schema}.waits_for_rate_v1(o)
        );
        v_reply.eligible := v_eligible;
        if cardinality(v_behind || v_empty) > 0 then
            -- Their first jobs were cancelled or got another priority: they move to their new place, and are examined
            -- when their turn comes, or are empty. Lanes that were not rechecked because these rows were before them
            -- may come first.
            update {schema}.keyed_lanes l set seq = u.seq from unnest(v_behind, v_seqs) as u(id, seq)
                where l.id = any(array[u.id]);
            perform {schema}.recheck_lanes_v1(
                array(
                    select distinct b.name from {schema}.read_lane_rows_v1(v_behind || v_empty) l
                    cross join unnest(l.buckets) as b(name)
                ), false, p_now
            );
            v_reply.examined := array(select u.id from unnest(v_reply.examined) as u(id) where u.id <> all(v_behind));
            v_again := v_again + cardinality(v_behind);
        end if;
        v_reply.more := v_reply.more or exists (
            select 1 from {schema}.read_lane_rows_v1(v_rows) l
            where not l.buckets <@ v_reply.locked
        );
        -- A row that was moved, and a lane that was rechecked, may come before rows that were found eligible.
        exit when cardinality(v_reply.eligible) >= p_n and cardinality(v_behind || v_empty) = 0;
        if cardinality(v_reply.examined) - cardinality(p_examined) + v_again >= c_most then
            v_reply.more := true;
            exit;
        end if;
        v_size := v_size * 2;
    end loop;
    return v_reply;
end
$$;
