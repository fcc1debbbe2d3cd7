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
            select row(late.id, {CANCELLED}, {EXPIRED}, null, null, null, null, 0)::{schema}.ending_v1 from (
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
-- replace_waiting). returns, for the position of a job, the holder that answers for it; the jobs that lost their key;
-- queues that became ready
create function {schema}.take_keys_v1(
    p_id bytea[], p_task text[], p_take boolean[], p_key bytea[], p_window bigint[], p_conflict text[], p_modes jsonb,
        p_now bigint
) returns table (at integer, holder bytea, loser bytea, woken text) language plpgsql as $$
#variable_conflict use_column
declare
    v_new record;
    v_now bigint;
    v_holder bytea;
    v_mode jsonb;
begin
    return query select null::integer, null::bytea, null::bytea, w.queue from unnest(
        {schema}.lock_keys_v1(
            array(select k.hash from unnest(p_key) with ordinality as k(hash, n) where k.hash is not null and p_take[k.n]), p_now
        )
    ) as w(queue);
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
            return query select v_new.at, v_holder, null::bytea, null::text;
            continue;
        end if;
        if v_holder is not null then
            return query select v_new.at, null::bytea, v_holder, null::text;
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
-- line. Its dependents stay.
-- p_modes: by position {mode, window, max_wait}. returns for a position the job that answers, whether it is inserted
-- anew, and of the job to insert: due or null, the parent or null, enqueued, epoch and seq or null; the moment that all
-- times count from; the queue that the job was in, the limited lane that it leaves, and its place in the line of a
-- schedule
create function {schema}.replace_waiting_v1(p_id bytea[], p_take boolean[], p_key bytea[], p_modes jsonb, p_now bigint)
returns table (
    at integer, answer bytea, anew boolean, due bigint, parent bytea, enqueued bigint, epoch integer, seq bigint, moment bigint,
    queue text, leaves text, held_schedule text, held_place bigint
)
language plpgsql as $$
#variable_conflict use_column
declare
    v_now bigint;
    v_at integer;
    v_asked record;
    v_key {schema}.keys;
    v_job {schema}.jobs;
    v_previous bytea;
    v_due bigint;
begin
    perform 1 from {schema}.jobs j where j.token = 0 and j.state || '' <> {RUNNING} and j.id in (
        select k.job from unnest(p_key) as u(hash) join {schema}.keys k on k.hash = any(array[u.hash])
        where k.mode in ({KEY_DEBOUNCE}, {KEY_THROTTLE}, {KEY_KEEP_LAST})
    ) order by j.id for update;
    v_now := {schema}.now_v1(p_now);
    for v_asked in
        select a.key::integer as at, m.* from jsonb_each(p_modes) a
        cross join lateral jsonb_to_record(a.value) as m(mode text, "window" bigint, max_wait bigint)
        where m.mode <> {KEY_KEEP} and p_take[a.key::integer] order by 1
    loop
        v_at := v_asked.at;
        select k.* into v_key from {schema}.keys k where k.hash = p_key[v_at];
        if v_key.replaced_by = p_id[v_at] then
            return query select v_at, v_key.job, false, null::bigint, null::bytea, null::bigint, null::integer,
                null::bigint, v_now, null::text, null::text, null::text, null::bigint;
            continue;
        end if;
        select j.* into v_job from {schema}.jobs j where j.id = v_key.job;
        if v_job.token = 0 and v_job.state <> {RUNNING} then
            delete from {schema}.jobs j where j.id = v_job.id;
            delete from {schema}.edges e where e.child = v_job.id;
            delete from {schema}.marks m where m.job = v_job.id;
            delete from {schema}.follow_ups f where f.job = v_job.id;
            update {schema}.keys k
            set replaced_by = p_id[v_at], span = case when v_asked.mode = {KEY_THROTTLE} then v_asked."window" else 0 end
            where k.hash = v_key.hash;
            v_due := case v_asked.mode
                when {KEY_DEBOUNCE} then least(v_now + v_asked."window", v_job.enqueued + nullif(v_asked.max_wait, 0))
                when {KEY_THROTTLE} then coalesce(v_job.due, v_now)
            end;
            return query select v_at, v_job.id, true, v_due,
                case when v_job.deps > (v_job.held_place is not null)::integer then v_key.previous end,
                v_job.enqueued, v_job.epoch, case when v_job.state = {READY} then v_job.seq end, v_now,
                v_job.queue, case when v_job.state = {READY} and v_job.buckets is not null then v_job.lane end,
                v_job.held_schedule, v_job.held_place;
            continue;
        end if;
        v_previous := null;
        v_due := null;
        if v_asked.mode = {KEY_DEBOUNCE} then
            v_due := v_now + v_asked."window";
        elsif v_asked.mode = {KEY_KEEP_LAST} then
            v_previous := (select j.id from {schema}.jobs j where j.id = case when v_job.id is null
                then v_key.previous else v_job.id end);
        else
            select s.id, case when s.started > v_now then v_now else s.started end + v_asked."window" into v_previous, v_due
            from {schema}.find_starts_v1(array[v_key.job, v_key.previous]) s order by s.id = v_key.job desc limit 1;
        end if;
        update {schema}.keys k
        set job = p_id[v_at], until = 0, mode = v_asked.mode, previous = v_previous, replaced_by = null, print = null,
            span = case when v_asked.mode = {KEY_THROTTLE} then v_asked."window" else 0 end
        where k.hash = p_key[v_at];
        return query select v_at, null::bytea, false, v_due, case when v_asked.mode = {KEY_KEEP_LAST} then v_previous end,
            null::bigint, null::integer, null::bigint, v_now, null::text, null::text, null::text, null::bigint;
    end loop;
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
