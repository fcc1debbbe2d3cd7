-- key_until: how long a key counts for the job that took it last, by how that ended
create function {schema}.key_until_v1(p_key {schema}.keys, p_state text, p_started bigint, p_finished bigint)
returns bigint language sql immutable as $$
    select greatest(p_key.until, case
        when p_key.mode = 'keep' and p_state = 'succeeded' then p_finished + p_key.span
        when p_key.mode = 'throttle' then p_started + p_key.span
    end)
$$;

-- held_after: who holds a key whose last job is not live and has no window: that job, or the one that runs before it
create function {schema}.held_after_v1(p_key {schema}.keys, p_now bigint) returns bytea language plpgsql as $$
begin
    if p_key.mode = 'keep_last' then
        return (select j.id from {schema}.jobs j where j.id = p_key.before);
    elsif p_key.mode = 'keep' then
        return (
            select f.id from {schema}.finished f
            where f.id = p_key.job and {schema}.key_until_v1(p_key, f.state, f.started, f.finished) > p_now
        );
    end if;
    return null;
end
$$;

-- compare: refuse another request under the key of a job that is kept
create function {schema}.compare_v1(p_hash bytea, p_print text, p_task text, p_holder bytea, p_job bytea)
returns void language plpgsql as $$
begin
    if (select k.print <> decode(p_print, 'hex') from {schema}.keys k where k.hash = p_hash) then
        raise exception '% %', encode(p_holder, 'hex'), encode(p_job, 'hex') using errcode = 'MS006', detail = p_task;
    end if;
end
$$;

-- lock_latest: hold the keys of a batch, and keep the jobs before those that wait from ending meanwhile
-- A parent is locked before its child, as it is by whoever ends it.
create function {schema}.lock_latest_v1(p_key bytea[]) returns void language plpgsql as $$
begin
    perform {schema}.hold_keys_v1(array(select u.hash from unnest(p_key) as u(hash) where u.hash is not null));
    perform 1 from {schema}.jobs j where j.id in (
        select k.before from unnest(p_key) as u(hash) join {schema}.keys k on k.hash = any(array[u.hash])
        where k.mode = 'keep_last' and k.before is not null
    ) order by j.id for key share;
end
$$;

-- latest: in modes in which the newest enqueue replaces the job that waits, what becomes of each new job; keys are locked
-- A job that waits and was never claimed is taken out, for the caller to insert the new one in its place: under its id,
-- with its moment of enqueue, its epoch and, if it stays ready, its place in the line. Who waits for it stays.
-- p_modes: by place {mode, window, max_wait}. returns for a place the job that answers, whether that is to be inserted anew,
-- and of the job to insert: due or null, the parent or null, enqueued, epoch and seq or null; the moment that all goes by; the
-- queue that it was in, the lane with limits that it leaves, and its place in the line of a part
create function {schema}.latest_v1(p_id bytea[], p_take boolean[], p_key bytea[], p_modes jsonb, p_now bigint)
returns table (
    at integer, answer bytea, anew boolean, due bigint, parent bytea, enqueued bigint, epoch integer, seq bigint, moment bigint,
    queue text, leaves text, line text, held bigint
)
language plpgsql as $$
#variable_conflict use_column
declare
    v_now bigint;
    v_at integer;
    v_asked record;
    v_key {schema}.keys;
    v_job {schema}.jobs;
    v_before bytea;
    v_due bigint;
begin
    perform 1 from {schema}.jobs j where j.token = 0 and j.state || '' <> 'running' and j.id in (
        select k.job from unnest(p_key) as u(hash) join {schema}.keys k on k.hash = any(array[u.hash])
        where k.mode in ('debounce', 'throttle', 'keep_last')
    ) order by j.id for update;
    v_now := {schema}.now_v1(p_now);
    for v_asked in
        select a.key::integer as at, m.* from jsonb_each(p_modes) a
        cross join lateral jsonb_to_record(a.value) as m(mode text, "window" bigint, max_wait bigint)
        where m.mode <> 'keep' and p_take[a.key::integer] order by 1
    loop
        v_at := v_asked.at;
        select k.* into v_key from {schema}.keys k where k.hash = p_key[v_at];
        if v_key.said = p_id[v_at] then
            return query select v_at, v_key.job, false, null::bigint, null::bytea, null::bigint, null::integer,
                null::bigint, v_now, null::text, null::text, null::text, null::bigint;
            continue;
        end if;
        select j.* into v_job from {schema}.jobs j where j.id = v_key.job;
        if v_job.token = 0 and v_job.state <> 'running' then
            delete from {schema}.jobs j where j.id = v_job.id;
            delete from {schema}.edges e where e.child = v_job.id;
            delete from {schema}.marks m where m.job = v_job.id;
            delete from {schema}.follows f where f.job = v_job.id;
            update {schema}.keys k
            set said = p_id[v_at], span = case when v_asked.mode = 'throttle' then v_asked."window" else 0 end
            where k.hash = v_key.hash;
            v_due := case v_asked.mode
                when 'debounce' then least(v_now + v_asked."window", v_job.enqueued + nullif(v_asked.max_wait, 0))
                when 'throttle' then coalesce(v_job.due, v_now)
            end;
            return query select v_at, v_job.id, true, v_due,
                case when v_job.deps > (v_job.held is not null)::integer then v_key.before end,
                v_job.enqueued, v_job.epoch, case when v_job.state = 'ready' then v_job.seq end, v_now,
                v_job.queue, case when v_job.state = 'ready' and v_job.buckets is not null then v_job.lane end, v_job.line, v_job.held;
            continue;
        end if;
        v_before := null;
        v_due := null;
        if v_asked.mode = 'debounce' then
            v_due := v_now + v_asked."window";
        elsif v_asked.mode = 'keep_last' then
            v_before := (select j.id from {schema}.jobs j where j.id = case when v_job.id is null then v_key.before else v_job.id end);
        else
            select s.id, case when s.started > v_now then v_now else s.started end + v_asked."window" into v_before, v_due
            from {schema}.started_v1(array[v_key.job, v_key.before]) s order by s.id = v_key.job desc limit 1;
        end if;
        update {schema}.keys k
        set job = p_id[v_at], until = 0, mode = v_asked.mode, before = v_before, said = null, print = null,
            span = case when v_asked.mode = 'throttle' then v_asked."window" else 0 end
        where k.hash = p_key[v_at];
        return query select v_at, null::bytea, false, v_due, case when v_asked.mode = 'keep_last' then v_before end,
            null::bigint, null::integer, null::bigint, v_now, null::text, null::text, null::text, null::bigint;
    end loop;
end
$$;

-- started: the last starts of those of these jobs that were claimed, live or ended; null for one that was retried since
create function {schema}.started_v1(p_ids bytea[]) returns table (id bytea, started bigint) language plpgsql as $$
begin
    return query
    select j.id, j.started from {schema}.jobs j where j.id = any(p_ids) and j.token > 0
    union all
    select f.id, f.started from {schema}.finished f where f.id = any(p_ids) and f.token > 0
    union all
    select d.id, d.started from {schema}.dead d where d.id = any(p_ids) and d.token > 0;
end
$$;
