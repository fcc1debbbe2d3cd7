-- One turn of a worker: apply its acks, hand out work for its free slots; one transaction.

-- turn: running -> final, ready, retrying, scheduled by acks; ready -> running by claims. Locks in this order: worker,
-- queue modes, unkeyed buckets, bucket rows by name, job rows by id, dependents. Each statement sees what was
-- committed before it began. A claim does not wait for anything that it locks beyond that. p_done are plain
-- successes, p_acks all other acks, p_breakers the breakers to write or read. A job may have become
-- ready after this turn began: `started` is read when the row is claimed, not before. The reply is sent before the
-- commit, with all locks held; a client that does not read it blocks the server. So the reply is small: records above
-- p_inline bytes are left out (null) and read afterwards, and claims end where their records together pass p_max_bytes,
-- so that a slow connection can carry them in the time of a call. p_low_* are marks below which a base lane and
-- priority has no jobs (see claim/low_water.sql), empty in ordinary times.
-- returns rows of several kinds: one 'turn' (token = now, early = lost), then already, stale, gone, woken, claim, more,
-- next (token = when), held, passed, order, low, breaker (note = JSON)
create function {schema}.turn_v1(
    p_worker text, p_number bigint, p_seen bigint, p_now bigint, p_suspects integer,
    p_done bytea[], p_token bigint[], p_result bytea[], p_error bytea[], p_ran bigint[], p_acks {schema}.ack_v1[],
    p_want integer[], p_lane text[], p_n integer[], p_ahead boolean[],
    p_held bytea[], p_held_token bigint[],
    p_inline integer, p_max_bytes bigint,
    p_low_lane text[] default '{}', p_low_priority integer[] default '{}', p_low_seq bigint[] default '{}',
    p_breakers jsonb default null
) returns table (
    kind text, id bytea, token bigint, task text, queue text, lane text, priority integer, attempt integer, epoch integer,
    crashes integer, early boolean, enqueued bigint, expires bigint, record bytea, turn bigint, note text
)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off as $$
#variable_conflict use_column
declare
    v_worker {schema}.workers;
    v_now bigint;
    v_repeat boolean;
    v_open boolean[];
    v_freed text[] := '{}';
    v_locked text[] := '{}';
    v_locks {schema}.limit_locks_v1 := row('{}', '{}', '{}', '{}', '{}', '{}', 0);
    v_every {schema}.lane_v1[];
    v_found {schema}.lane_v1[];
    v_passed boolean := false;
    v_rechecked bigint[] := '{}';
    v_limited boolean := false;
    v_spent boolean := false;
    v_pick {schema}.picked_v1;
    v_settled {schema}.settled_v1;
    v_more boolean := false;
    v_next bigint;
    v_held_back {schema}.held_back_v1;
    v_held text[] := '{}';
    v_moved {schema}.moved_v1;
    v_ended {schema}.parent_end_v1[] := '{}';
    v_woken text[] := '{}';
    v_breaker_woken text[] := '{}';
    v_acks {schema}.ack_v1[] := p_acks;
    v_suspects integer := p_suspects;
    v_lanes {schema}.lane_v1[] := '{}';
    v_suspect boolean;
    v_subset {schema}.lane_v1[];
    v_only {schema}.lane_v1;
    v_before bigint;
    v_started text[] := '{}';
    v_starts bigint := 0;
    v_own integer;
    v_left integer := 0;
    v_surplus integer := 0;
    v_behind integer;
    v_most integer;
    v_taken integer;
    v_bytes_left bigint := p_max_bytes;
    v_low integer;
    v_last bigint := coalesce(pg_sequence_last_value('{schema}.seq'::regclass), 0);
    v_walked bigint := {schema}.count_walked_v1();
begin
    perform {schema}.guard_v1();
    select * into v_worker from {schema}.workers w where w.id = p_worker for update;
    v_now := {schema}.now_v1(p_now);
    kind := 'turn';
    token := v_now;
    early := v_worker.id is null or v_worker.lost;
    return next;
    if early then
        return;
    end if;
    if p_number < v_worker.turn then
        raise exception 'turn % of worker % comes after turn %', p_number, p_worker, v_worker.turn
            using errcode = {ERROR_REFUSED};
    end if;
    v_repeat := p_number = v_worker.turn;
    if cardinality(p_done) + cardinality(p_acks) > 0 then
        perform {schema}.follow_clock_v1(v_now);
    end if;

    if not v_repeat and cardinality(p_lane) > 0 then
        -- A pause waits for the turns that have read the modes already: no turn claims after the pause was confirmed.
        perform pg_advisory_xact_lock_shared({schema}.queue_modes_lock_v1());
        v_open := array(
            select not exists (select 1 from {schema}.queues q where q.name = split_part(u.lane, '/', 1) and q.stopped)
            from unnest(p_lane) with ordinality as u(lane, n) order by u.n
        );
        v_lanes := {schema}.find_lanes_v1(
            array(select u.lane from unnest(p_lane, v_open) as u(lane, free) where u.free), v_worker.tasks, p_low_lane
        );
        v_limited := exists (select 1 from unnest(v_lanes) l where l.buckets is not null);
    end if;
    if v_worker.limited and cardinality(p_done) + cardinality(p_acks) > 0 then
        v_freed := {schema}.list_acked_buckets_v1(p_worker, p_done, p_acks);
    end if;
    if p_breakers is not null then
        v_freed := v_freed || {schema}.list_swapped_v1(p_breakers);
    end if;
    v_found := v_lanes;
    if v_limited or cardinality(v_freed) > 0 then
        v_locks := {schema}.lock_limits_v1(v_lanes, v_freed, p_n, p_ahead, p_acks, p_worker, v_now, p_now);
        if cardinality(v_locks.lanes) < cardinality(v_lanes) then
            v_lanes := v_locks.lanes;
            v_limited := exists (select 1 from unnest(v_lanes) l where l.buckets is not null);
        end if;
        v_locked := v_locks.exclusive;
        v_now := v_locks.now;
    end if;
    v_every := v_lanes;
    v_walked := {schema}.count_walked_v1() - v_walked;
    if p_breakers is not null then
        v_breaker_woken := {schema}.swap_rows_v1(p_breakers, v_now);
        -- Their capacity was read before: a breaker may have opened now.
        v_locks.plentiful := array(
            select u.name from unnest(v_locks.plentiful) as u(name)
            where u.name <> all({schema}.list_swapped_v1(p_breakers))
        );
    end if;
    if cardinality(p_done) > 0 then
        v_moved := {schema}.ack_successes_v1(
            p_worker, p_done, p_token, p_result, p_error, p_ran, v_worker.limited, v_now
        );
        if v_moved.parents then
            v_ended := array(select row(u.id, {SUCCEEDED})::{schema}.parent_end_v1 from unnest(v_moved.done) as u(id));
        end if;
        if cardinality(v_moved.done) < cardinality(p_done) then
            v_acks := p_acks || {schema}.list_unmoved_acks_v1(v_moved, p_done, p_token, p_result, p_error, p_ran);
        end if;
    end if;
    if cardinality(v_acks) > 0 then
        return query select a.kind, a.id, a.token, null, a.queue, null, null::integer, null::integer, null::integer,
            null::integer, null::boolean, null::bigint, null::bigint, null::bytea, null::bigint, null
        from {schema}.apply_acks_v1(p_worker, v_acks, v_now, v_ended) a;
    elsif cardinality(v_ended) > 0 then
        v_woken := {schema}.resolve_dependents_v1(v_ended, null, v_now);
    end if;
    if cardinality(v_freed) > 0 then
        v_spent := exists (select 1 from unnest(p_acks) a where a.spent is not null or a.buckets is not null);
        v_rechecked := {schema}.recheck_lanes_v1(v_freed, v_spent, v_now);
    end if;
    if p_held is not null then
        return query select 'gone', h.id, h.token, null, null, null, null::integer, null::integer, null::integer,
            null::integer, null::boolean, null::bigint, null::bigint, null::bytea, null::bigint, null
        from {schema}.find_gone_v1(p_worker, p_held, p_held_token) h
        where not exists (select 1 from unnest(p_acks) a where a.id = h.id and a.token = h.token)
            and not exists (select 1 from unnest(p_done, p_token) as d(id, token) where d.id = h.id and d.token = h.token);
    end if;

    if v_repeat or p_seen < v_worker.turn then
        return query select t.* from {schema}.repeat_claims_v1(p_worker, least(p_seen, p_number - 1), p_held, p_held_token,
            p_inline) t;
    end if;
    v_walked := {schema}.count_walked_v1() - v_walked; -- what the acks did in the index does not count
    if v_repeat then
        v_bytes_left := p_max_bytes - {schema}.count_claimed_bytes_v1(p_worker, p_number);
    else
        for v_want in 1 .. cardinality(p_n) loop
            -- A want without lanes is a want ahead, in the lanes of the want before. It gets nothing if that got too few.
            v_own := case when v_want = any(p_want) then v_want else v_own end;
            continue when v_own < v_want and v_left > 0;
            v_left := p_n[v_want] - v_surplus;
            v_surplus := 0;
            v_behind := case when v_want + 1 = any(p_want) then 0 else coalesce(p_n[v_want + 1], 0) end;
            continue when v_left <= 0;
            if v_want > 1 then
                v_bytes_left := p_max_bytes - {schema}.count_claimed_bytes_v1(p_worker, p_number);
                exit when v_bytes_left <= 0;
            end if;
            if cardinality(v_acks) > 0 or cardinality(v_woken) > 0 or cardinality(v_rechecked) > 0 then
                v_lanes := {schema}.find_lanes_v1(
                    array(
                        select u.lane from unnest(p_want, p_lane, v_open) as u(want, lane, free)
                        where u.want = v_own and u.free
                    ), v_worker.tasks, p_low_lane
                );
                v_limited := v_limited or exists (select 1 from unnest(v_lanes) l where l.buckets is not null);
            elsif p_want[cardinality(p_want)] > 1 then
                v_lanes := array(
                    select l from unnest(v_every) l where exists (
                        select 1 from unnest(p_want, p_lane, v_open) as u(want, lane, free)
                        where u.want = v_own and u.free and l.lane collate "C" >= u.lane and l.lane collate "C" < u.lane || '@'
                    )
                );
            end if;
            if p_ahead[v_want] then
                v_lanes := {schema}.claimable_ahead_v1(v_lanes, v_locks.ahead);
            end if;
            if cardinality(p_low_lane) > 0 then
                v_low := case when cardinality(v_lanes) = 0 then v_left else (v_left + p_number % 2) / 2 end;
                return query select t.* from {schema}.claim_above_v1(
                    array(
                        select distinct u.lane from unnest(p_want, p_lane, v_open) as u(want, lane, free)
                        where u.want = v_own and u.free and u.lane = any(p_low_lane)
                    ), v_low, p_worker, p_number, p_now, p_low_lane, p_low_priority, p_low_seq, p_inline, p_max_bytes
                ) t;
                get diagnostics v_low = row_count;
                v_left := v_left - v_low;
                continue when v_left <= 0;
                v_bytes_left := p_max_bytes - {schema}.count_claimed_bytes_v1(p_worker, p_number);
                exit when v_bytes_left <= 0;
            end if;
            continue when cardinality(v_lanes) = 0;
            v_only := v_lanes[1];
            if cardinality(v_lanes) = 1 and not v_only.suspect and coalesce(v_only.buckets <@ v_locks.plentiful, true) then
                v_before := {schema}.find_other_key_v1(v_only.lane, v_only.priority);
                return query select t.* from {schema}.claim_lane_v1(
                    v_only.lane, v_only.priority, v_only.seq, v_before, v_left + v_behind, p_worker, p_number, p_now,
                        p_inline, v_bytes_left
                ) t;
                get diagnostics v_taken = row_count;
                if v_taken > 0 and v_only.buckets is not null then
                    if v_starts > 0 and v_started <> v_only.buckets then
                        perform {schema}.record_lane_starts_v1(p_worker, v_started, v_starts, {schema}.now_v1(p_now));
                        v_starts := 0;
                    end if;
                    v_started := v_only.buckets;
                    v_starts := v_starts + v_taken;
                end if;
                v_surplus := greatest(v_taken - v_left, 0);
                v_left := greatest(v_left - v_taken, 0);
                continue when v_left = 0;
                v_bytes_left := p_max_bytes - {schema}.count_claimed_bytes_v1(p_worker, p_number);
                exit when v_bytes_left <= 0;
                continue when v_only.buckets is null and v_before is null;
            end if;
            if v_starts > 0 then
                perform {schema}.record_lane_starts_v1(p_worker, v_started, v_starts, {schema}.now_v1(p_now));
                v_starts := 0;
            end if;
            foreach v_suspect in array array[true, false] loop
                continue when v_suspect and (v_suspects <= 0 or not exists (select 1 from unnest(v_lanes) l where l.suspect));
                v_subset := array(select l from unnest(v_lanes) l where l.suspect = v_suspect);
                v_most := case when v_suspect then least(v_left, v_suspects) else v_left end;
                if exists (select 1 from unnest(v_subset) l where l.buckets is not null) then
                    v_pick := {schema}.pick_limited_v1(
                        v_subset, v_most, p_ahead[v_want], v_locked, v_locks.shared, v_locks.skipped, v_now
                    );
                else
                    v_pick := row({schema}.pick_v1(v_subset, v_most, v_now), '{}', v_locked, false);
                end if;
                return query select t.* from {schema}.claim_jobs_v1(v_pick.ids, p_worker, p_number, p_now,
                    p_inline, v_bytes_left) t;
                get diagnostics v_taken = row_count;
                v_locked := v_pick.locked;
                v_settled := row('{}', null);
                if cardinality(v_pick.examined) > 0 then
                    v_settled := {schema}.settle_lane_rows_v1(v_pick.examined, v_locked, v_now);
                    v_rechecked := v_rechecked || v_settled.rechecked;
                    v_next := least(v_next, v_settled.next_at);
                end if;
                if v_taken < v_most and v_limited then
                    v_more := v_more or v_pick.more or cardinality(v_settled.rechecked) > 0;
                    v_held_back := {schema}.note_held_back_v1(v_subset, v_locked, v_now);
                    v_held := v_held || v_held_back.queues;
                    v_next := least(v_next, v_held_back.next_at);
                end if;
                v_left := v_left - v_taken;
                if v_suspect then
                    v_suspects := v_suspects - v_taken;
                    v_bytes_left := p_max_bytes - {schema}.count_claimed_bytes_v1(p_worker, p_number);
                elsif v_taken < cardinality(v_pick.ids) then
                    v_bytes_left := 0;
                end if;
                exit when v_bytes_left <= 0 or v_left <= 0;
            end loop;
            exit when v_bytes_left <= 0;
        end loop;
        if v_starts > 0 then
            perform {schema}.record_lane_starts_v1(p_worker, v_started, v_starts, {schema}.now_v1(p_now));
        end if;
        if true = any(p_ahead)
            and cardinality({schema}.claimable_ahead_v1(v_found, v_locks.plentiful)) < cardinality(v_found)
        then
            v_passed := {schema}.passes_over_v1(v_found, (select sum(n) from unnest(p_n) n), p_worker, p_number, v_now);
        end if;
        if cardinality(v_every) + cardinality(p_low_lane) + cardinality(p_done) + cardinality(p_acks) = 0
            and p_breakers is null
        then -- Only the number is written. If it is lost, nothing was claimed in this turn, and the next number is greater.
            perform set_config('synchronous_commit', 'off', true);
        end if;
        update {schema}.workers w
        set turn = p_number, seen = v_now,
            limited = (v_worker.limited or v_limited) and exists (select 1 from {schema}.bucket_uses u where u.worker = p_worker)
        where w.id = p_worker;
        if cardinality(p_low_lane) > 0 or not v_limited and {schema}.count_walked_v1() - v_walked > {LONG_WALK} + {WALK_PER_CLAIM} * p_n[1] then
            return query select 'low', null::bytea, l.seq, null, null, l.lane, l.priority, null::integer, null::integer,
                null::integer, null::boolean, null::bigint, null::bigint, null::bytea, null::bigint, null
            from {schema}.find_low_marks_v1(
                p_worker, p_number, array(select u.lane from unnest(p_lane, v_open) as u(lane, free) where u.free),
                p_low_lane, p_low_priority, v_last, case when v_bytes_left > 0 then (select sum(n) from unnest(p_n) n) else 0 end
            ) l;
        end if;
    end if;
    if cardinality(v_freed) > 0 or cardinality(v_rechecked) > 0 then
        v_woken := v_woken || v_breaker_woken || {schema}.list_wakeups_v1(v_freed, v_rechecked, v_spent, v_now);
    end if;
    if cardinality(v_woken) > 0 then
        return query select t.* from unnest(v_woken) as w(queue) cross join {schema}.reply_row_v1('woken', w.queue, null) t;
    end if;
    if v_bytes_left <= 0 or v_more then
        kind := 'more';
        return next;
    end if;
    if v_passed then
        kind := 'passed';
        return next;
    end if;
    if cardinality(v_held) > 0 then
        return query select distinct t.* from unnest(v_held) as h(queue)
            cross join {schema}.reply_row_v1('held', h.queue, null) t;
    end if;
    if p_breakers is not null then
        return query select t.* from jsonb_to_recordset(p_breakers) as s(name text)
        cross join lateral {schema}.read_breaker_v1(s.name, v_now) as r(breaker)
        cross join lateral {schema}.reply_row_v1('breaker', null, r.breaker) t where r.breaker is not null;
    end if;
    if v_next is not null then
        kind := 'next';
        token := v_next;
        return next;
    end if;
    return query select 'order', j.id, j.token, null, null, null, null::integer, null::integer, null::integer,
        null::integer, null::boolean, null::bigint, null::bigint, null::bytea, null::bigint, j.ordered
    from {schema}.jobs j where j.worker = p_worker and j.ordered is not null and j.state || '' = {RUNNING};
end
$$;
