-- Unique keys. The row of a key names the job that took it last; nothing is written when its time is over: the next
-- enqueue under the key looks.

-- lock_key_rows: insert the rows of these keys that do not exist, and lock all of them in order.
create function {schema}.lock_key_rows_v1(p_hash bytea[]) returns void language plpgsql as $$
declare
    v_hashes bytea[] := array(select distinct h from unnest(p_hash) h order by h);
    v_locked integer;
begin
    loop
        insert into {schema}.keys (hash) select h from unnest(v_hashes) h on conflict do nothing;
        perform 1 from {schema}.keys k where k.hash = any(v_hashes) order by k.hash for update;
        get diagnostics v_locked = row_count;
        exit when v_locked = cardinality(v_hashes);  -- else a key was deleted with its job in between
    end loop;
end
$$;

-- lock_keys: lock these keys, then end the jobs that hold one and have expired while they waited.
-- returns the queues in which a job became ready
create function {schema}.lock_keys_v1(p_hash bytea[], p_now bigint) returns text[] language plpgsql as $$
begin
    perform {schema}.lock_key_rows_v1(p_hash);
    return {schema}.finish_v1(
        array(
            select row(late.id, {CANCELLED}, {EXPIRED}, null, null, null, null, 0, null)::{schema}.ending_v1 from (
                select j.id from {schema}.keys k join {schema}.jobs j on j.id = any(array[k.job])
                where k.hash = any(p_hash) and j.state || '' <> {RUNNING} and j.expires <= {schema}.now_v1(p_now)
                order by j.id for update of j
            ) late
        ), {schema}.now_v1(p_now)
    );
end
$$;

-- find_key_holder: the job that holds a key whose row the caller has locked.
-- p_again: this call has taken the key before, so a job holds it, even if that job is not inserted yet
create function {schema}.find_key_holder_v1(p_hash bytea, p_again boolean, p_now bigint) returns bytea language plpgsql as $$
begin
    return (
        select case
            when p_again or k.until > p_now or exists (select 1 from {schema}.jobs j where j.id = any(array[k.job])) then k.job
            when k.mode <> '' then {schema}.find_later_holder_v1(k, p_now)
        end
        from {schema}.keys k where k.hash = p_hash
    );
end
$$;

-- take_keys: in the order of the batch each new job takes its key, or finds the job that holds it; the caller inserts
-- afterwards. Jobs whose conflict is null have a mode in which the newest enqueue replaces the waiting job (see
-- replace_waiting).
-- returns, by position, which jobs are still to be inserted and the holder that answers for each other one; the jobs
-- that lost their key; the queues that became ready
create function {schema}.take_keys_v1(
    p_id bytea[], p_task text[], inout p_take boolean[], p_key bytea[], p_window bigint[], p_conflict text[], p_modes jsonb,
    p_now bigint, out answers bytea[], out losers bytea[], out woken text[]
) language plpgsql as $$
declare
    v_new record;
    v_now bigint;
    v_holder bytea;
    v_mode jsonb;
begin
    answers := array_fill(null::bytea, array[cardinality(p_id)]);
    losers := '{}';
    if p_modes is not null then
        perform {schema}.lock_latest_keys_v1(p_key);
    end if;
    woken := {schema}.lock_keys_v1(
        array(select k.hash from unnest(p_key) with ordinality as k(hash, n) where k.hash is not null and p_take[k.n]), p_now
    );
    perform {schema}.lock_key_holders_v1(p_key, p_conflict);
    v_now := {schema}.now_v1(p_now);
    for v_new in
        select u.n::integer as at, u.*, row_number() over (partition by u.hash order by u.n) > 1 as again
        from unnest(p_key, p_window, p_conflict) with ordinality as u(hash, span, conflict, n)
        where u.hash is not null and u.conflict is not null and p_take[u.n] order by u.n
    loop
        v_holder := {schema}.find_key_holder_v1(v_new.hash, v_new.again, v_now);
        v_mode := p_modes -> v_new.at::text;
        if v_holder is not null and v_mode is not null then
            perform {schema}.compare_print_v1(v_new.hash, v_mode ->> 'print', p_task[v_new.at], v_holder, p_id[v_new.at]);
        end if;
        if v_holder is not null and v_new.conflict = {CONFLICT_ERROR} then
            raise exception '%', encode(v_holder, 'hex') using errcode = {ERROR_KEY_TAKEN}, detail = p_task[v_new.at];
        end if;
        if v_holder is not null and v_new.conflict = {CONFLICT_RETURN} then
            p_take[v_new.at] := false;
            answers[v_new.at] := v_holder;
            continue;
        end if;
        if v_holder is not null then
            losers := losers || v_holder;
            if not exists (select 1 from {schema}.jobs j where j.id = v_holder) then
                perform {schema}.resume_pruning_v1(v_holder);
            end if;
        end if;
        update {schema}.keys k
        set job = p_id[v_new.at], until = case when v_new.span > 0 then v_now + v_new.span else 0 end,
            mode = case when v_mode is null then '' else {KEY_KEEP} end, span = coalesce((v_mode ->> 'keep')::bigint, 0),
            print = decode(v_mode ->> 'print', 'hex')
        where k.hash = v_new.hash;
    end loop;
end
$$;

-- lock_key_holders: lock the jobs that hold these keys and that a new job replaces, except running ones.
create function {schema}.lock_key_holders_v1(p_key bytea[], p_conflict text[]) returns void language plpgsql as $$
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        -- In a caller's transaction with an old snapshot a holder that has ended since looks live: locking it shows
        -- that.
        perform 1 from {schema}.jobs j where j.id in (
            select k.job from unnest(p_key) as u(hash) join {schema}.keys k on k.hash = any(array[u.hash])
        ) order by j.id for key share;
    end if;
    perform 1 from {schema}.jobs j where j.state || '' <> {RUNNING} and j.id in (
        select k.job from unnest(p_key, p_conflict) as u(hash, conflict) join {schema}.keys k on k.hash = any(array[u.hash])
        where u.conflict = {CONFLICT_REPLACE}
    ) order by j.id for update;
end
$$;

-- key_until: until when a key counts for the job that took it last, by how the job ended.
create function {schema}.key_until_v1(p_key {schema}.keys, p_state text, p_started bigint, p_finished bigint)
returns bigint language sql immutable as $$
    select greatest(p_key.until, case
        when p_key.mode = {KEY_KEEP} and p_state = {SUCCEEDED} then p_finished + p_key.span
        when p_key.mode = {KEY_THROTTLE} then p_started + p_key.span
    end)
$$;

-- find_later_holder: the job that holds a key whose last job is not live and has no window: that job, or the job before
-- it.
create function {schema}.find_later_holder_v1(p_key {schema}.keys, p_now bigint) returns bytea language plpgsql as $$
begin
    if p_key.mode = {KEY_KEEP_LAST} then
        return (select j.id from {schema}.jobs j where j.id = p_key.previous);
    elsif p_key.mode = {KEY_KEEP} then
        return (
            select f.id from {schema}.finished f
            where f.id = p_key.job and {schema}.key_until_v1(p_key, f.state, f.started, f.finished) > p_now
        );
    end if;
    return null;
end
$$;

-- compare_print: refuse an enqueue with other arguments under the key of a job that is kept.
create function {schema}.compare_print_v1(p_hash bytea, p_print text, p_task text, p_holder bytea, p_job bytea)
returns void language plpgsql as $$
begin
    if (select k.print <> decode(p_print, 'hex') from {schema}.keys k where k.hash = p_hash) then
        raise exception '% %', encode(p_holder, 'hex'), encode(p_job, 'hex')
            using errcode = {ERROR_KEY_CONFLICT}, detail = p_task;
    end if;
end
$$;

-- lock_latest_keys: lock the keys of a batch, and keep the jobs before the waiting ones from ending meanwhile.
-- A parent is locked before its child, as in finish.
create function {schema}.lock_latest_keys_v1(p_key bytea[]) returns void language plpgsql as $$
begin
    perform {schema}.lock_key_rows_v1(array(select u.hash from unnest(p_key) as u(hash) where u.hash is not null));
    perform 1 from {schema}.jobs j where j.id in (
        select k.previous from unnest(p_key) as u(hash) join {schema}.keys k on k.hash = any(array[u.hash])
        where k.mode = {KEY_KEEP_LAST} and k.previous is not null
    ) order by j.id for key share;
end
$$;

-- replace_waiting: in modes in which the newest enqueue replaces the waiting job, decide about each new job; the keys
-- are locked. A job that waits and was never claimed is taken out, and the caller inserts the new job in its place:
-- under the same id, with the same moment of enqueue, the same epoch and, if it stays ready, the same place in the
-- line. Its dependents stay. Else the new job takes the key. A repeat of a replacing enqueue finds the job that answers.
-- p_modes: by position {mode, window, max_wait}. returns the batch as it is to be inserted: the moment that all times
-- count from; by position the id, whether the job is inserted, the job that answers for it, and when it runs; the edges
-- to parents; and what the caller needs of the jobs that were taken out
create function {schema}.replace_waiting_v1(
    p_key bytea[], p_modes jsonb, inout p_now bigint, inout p_id bytea[], inout p_take boolean[], inout p_answers bytea[],
    inout p_run_at bigint[], inout p_child_at integer[], inout p_parent bytea[], inout p_parent_at integer[],
    inout p_policy text[], out replaced {schema}.replaced_v1[]
) language plpgsql as $$
declare
    v_now bigint;
    v_at integer;
    v_asked record;
    v_key {schema}.keys;
    v_job {schema}.jobs;
    v_due bigint;
    v_parent bytea;
begin
    perform {schema}.lock_waiting_v1(p_key);
    v_now := {schema}.now_v1(p_now);
    replaced := '{}';
    p_run_at := array(select p_run_at[n] from generate_subscripts(p_id, 1) n order by n);
    for v_asked in
        select a.key::integer as at, m.* from jsonb_each(p_modes) a
        cross join lateral jsonb_to_record(a.value) as m(mode text, "window" bigint, max_wait bigint)
        where m.mode <> {KEY_KEEP} and p_take[a.key::integer] order by 1
    loop
        v_at := v_asked.at;
        select k.* into v_key from {schema}.keys k where k.hash = p_key[v_at];
        if v_key.replaced_by = p_id[v_at] then
            p_take[v_at] := false;
            p_answers[v_at] := v_key.job;
            continue;
        end if;
        p_now := v_now;  -- the delay counts from the enqueue, not from the end of the wait for locks
        select j.* into v_job from {schema}.jobs j where j.id = v_key.job;
        if v_job.token = 0 and v_job.state <> {RUNNING} then
            select t.* into v_parent, v_due from {schema}.take_out_waiting_v1(
                v_job, v_key, p_id[v_at], v_asked.mode, v_asked."window", v_asked.max_wait, v_now
            ) t;
            replaced := replaced || {schema}.describe_replaced_v1(v_at, v_job);
            p_id[v_at] := v_job.id;
            p_answers[v_at] := v_job.id;
            -- The new id is never inserted, so no child can wait for it; children of the replaced job find it at this
            -- position.
            p_parent_at := array(
                select case when e.parent = v_job.id then v_at else nullif(e.inside, v_at) end
                from unnest(p_parent, p_parent_at) with ordinality as e(parent, inside, n) order by e.n
            );
        else
            select t.* into v_parent, v_due from {schema}.take_latest_key_v1(
                v_key, v_job.id, p_id[v_at], v_asked.mode, v_asked."window", v_now
            ) t;
        end if;
        p_run_at[v_at] := coalesce(v_due, p_run_at[v_at]);
        if v_parent is not null then
            p_child_at := p_child_at || v_at;
            p_parent := p_parent || v_parent;
            p_parent_at := p_parent_at || null::integer;
            p_policy := p_policy || {EDGE_IGNORE}::text;
        end if;
    end loop;
end
$$;

-- lock_waiting: lock the jobs of these keys that may be replaced: they wait and were never claimed.
create function {schema}.lock_waiting_v1(p_key bytea[]) returns void language plpgsql as $$
begin
    perform 1 from {schema}.jobs j where j.token = 0 and j.state || '' <> {RUNNING} and j.id in (
        select k.job from unnest(p_key) as u(hash) join {schema}.keys k on k.hash = any(array[u.hash])
        where k.mode in ({KEY_DEBOUNCE}, {KEY_THROTTLE}, {KEY_KEEP_LAST})
    ) order by j.id for update;
end
$$;

-- take_out_waiting: delete a waiting job, which a new job replaces under its id, with what the new job brings itself:
-- edges to parents, marks, follow-up jobs. The key notes the new job, for a repeat of its enqueue.
-- returns the parent that the new job waits for, and when it runs; or nulls
create function {schema}.take_out_waiting_v1(
    p_job {schema}.jobs, p_key {schema}.keys, p_by bytea, p_mode text, p_window bigint, p_max_wait bigint, p_now bigint,
    out parent bytea, out due bigint
) language plpgsql as $$
begin
    delete from {schema}.jobs j where j.id = p_job.id;
    delete from {schema}.edges e where e.child = p_job.id;
    delete from {schema}.marks m where m.job = p_job.id;
    delete from {schema}.follow_ups f where f.job = p_job.id;
    update {schema}.keys k
    set replaced_by = p_by, span = case when p_mode = {KEY_THROTTLE} then p_window else 0 end
    where k.hash = p_key.hash;
    parent := case when p_job.deps > 0 then p_key.previous end;
    due := case p_mode
        when {KEY_DEBOUNCE} then least(p_now + p_window, p_job.enqueued + nullif(p_max_wait, 0))
        when {KEY_THROTTLE} then coalesce(p_job.due, p_now)
    end;
end
$$;

-- describe_replaced: what a new job keeps of the waiting job that it replaces (see keep_places).
create function {schema}.describe_replaced_v1(p_at integer, p_job {schema}.jobs) returns {schema}.replaced_v1
language sql immutable as $$
    select row(
        p_at, p_job.enqueued, p_job.epoch, case when p_job.state = {READY} then p_job.seq end, p_job.queue,
        case when p_job.state = {READY} and p_job.buckets is not null then p_job.lane end
    )::{schema}.replaced_v1
$$;

-- take_latest_key: a new job takes the key of a job that cannot be replaced, because it was claimed or ended.
-- p_live: that job, if it is live. returns the parent that the new job waits for, and when it runs; or nulls
create function {schema}.take_latest_key_v1(
    p_key {schema}.keys, p_live bytea, p_id bytea, p_mode text, p_window bigint, p_now bigint,
    out parent bytea, out due bigint
) language plpgsql as $$
declare
    v_previous bytea;
begin
    if p_mode = {KEY_DEBOUNCE} then
        due := p_now + p_window;
    elsif p_mode = {KEY_KEEP_LAST} then
        v_previous := (select j.id from {schema}.jobs j where j.id = coalesce(p_live, p_key.previous));
        parent := v_previous;
    else
        select s.id, case when s.started > p_now then p_now else s.started end + p_window into v_previous, due
        from {schema}.find_starts_v1(array[p_key.job, p_key.previous]) s order by s.id = p_key.job desc limit 1;
    end if;
    update {schema}.keys k
    set job = p_id, until = 0, mode = p_mode, previous = v_previous, replaced_by = null, print = null,
        span = case when p_mode = {KEY_THROTTLE} then p_window else 0 end
    where k.hash = p_key.hash;
end
$$;

-- find_starts: the last starts of those of these jobs that were claimed, live or ended; null for a job that was retried
-- since.
create function {schema}.find_starts_v1(p_ids bytea[]) returns table (id bytea, started bigint) language plpgsql as $$
begin
    return query
    select j.id, j.started from {schema}.jobs j where j.id = any(p_ids) and j.token > 0
    union all
    select f.id, f.started from {schema}.finished f where f.id = any(p_ids) and f.token > 0
    union all
    select d.id, d.started from {schema}.dead d where d.id = any(p_ids) and d.token > 0;
end
$$;
