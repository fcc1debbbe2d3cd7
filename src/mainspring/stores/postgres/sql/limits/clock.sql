-- The clock of the server may be set back, after a step forward or by a failover. What lies ahead then would hold back
-- jobs until the clock reaches the old time again.

-- note_time: note the time of this promotion, every {CLOCK_NOTED} microseconds. If the clock was set back since the
-- last note, bring back what lies ahead. A promotion that runs at the same time does it instead.
create function {schema}.note_time_v1(p_now bigint) returns void language plpgsql as $$
declare
    v_clock bigint := (select m.clock from {schema}.meta m);
begin
    if p_now between v_clock - {CLOCK_SET_BACK} and v_clock + {CLOCK_NOTED} then
        return;
    end if;
    select m.clock into v_clock from {schema}.meta m for update skip locked;
    if not found then
        return;
    end if;
    if p_now < v_clock - {CLOCK_SET_BACK} then
        perform {schema}.bring_back_limits_v1(v_clock - p_now, p_now);
    end if;
    update {schema}.meta m set clock = p_now;
end
$$;

-- bring_back_limits: the clock was set back by p_step. A start that lies ahead counts from now on; tat lies at most one
-- window ahead; a pause, and a breaker that opened ahead, keep the time that was left of them; lanes that wait for a
-- moment are rechecked.
create function {schema}.bring_back_limits_v1(p_step bigint, p_now bigint) returns void language plpgsql as $$
begin
    perform 1 from {schema}.buckets b where b.tat > p_now or b.blocked_until > p_now
        or exists (select 1 from {schema}.rate_starts s where s.bucket = b.name and s.last > p_now)
        or exists (select 1 from {schema}.breakers r where r.name = b.name and r.opened > p_now)
    order by b.name for update;
    -- New statements: they see what the turns wrote that had locked the buckets before.
    update {schema}.rate_starts s set first = least(s.first, p_now), last = p_now where s.last > p_now;
    update {schema}.buckets b
    set tat = least(b.tat, p_now + greatest(l.per, {schema}.smooth_time_v1(greatest(l.burst, 1), l.per, z.size))),
        blocked_until = least(b.blocked_until, greatest(p_now, b.blocked_until - p_step))
    from {schema}.limits l cross join lateral (select coalesce(l.set_size, l.size) as size) z
    where l.name = any(array[split_part(b.name, '=', 1)]) and (b.tat > p_now or b.blocked_until > p_now);
    update {schema}.breakers r
    set until = case when r.until = {FOREVER} then r.until
            else p_now + greatest(0, least(r.until - r.opened, r.until - p_step - p_now)) end,
        opened = p_now
    where r.opened > p_now;
    update {schema}.keyed_lanes l set recheck_at = p_now where l.recheck_at > p_now;
end
$$;
