-- Flows: the end of a parent resolves its edges; a join ends with its members; promotions do the rest in slices.
--
-- One mechanism serves ordinary children and joins. An edge joins a parent to a child that is blocked, and deps of the
-- child counts its edges. The end of the parent deletes the edge in the same transaction. The edge from a member to its
-- join is such an edge, and the join counts in joins how the member ended. A join whose last edge is deleted ends in the
-- same step, and is then a parent that has ended itself. An open join has an edge to itself.
--
-- Locks. The rows of all jobs that the ends may reach are locked first, in the order of their ids (lock_dependents), so that
-- transactions that resolve nested joins do not wait for each other in a circle. What is reached in spite of that, because
-- an edge was added meanwhile, is locked level by level; such a deadlock is found by the server, and the call is repeated.

-- edge_effect: what this end of a parent does to an edge: null if the child waits for one edge less, the reason for which
-- the child is cancelled, or {EDGE_STAYS}. p_dead: the parent is a join with a dead member.
create function {schema}.edge_effect_v1(p_policy text, p_how text, p_dead boolean) returns text language sql immutable as $$
    select case
        when p_how in ({FIRST_DEATH}, {UNHELD}) or p_policy in ({EDGE_MEMBER}, {EDGE_IGNORE}) then null
        when p_policy = {EDGE_DEAD} then case when not p_dead and p_how <> {DEAD} then {BYPASSED} end
        when p_policy = {EDGE_FAILED} then case when p_how in ({SUCCEEDED}, {BYPASSED}) then {BYPASSED} end
        when p_how in ({SUCCEEDED}, {BYPASSED}) then null
        when p_policy = {EDGE_WAIT} and p_how = {DEAD} then {EDGE_STAYS}
        when p_policy = {EDGE_SKIP} then {BYPASSED}
        else {PARENT}
    end
$$;

-- find_met_edges: the edges that these ends resolve. Of a join {CHILDREN_AT_ONCE} edges, or p_slice edges of any parent.
-- A join that ended badly counts as dead if it has a dead member.
create function {schema}.find_met_edges_v1(p_ends {schema}.parent_end_v1[], p_slice integer) returns {schema}.met_edge_v1[]
language plpgsql as $$
begin
    return array(
        select row(
            x.id, e.child, f.effect, case when e.policy = {EDGE_MEMBER} then
                case when o.dead and x.how = {CANCELLED} then {DEAD} else x.how end end
        )::{schema}.met_edge_v1
        from unnest(p_ends) x
        left join lateral (select j.dead > 0 as dead from {schema}.joins j where j.id = any(array[x.id])) o on true
        cross join lateral (
            select e.child, e.policy from {schema}.edges e
            where e.parent = any(array[x.id]) and case x.how
                when {FIRST_DEATH} then e.policy = {EDGE_DEAD} when {UNHELD} then e.policy = {EDGE_HOLD} else true end
            limit coalesce(p_slice, case when o.dead is not null then {CHILDREN_AT_ONCE} end)
        ) e
        cross join lateral (select {schema}.edge_effect_v1(e.policy, x.how, coalesce(o.dead, false)) as effect) f
        where f.effect is distinct from {EDGE_STAYS}
    );
end
$$;

-- lock_dependents: lock the children of these edges and what may end with them, in the order of ids. A child that is
-- cancelled ends its own children in turn. A join reaches the joins that it is a member of; and all of its children if it
-- may end now, with p_ends ends at once and some others that come first.
create function {schema}.lock_dependents_v1(p_edges {schema}.met_edge_v1[], p_ends integer) returns void language plpgsql as $$
declare
    v_ids bytea[];
begin
    with recursive reached(id, how, bad) as (
        select x.child, case x.effect when {PARENT} then {CANCELLED} else x.effect end,
            coalesce(x.counted in ({DEAD}, {CANCELLED}), false)
        from unnest(p_edges) x
        union
        select e.child, nullif(case f.effect when {PARENT} then {CANCELLED} else f.effect end, {EDGE_STAYS}),
            coalesce(h.how = {CANCELLED} or r.bad, false)
        from reached r
        left join lateral (
            select o.dead > 0 as dead, case when j.deps <= p_ends + {NEAR_END} then
                case when o.lenient or not r.bad and o.dead + o.cancelled = 0 then {SUCCEEDED} else {CANCELLED} end end as how
            from {schema}.joins o join {schema}.jobs j on j.id = any(array[o.id])
            where r.how is null and o.id = any(array[r.id])
        ) o on true
        cross join lateral (select coalesce(r.how, o.how) as how) h
        cross join lateral (
            select e.child, e.policy from {schema}.edges e
            where e.parent = any(array[r.id])
                and (h.how is not null or e.policy = {EDGE_MEMBER} or r.bad and e.policy = {EDGE_DEAD})
            limit {CHILDREN_AT_ONCE}
        ) e
        cross join lateral (select {schema}.edge_effect_v1(e.policy, h.how, coalesce(o.dead or r.bad, false)) as effect) f
    )
    select array_agg(distinct r.id) into v_ids from reached r;
    perform 1 from {schema}.jobs j where j.id = any(v_ids) order by j.id for update;
end
$$;

-- resolve_dependents: parents have ended: unblock each child, or end it and then resolve its own children, level by level.
-- p_slice: how many edges of each parent at most. returns the queues in which a job became ready
create function {schema}.resolve_dependents_v1(p_ends {schema}.parent_end_v1[], p_slice integer, p_now bigint) returns text[]
language plpgsql as $$
declare
    v_now bigint := p_now;
    v_ends {schema}.parent_end_v1[] := p_ends;
    v_slice integer := p_slice;
    v_edges {schema}.met_edge_v1[];
    v_met {schema}.met_v1;
    v_moved {schema}.moved_v1;
    v_woken text[] := '{}';
begin
    loop
        exit when not exists (
            select 1 from {schema}.edges e where e.parent = any(array(select x.id from unnest(v_ends) x))
        );
        v_edges := {schema}.find_met_edges_v1(v_ends, v_slice);
        exit when cardinality(v_edges) = 0;
        perform {schema}.lock_dependents_v1(v_edges, cardinality(v_ends));
        -- A new statement: it sees what the last transaction wrote that locked these rows. Two acks of parents of one
        -- child get here one after the other.
        v_met := {schema}.meet_edges_v1(v_edges, v_now);
        v_woken := v_woken || v_met.woken;
        if cardinality(v_edges) >= coalesce(v_slice, {CHILDREN_AT_ONCE}) then
            perform {schema}.note_unreleased_v1(v_ends, v_now);
        end if;
        exit when cardinality(v_met.endings) + cardinality(v_met.first_deaths) = 0;
        if cardinality(v_met.endings) > 0 then
            -- Another transaction may have read the clock later and ended its member first, while this one waited for it.
            select greatest(v_now, max(o.last_end)) into v_now
            from {schema}.joins o where o.id = any(v_met.counted);
            v_moved := {schema}.move_to_history_v1(v_met.endings, v_met.counted, v_now);
            v_woken := v_woken || v_moved.woken;
        end if;
        v_slice := null;
        v_ends := array(
            select row(x.id, case when x.reason = {BYPASSED} then x.reason else x.state end)::{schema}.parent_end_v1
            from unnest(v_met.endings) x
            union all
            select row(u.id, {FIRST_DEATH})::{schema}.parent_end_v1 from unnest(v_met.first_deaths) as u(id)
        );
    end loop;
    return v_woken;
end
$$;

-- meet_edges: delete these edges, whose children are locked: each child waits for that many edges less, or ends. A join
-- counts its members, and ends with its last edge.
create function {schema}.meet_edges_v1(p_edges {schema}.met_edge_v1[], p_now bigint) returns {schema}.met_v1 language plpgsql as $$
declare
    v_met {schema}.met_v1;
    v_limited bytea[];
begin
    with gone as (
        delete from {schema}.edges e using unnest(p_edges) x
        where e.parent = any(array[x.parent]) and e.child = any(array[x.child])
        returning e.child, x.effect, x.counted
    ), tally as (
        select g.child, count(*)::integer as n, max(g.effect) as reason, count(g.counted) as members,
            count(*) filter (where g.counted = {SUCCEEDED}) as succeeded, count(*) filter (where g.counted = {DEAD}) as dead,
            count(*) filter (where g.counted = {CANCELLED}) as cancelled,
            count(*) filter (where g.counted = {BYPASSED}) as bypassed
        from gone g group by g.child
    ), judged as materialized (
        select t.*, o.dead = 0 and t.dead > 0 as first_death, case
                when t.reason is not null then {CANCELLED}
                when o.id is null or j.deps > t.n then null
                when o.lenient or o.dead + o.cancelled + t.dead + t.cancelled = 0 then {SUCCEEDED}
                else {CANCELLED} end as final
        from tally t join {schema}.jobs j on j.id = any(array[t.child])
        left join lateral (
            select x.* from {schema}.joins x where j.followed & {IS_JOIN} > 0 and x.id = any(array[j.id])
        ) o on true
    ), placed as materialized (
        select t.child, t.n, nextval('{schema}.seq') as seq
        from (select * from judged where final is null order by child) t
    ), freed as (
        update {schema}.jobs j
        set deps = j.deps - t.n,
            state = case when j.deps > t.n then {BLOCKED} when j.due > p_now then {SCHEDULED} else {READY} end,
            due = case when j.deps > t.n or j.due > p_now then j.due end,
            seq = case when j.deps > t.n or j.due > p_now then j.seq when j.seq < 0 then -t.seq else t.seq end
        from placed t
        where j.id = any(array[t.child])
        returning j.id, j.queue, j.state, j.buckets
    ), counted as (
        update {schema}.joins o
        set succeeded = o.succeeded + t.succeeded, dead = o.dead + t.dead, cancelled = o.cancelled + t.cancelled,
            bypassed = o.bypassed + t.bypassed, last_end = greatest(o.last_end, p_now)
        from judged t where t.members > 0 and o.id = any(array[t.child])
    )
    select array(
            select row(
                t.child, t.final, case when t.final = {CANCELLED} then coalesce(t.reason, {PARENT}) end, null, null, null, null, 0,
                null
            )::{schema}.ending_v1
            from judged t where t.final is not null
        ), array(select t.child from judged t where t.final is not null and t.reason is null),
        array(select t.child from judged t where t.final is null and t.first_death),
        array(select distinct f.queue from freed f where f.state = {READY}),
        array(select f.id from freed f where f.state = {READY} and f.buckets is not null)
    into v_met.endings, v_met.counted, v_met.first_deaths, v_met.woken, v_limited;
    if cardinality(v_limited) > 0 then
        perform {schema}.add_lane_rows_v1(v_limited, false);
    end if;
    return v_met;
end
$$;

-- note_unreleased: leave the children of these ended joins that still have an edge to promotions.
create function {schema}.note_unreleased_v1(p_ends {schema}.parent_end_v1[], p_now bigint) returns void language plpgsql as $$
begin
    insert into {schema}.flow_work (id, work, how, at)
    select x.id, {RELEASE_CHILDREN}, x.how, p_now
    from unnest(p_ends) x join {schema}.joins o on o.id = any(array[x.id])
    where x.how in ({SUCCEEDED}, {CANCELLED}, {BYPASSED})
        and exists (select 1 from {schema}.edges e where e.parent = any(array[x.id]))
    on conflict do nothing;
end
$$;

-- flow_mark: the mark of the jobs of a flow.
create function {schema}.flow_mark_v1(p_root bytea) returns text language sql immutable as $$
    select '%' || encode(p_root, 'hex')
$$;

-- end_joins: these joins have ended. If one of them is the root of a flow, and has not ended by its members (p_counted),
-- then its flow ends.
create function {schema}.end_joins_v1(p_joins bytea[], p_counted bytea[], p_now bigint) returns void language plpgsql as $$
begin
    update {schema}.joins o set open = false where o.id = any(p_joins) and o.open;
    perform {schema}.end_flows_v1(array(select u.id from unnest(p_joins) as u(id) where u.id <> all(p_counted)), {CANCEL_FLOW}, p_now);
end
$$;

-- end_flows: leave the jobs of the flows of these roots to promotions, which cancel or delete them.
create function {schema}.end_flows_v1(p_roots bytea[], p_work text, p_now bigint) returns void language plpgsql as $$
begin
    insert into {schema}.flow_work (id, work, at)
    select u.id, p_work, p_now from unnest(p_roots) as u(id)
    where exists (select 1 from {schema}.marks m where m.mark = any(array[{schema}.flow_mark_v1(u.id)]))
    on conflict do nothing;
end
$$;

-- add_edges: store what the new jobs of p_take wait for, then end those that an ended parent cancels. A new join also waits
-- for itself, until it is released. returns the queues in which a job became ready
create function {schema}.add_edges_v1(
    p_id bytea[], p_take boolean[], p_waits {schema}.waits_v1, p_join_at integer[], p_open boolean[], p_lenient boolean[],
    p_before_at integer[], p_before bytea[], p_now bigint
) returns text[] language plpgsql as $$
begin
    insert into {schema}.edges (parent, child, policy)
    select e.parent, p_id[e.at], e.policy
    from unnest(p_waits.edge_at, p_waits.edge_parent, p_waits.edge_policy) as e(at, parent, policy) where p_take[e.at];
    if cardinality(p_join_at) > 0 then
        insert into {schema}.joins as o (id, open, lenient)
        select p_id[u.at], u.open, u.lenient from unnest(p_join_at, p_open, p_lenient) as u(at, open, lenient) where p_take[u.at]
        on conflict (id) do update set open = excluded.open, lenient = excluded.lenient, total = 0, succeeded = 0, dead = 0,
            cancelled = 0, bypassed = 0, last_end = 0;
        insert into {schema}.edges (parent, child, policy)
        select p_id[u.at], p_id[u.at], {EDGE_HOLD} from unnest(p_join_at) as u(at) where p_take[u.at];
    end if;
    if cardinality(p_before_at) > 0 then
        perform {schema}.add_before_v1(p_id, p_take, p_before_at, p_before);
    end if;
    if cardinality(p_waits.broken) + cardinality(p_waits.bypassed) = 0 then
        return '{}';
    end if;
    return {schema}.cancel_waiting_v1(p_waits.broken, {PARENT}, null, p_now)
        || {schema}.cancel_waiting_v1(p_waits.bypassed, {BYPASSED}, null, p_now);
end
$$;

-- add_before: the jobs p_before, which are locked or new, wait for one more new job of p_take each; a join has one more
-- member.
create function {schema}.add_before_v1(p_id bytea[], p_take boolean[], p_before_at integer[], p_before bytea[]) returns void
language plpgsql as $$
begin
    with made as (
        insert into {schema}.edges (parent, child, policy)
        select p_id[b.at], b.child, case when o.id is not null then {EDGE_MEMBER} else {EDGE_FAIL} end
        from unnest(p_before_at, p_before) as b(at, child)
        left join lateral (select x.id from {schema}.joins x where x.id = any(array[b.child])) o on true
        where p_take[b.at]
        on conflict do nothing
        returning child
    ), tally as (
        select m.child, count(*)::integer as n from made m group by m.child
    ), waiting as (
        update {schema}.jobs j set deps = j.deps + t.n from tally t where j.id = any(array[t.child])
    )
    update {schema}.joins o set total = o.total + t.n from tally t where o.id = any(array[t.child]);
end
$$;

-- lock_before: lock the jobs that are to wait for new jobs of p_take as well, except those that are new themselves. Each of
-- them must be blocked, and a join must be open or the batch accepted.
create function {schema}.lock_before_v1(
    p_take boolean[], p_before_at integer[], p_before bytea[], p_before_in integer[], p_accepted boolean
) returns void language plpgsql as $$
declare
    v_before bytea[] := array(
        select distinct b.id from unnest(p_before_at, p_before, p_before_in) as b(at, id, inside)
        where p_take[b.at] and not coalesce(p_take[b.inside], false)
    );
    v_closed bytea;
begin
    if cardinality(v_before) = 0 then
        return;
    end if;
    perform 1 from {schema}.jobs j where j.id = any(v_before) order by j.id for update;
    select b.id into v_closed from unnest(v_before) as b(id)
    where not exists (
        select 1 from {schema}.jobs j left join {schema}.joins o on o.id = any(array[j.id])
        where j.id = any(array[b.id]) and j.state || '' = {BLOCKED} and (o.id is null or o.open or p_accepted)
    )
    limit 1;
    if v_closed is not null then
        raise exception '%', encode(v_closed, 'hex') using errcode = {ERROR_FLOW_CLOSED};
    end if;
end
$$;

-- release: these jobs wait for themselves no longer. returns the queues in which a job became ready
create function {schema}.release_v1(p_ids bytea[], p_now bigint) returns text[] language plpgsql as $$
begin
    return {schema}.resolve_dependents_v1(
        array(select row(u.id, {UNHELD})::{schema}.parent_end_v1 from unnest(p_ids) as u(id)), null, p_now
    );
end
$$;

-- release_new: new joins that are not open end with their members from now on.
create function {schema}.release_new_v1(p_id bytea[], p_take boolean[], p_join_at integer[], p_open boolean[], p_now bigint)
returns text[] language plpgsql as $$
begin
    return {schema}.release_v1(
        array(select p_id[u.at] from unnest(p_join_at, p_open) as u(at, open) where p_take[u.at] and not u.open), p_now
    );
end
$$;

-- close_join: a join takes no member from outside any more, and ends with its last member: now, if all have ended.
-- returns the join, and the queues in which a job became ready
create function {schema}.close_join_v1(p_join bytea, p_now bigint) returns table (
    id bytea, open boolean, total bigint, succeeded bigint, dead bigint, cancelled bigint, bypassed bigint, woken text[]
)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off as $$
#variable_conflict use_column
declare
    v_now bigint;
    v_woken text[] := '{}';
begin
    perform {schema}.guard_v1();
    perform {schema}.lock_dependents_v1(array[row(null, p_join, null, null)::{schema}.met_edge_v1], 1);
    v_now := {schema}.now_v1(p_now);
    perform {schema}.follow_clock_v1(v_now);
    update {schema}.joins o set open = false where o.id = p_join and o.open;
    if found then
        v_woken := {schema}.release_v1(array[p_join], v_now);
    end if;
    return query
    select o.id, o.open, o.total, o.succeeded, o.dead, o.cancelled, o.bypassed, v_woken from {schema}.joins o where o.id = p_join;
end
$$;

-- retry_flow: dead, cancelled -> blocked | ready in a new epoch, with these edges. Locks in this order: keys, flow work, job
-- rows by id, dependents. returns rows of several kinds, as act does
create function {schema}.retry_flow_v1(
    p_ids bytea[], p_child_at integer[], p_parent bytea[], p_policy text[], p_before_at integer[], p_before bytea[], p_now bigint
) returns table (kind text, id bytea, note text, holder bytea)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off as $$
#variable_conflict use_column
declare
    v_now bigint;
    v_found {schema}.ended_v1[];
    v_able bytea[];
    v_row record;
    v_woken text[];
begin
    perform {schema}.guard_v1();
    v_woken := {schema}.lock_keys_of_v1(p_ids, true, p_now);
    perform 1 from {schema}.flow_work w where w.id = any(p_ids) order by w.id for update;
    perform 1 from {schema}.jobs j where j.id = any(p_ids || p_before) order by j.id for update;
    perform {schema}.lock_jobs_v1(p_ids);
    v_now := {schema}.now_v1(p_now);
    perform {schema}.follow_clock_v1(v_now);
    v_found := {schema}.find_matching_v1(p_ids, '{}', '{}', '{}', '{}', '{}', '{}', null, null, null);
    return query
    select 'refused', x.id, x.state, null::bytea from unnest(v_found) x where x.state not in ({DEAD}, {CANCELLED});
    v_able := array(select x.id from unnest(v_found) x where x.state in ({DEAD}, {CANCELLED}));
    for v_row in select * from {schema}.retake_keys_v1(v_able, v_now) loop
        return query select 'held', v_row.id, null::text, v_row.holder;
        v_able := array_remove(v_able, v_row.id);
    end loop;
    perform {schema}.revive_v1(v_able, true);
    v_woken := v_woken || {schema}.place_retried_v1(
        p_ids, {schema}.mark_members_v1(p_ids, v_able), v_able, p_child_at, p_parent, p_policy, p_before_at, p_before, v_now
    );
    return query select 'done', u.id, null::text, null::bytea from unnest(v_able) as u(id);
    return query select distinct 'woken', null::bytea, w.queue, null::bytea from unnest(v_woken) as w(queue);
end
$$;

-- place_retried: give the revived jobs (p_take by position, p_revived) their edges, and let them go. A join forgets the
-- members that ended badly. returns the queues in which a job became ready
create function {schema}.place_retried_v1(
    p_id bytea[], p_take boolean[], p_revived bytea[], p_child_at integer[], p_parent bytea[], p_policy text[],
    p_before_at integer[], p_before bytea[], p_now bigint
) returns text[] language plpgsql as $$
declare
    v_waits {schema}.waits_v1 := {schema}.wait_for_parents_v1(
        p_id, p_take, p_child_at, p_parent, '{}', p_policy, '{}'
    );
    v_before_at integer[];
    v_before bytea[];
begin
    delete from {schema}.flow_work w where w.id = any(p_revived);
    update {schema}.joins o set total = o.succeeded + o.bypassed, dead = 0, cancelled = 0, open = false, pruning = false
    where o.id = any(p_revived);
    insert into {schema}.edges (parent, child, policy) select u.id, u.id, {EDGE_HOLD} from unnest(p_revived) as u(id);
    update {schema}.jobs j set deps = j.deps + e.n
    from (
        select p_id[u.at] as child, count(*)::integer as n from unnest(v_waits.edge_at) as u(at) where p_take[u.at] group by 1
    ) e
    where j.id = any(array[e.child]);
    select coalesce(array_agg(b.at), '{}'), coalesce(array_agg(b.child), '{}') into v_before_at, v_before
    from unnest(p_before_at, p_before) as b(at, child)
    join {schema}.jobs j on j.id = any(array[b.child]) and j.state || '' = {BLOCKED};
    return {schema}.add_edges_v1(p_id, p_take, v_waits, '{}', '{}', '{}', v_before_at, v_before, p_now)
        || {schema}.release_v1(p_revived, p_now);
end
$$;

-- advance_flows: one step of what is to be done for a flow, of up to p_limit jobs. It waits for no row of these jobs.
-- returns the queues in which a job became ready
create function {schema}.advance_flows_v1(p_limit integer, p_now bigint) returns text[] language plpgsql as $$
declare
    v_work {schema}.flow_work;
    v_woken text[];
begin
    select w.* into v_work from {schema}.flow_work w where w.at <= p_now order by w.at, w.id limit 1 for update skip locked;
    if v_work.id is null then
        return '{}';
    elsif v_work.work <> {RELEASE_CHILDREN} then
        return {schema}.sweep_flow_v1(v_work, p_limit, p_now);
    end if;
    v_woken := {schema}.resolve_dependents_v1(
        array[row(v_work.id, v_work.how)::{schema}.parent_end_v1], p_limit, p_now
    );
    if not exists (select 1 from {schema}.edges e where e.parent = v_work.id) then
        delete from {schema}.flow_work w where w.id = v_work.id and w.work = v_work.work;
    end if;
    return v_woken;
end
$$;

-- sweep_flow: look at the next p_limit jobs of a flow whose root ended or was deleted: cancel live jobs, order running jobs
-- to stop, and delete ended jobs if the root was deleted. A pass that has found a job is followed by another one, because a
-- job may have been locked, or inserted behind it. returns the queues in which a job became ready
create function {schema}.sweep_flow_v1(p_work {schema}.flow_work, p_limit integer, p_now bigint) returns text[]
language plpgsql as $$
declare
    v_jobs bytea[] := array(
        select m.job from {schema}.marks m
        where m.mark = {schema}.flow_mark_v1(p_work.id) and m.job > p_work.after order by m.job limit p_limit
    );
    v_live bytea[];
    v_ended bytea[] := '{}';
    v_found boolean;
    v_woken text[] := '{}';
begin
    if p_work.work = {DELETE_FLOW} then
        v_ended := {schema}.find_ended_v1(v_jobs);
        v_woken := {schema}.delete_ended_v1(v_ended, p_now);
    end if;
    v_live := array(
        select j.id from {schema}.jobs j where j.id = any(v_jobs) and (j.state || '' <> {RUNNING} or j.ordered is null)
    );
    v_found := p_work.found or cardinality(v_live) + cardinality(v_ended) > 0;
    v_live := array(select j.id from {schema}.jobs j where j.id = any(v_live) order by j.id for update skip locked);
    update {schema}.jobs j set ordered = coalesce(j.ordered, '') where j.id = any(v_live) and j.state || '' = {RUNNING};
    v_woken := v_woken || {schema}.cancel_waiting_v1(v_live, {PARENT}, null, p_now);
    if cardinality(v_jobs) = p_limit then
        update {schema}.flow_work w set after = v_jobs[p_limit], found = v_found
        where w.id = p_work.id and w.work = p_work.work;
    elsif v_found then
        update {schema}.flow_work w set after = '', found = false where w.id = p_work.id and w.work = p_work.work;
    elsif p_work.work = {DELETE_FLOW}
        and exists (select 1 from {schema}.marks m where m.mark = {schema}.flow_mark_v1(p_work.id)) then
        -- Running jobs have an order.
        update {schema}.flow_work w set after = '', found = false, at = p_now + {SECOND}
        where w.id = p_work.id and w.work = p_work.work;
    else
        delete from {schema}.flow_work w where w.id = p_work.id and w.work = p_work.work;
    end if;
    return v_woken;
end
$$;

-- delete_ended: delete those of these ended jobs that no other transaction has locked.
create function {schema}.delete_ended_v1(p_ids bytea[], p_now bigint) returns text[] language plpgsql as $$
declare
    v_locked bytea[];
begin
    if cardinality(p_ids) = 0 then
        return '{}';
    end if;
    perform {schema}.lock_keys_of_v1(p_ids, false, p_now);
    v_locked := array(select f.id from {schema}.finished f where f.id = any(p_ids) for update skip locked);
    v_locked := v_locked || array(select d.id from {schema}.dead d where d.id = any(p_ids) for update skip locked);
    return {schema}.delete_v1(v_locked, p_now);
end
$$;

-- is_flow_live: whether a job of the flow of this root is live. Not asked again once the flow is being deleted.
create function {schema}.is_flow_live_v1(p_root bytea) returns boolean language plpgsql as $$
begin
    if exists (select 1 from {schema}.joins o where o.id = any(array[p_root]) and o.pruning) then
        return false;
    end if;
    return exists (
        select 1 from {schema}.marks m
        join {schema}.jobs j on j.id = any(array[m.job])
        where m.mark = {schema}.flow_mark_v1(p_root)
    );
end
$$;

-- list_flow_jobs: up to p_limit jobs of the flows of these roots, without the roots and without jobs that hold their unique
-- key by its window.
create function {schema}.list_flow_jobs_v1(p_roots bytea[], p_limit integer, p_now bigint) returns bytea[]
language plpgsql as $$
begin
    return array(
        select m.job from unnest(p_roots) as u(id) cross join lateral (
            select m.job from {schema}.marks m
            where m.mark = {schema}.flow_mark_v1(u.id) and m.job <> u.id and not exists (
                select 1 from {schema}.keys k cross join lateral (
                    select f.state, f.started, f.finished from {schema}.finished f where f.id = any(array[k.job])
                    union all
                    select d.state, d.started, d.finished from {schema}.dead d where d.id = any(array[k.job])
                ) e
                where k.job = any(array[m.job]) and {schema}.key_until_v1(k, e.state, e.started, e.finished) > p_now
            )
            order by m.job limit p_limit
        ) m limit p_limit
    );
end
$$;

-- list_kept_roots: those of these roots that are kept, because their flows still have jobs.
create function {schema}.list_kept_roots_v1(p_roots bytea[]) returns bytea[] language plpgsql as $$
begin
    return array(
        select u.id from unnest(p_roots) as u(id)
        where exists (select 1 from {schema}.marks m where m.mark = {schema}.flow_mark_v1(u.id) and m.job <> u.id)
    );
end
$$;
