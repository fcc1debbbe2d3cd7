-- ack: running -> where each ack says, or cancelled where an order waits; the caller has locked the worker's row
-- returns one row per ack that was not applied: already (the same owner's same ack was applied before) or stale
create function {schema}.ack_v1(p_worker text, p_acks {schema}.ack_v1[], p_now bigint)
returns table (id bytea, token bigint, verdict text) language plpgsql as $$
#variable_conflict use_column
declare
    v_ids bytea[] := array(select a.id from unnest(p_acks) a);
    v_good {schema}.ack_v1[];
    v_applied integer[];
    v_plain boolean;
    v_endings {schema}.ending_v1[];
begin
    -- Whoever moves running rows holds their worker's row, as we do; only a cancel order can still come between.
    perform 1 from {schema}.jobs j where j.id = any(v_ids) order by j.id for update;
    -- By primary key, state and worker as expressions: through the index on running(worker) this is a loop over all pairs.
    select coalesce(array_agg(a), '{}'), coalesce(bool_and(a.outcome = 'succeeded' and j.ordered is null), true)
    into v_good, v_plain
    from unnest(p_acks) a join {schema}.jobs j on j.id = a.id
    where j.token = a.token and j.state || '' = 'running' and j.worker || '' = p_worker;
    v_applied := array(select g.n from unnest(v_good) g);

    if v_plain then
        v_endings := array(
            select row(g.id, g."to", g.reason, g.result, g.error, g.run_us)::{schema}.ending_v1 from unnest(v_good) g
        );
    else
        v_endings := {schema}.sort_out_v1(v_good, p_now);
    end if;
    perform {schema}.finish_v1(v_endings, p_now);

    if cardinality(v_good) < cardinality(p_acks) then
        return query
        select a.id, a.token,
            case when exists (
                select 1 from {schema}.attempts t
                where t.job = a.id and t.token = a.token and t.worker = p_worker and t.outcome = a.outcome
            ) or a.outcome = 'succeeded' and exists (
                select 1 from {schema}.finished f
                where f.id = a.id and f.token = a.token and f.worker = p_worker and f.state = 'succeeded'
            ) then 'already' else 'stale' end
        from unnest(p_acks) a where a.n <> all(v_applied);
    end if;
end
$$;

-- sort_out: keep the attempts of acks that are more than plain successes, hand back what is to be tried again
-- returns how the others end
create function {schema}.sort_out_v1(p_acks {schema}.ack_v1[], p_now bigint) returns {schema}.ending_v1[] language plpgsql as $$
begin
    insert into {schema}.attempts (job, token, epoch, attempt, worker, started, ended, outcome, error)
    select j.id, j.token, j.epoch, j.attempt, j.worker, j.started, p_now, a.outcome, a.error
    from unnest(p_acks) a join {schema}.jobs j on j.id = a.id
    where a.outcome <> 'succeeded' or j.ordered is not null;
    perform {schema}.hand_back_v1(p_acks, p_now);
    return array(
        select case when j.ordered is null then row(a.id, a."to", a.reason, a.result, a.error, a.run_us)::{schema}.ending_v1
                    else row(a.id, 'cancelled', 'by_user', null, a.error, a.run_us)::{schema}.ending_v1 end
        from unnest(p_acks) a join {schema}.jobs j on j.id = a.id
        where j.ordered is not null or a."to" in ('succeeded', 'dead', 'cancelled')
    );
end
$$;

-- hand_back: running -> ready | retrying | scheduled for those acks that say so; their bucket holds end
create function {schema}.hand_back_v1(p_acks {schema}.ack_v1[], p_now bigint) returns void language plpgsql as $$
declare
    v_back bytea[] := array(
        select a.id from unnest(p_acks) a join {schema}.jobs j on j.id = a.id
        where j.ordered is null and a."to" in ('ready', 'retrying', 'scheduled') order by a.n
    );
begin
    update {schema}.jobs j
    set state = a."to",
        attempt = j.attempt - a.refund::integer,
        parked = j.parked or a.park,
        due = case when a."to" <> 'ready' then coalesce(a.due, p_now + a.delay) end,
        seq = coalesce(a.seq, j.seq),
        worker = null, turn = null, started = null
    from (
        select u.*, case when u."to" = 'ready' then nextval('{schema}.seq') end as seq
        from (select x.* from unnest(p_acks) x where x.id = any(v_back) order by x.n) u
    ) a
    where j.id = a.id;
    delete from {schema}.holds where job = any(v_back);
end
$$;
