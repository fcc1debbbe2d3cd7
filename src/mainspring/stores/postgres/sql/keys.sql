-- hold_keys: make these keys' rows where there are none, and lock all of them in their order
create function {schema}.hold_keys_v1(p_hash bytea[]) returns void language plpgsql as $$
declare
    v_hashes bytea[] := array(select distinct h from unnest(p_hash) h order by h);
    v_locked integer;
begin
    loop
        insert into {schema}.keys (hash) select h from unnest(v_hashes) h on conflict do nothing;
        perform 1 from {schema}.keys k where k.hash = any(v_hashes) order by k.hash for update;
        get diagnostics v_locked = row_count;
        exit when v_locked = cardinality(v_hashes);  -- else one was deleted with its job in between
    end loop;
end
$$;

-- lock_keys: hold these keys, then end the jobs that hold one and have expired while they waited: they hold it no more
-- returns queues that became ready
create function {schema}.lock_keys_v1(p_hash bytea[], p_now bigint) returns text[] language plpgsql as $$
begin
    perform {schema}.hold_keys_v1(p_hash);
    return {schema}.finish_v1(
        array(
            select row(late.id, 'cancelled', 'expired', null, null, null, null, 0)::{schema}.ending_v1 from (
                select j.id from {schema}.keys k join {schema}.jobs j on j.id = any(array[k.job])
                where k.hash = any(p_hash) and j.state || '' <> 'running' and j.expires <= {schema}.now_v1(p_now)
                order by j.id for update of j
            ) late
        ), {schema}.now_v1(p_now)
    );
end
$$;

-- holder: the job that holds a key whose row the caller has locked
-- p_again: this call has asked for the key before, so somebody holds it, if only a job that is not inserted yet
create function {schema}.holder_v1(p_hash bytea, p_again boolean, p_now bigint) returns bytea language plpgsql as $$
begin
    return (
        select case
            when p_again or k.until > p_now or exists (select 1 from {schema}.jobs j where j.id = any(array[k.job])) then k.job
            when k.mode <> '' then {schema}.held_after_v1(k, p_now)
        end
        from {schema}.keys k where k.hash = p_hash
    );
end
$$;

-- take_keys: in the order of the batch each new job takes its key, or finds who holds it; the caller inserts afterwards
-- Those whose conflict is null have a mode in which the newest replaces the job that waits (see latest).
-- returns, for a job at a place, the holder that answers for it; the jobs that a key was taken from; queues that became ready
create function {schema}.take_keys_v1(
    p_id bytea[], p_task text[], p_take boolean[], p_key bytea[], p_window bigint[], p_conflict text[], p_modes jsonb, p_now bigint
) returns table (at integer, holder bytea, loser bytea, woken text) language plpgsql as $$
#variable_conflict use_column
declare
    v_new record;
    v_now bigint;
    v_holder bytea;
    v_kept jsonb;
begin
    return query select null::integer, null::bytea, null::bytea, w.queue from unnest(
        {schema}.lock_keys_v1(
            array(select k.hash from unnest(p_key) with ordinality as k(hash, n) where k.hash is not null and p_take[k.n]), p_now
        )
    ) as w(queue);
    if current_setting('transaction_isolation') <> 'read committed' then
        -- In a caller's transaction with an old snapshot a holder that has ended since looks alive: its lock tells.
        perform 1 from {schema}.jobs j where j.id in (
            select k.job from unnest(p_key) as u(hash) join {schema}.keys k on k.hash = any(array[u.hash])
        ) order by j.id for key share;
    end if;
    perform 1 from {schema}.jobs j where j.state || '' <> 'running' and j.id in (
        select k.job from unnest(p_key, p_conflict) as u(hash, conflict) join {schema}.keys k on k.hash = any(array[u.hash])
        where u.conflict = 'replace'
    ) order by j.id for update;
    v_now := {schema}.now_v1(p_now);
    for v_new in
        select u.n::integer as at, u.*, row_number() over (partition by u.hash order by u.n) > 1 as again
        from unnest(p_key, p_window, p_conflict) with ordinality as u(hash, span, conflict, n)
        where u.hash is not null and u.conflict is not null and p_take[u.n] order by u.n
    loop
        v_holder := {schema}.holder_v1(v_new.hash, v_new.again, v_now);
        v_kept := p_modes -> v_new.at::text;
        if v_holder is not null and v_kept is not null then
            perform {schema}.compare_v1(v_new.hash, v_kept ->> 'print', p_task[v_new.at], v_holder, p_id[v_new.at]);
        end if;
        if v_holder is not null and v_new.conflict = 'error' then
            raise exception '%', encode(v_holder, 'hex') using errcode = 'MS002', detail = p_task[v_new.at];
        end if;
        if v_holder is not null and v_new.conflict = 'return' then
            return query select v_new.at, v_holder, null::bytea, null::text;
            continue;
        end if;
        if v_holder is not null then
            return query select v_new.at, null::bytea, v_holder, null::text;
            if not exists (select 1 from {schema}.jobs j where j.id = v_holder) then
                perform {schema}.let_go_v1(v_holder);
            end if;
        end if;
        update {schema}.keys k
        set job = p_id[v_new.at], until = case when v_new.span > 0 then v_now + v_new.span else 0 end,
            mode = case when v_kept is null then '' else 'keep' end, span = coalesce((v_kept ->> 'keep')::bigint, 0),
            print = decode(v_kept ->> 'print', 'hex')
        where k.hash = v_new.hash;
    end loop;
end
$$;
