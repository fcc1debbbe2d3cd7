-- parts: jobs that wait until others have succeeded since their part was started last
-- Whoever notes, releases or links has locked the rows of the parts concerned, by name and after everything else: for a job
-- that it releases it waits a moment at most, so nobody stands behind whoever holds that. To end a job that waits, or to
-- insert one, nobody needs a part; what was inserted is looked at in the last step of its enqueue (see obey).

-- waiting_for: those of these parts that wait for others. What comes of it is decided later, when they are locked
create function {schema}.waiting_for_v1(p_names text[]) returns text[] language plpgsql as $$
begin
    return array(select p.name from {schema}.parts p where p.name = any(p_names));
end
$$;

-- lock_parts: hold those of these parts that wait for others
create function {schema}.lock_parts_v1(p_names text[]) returns text[] language plpgsql as $$
begin
    return array(select p.name from {schema}.parts p where p.name = any(p_names) order by p.name for update);
end
$$;

-- unhold: these jobs, which the caller has locked, wait for parts no more; those in p_new keep their place among the ready
-- returns the queues in which one became ready
create function {schema}.unhold_v1(p_ids bytea[], p_new bytea[], p_now bigint) returns text[] language plpgsql as $$
declare
    v_woken text[];
    v_limited bytea[];
begin
    with placed as materialized (
        select o.id, nextval('{schema}.seq') as seq
        from (select j.id from {schema}.jobs j where j.id = any(p_ids) and j.held is not null order by j.held) o
    ), freed as (
        update {schema}.jobs j
        set line = null, held = null, deps = j.deps - 1,
            state = case when j.deps > 1 then 'blocked' when j.due > p_now then 'scheduled' else 'ready' end,
            due = case when j.deps > 1 or j.due > p_now then j.due end,
            seq = case when j.deps > 1 or j.due > p_now or j.id = any(p_new) then j.seq when j.seq < 0 then -u.seq else u.seq end
        from placed u
        where j.id = any(array[u.id])
        returning j.id, j.queue, j.state, j.buckets
    )
    select coalesce(array_agg(distinct f.queue) filter (where f.state = 'ready'), '{}'),
        array_agg(f.id) filter (where f.state = 'ready' and f.buckets is not null)
    into v_woken, v_limited from freed f;
    if v_limited is not null then
        perform {schema}.line_up_v1(v_limited, false);
    end if;
    return v_woken;
end
$$;

-- first: the job that is the first in the line of a part, locked; null if there is none. If somebody else holds it for longer than a
-- moment (a caller's transaction that replaces it, say) the next promotion looks again
create function {schema}.first_v1(p_part text, p_now bigint) returns bytea language plpgsql as $$
declare
    c_moment constant text := '100ms';
    v_limit text := current_setting('lock_timeout');
    v_job bytea;
begin
    loop
        v_job := (
            select j.id from {schema}.jobs j
            where j.line = p_part and j.held is not null and (j.expires is null or j.expires > p_now)
            order by j.held limit 1
        );
        exit when v_job is null;
        perform 1 from {schema}.jobs j where j.id = v_job and j.held is not null for update skip locked;
        exit when found;
        begin
            perform set_config('lock_timeout', c_moment, true);
            perform 1 from {schema}.jobs j where j.id = v_job for update;
            perform set_config('lock_timeout', v_limit, true);
        exception when lock_not_available then
            insert into {schema}.part_news (part) values (p_part);
            return null;
        end;
    end loop;
    return v_job;
end
$$;

-- let: of each of these parts, whose rows the caller has locked, the first that waits is released if all is noted
create function {schema}.let_v1(p_parts text[], p_new bytea[], p_now bigint) returns text[] language plpgsql as $$
declare
    v_part text;
    v_job bytea;
    v_woken text[] := '{}';
begin
    foreach v_part in array p_parts loop
        continue when exists (select 1 from {schema}.part_links l where l.part = v_part and not l.noted);
        v_job := {schema}.first_v1(v_part, p_now);
        if v_job is not null then
            v_woken := v_woken || {schema}.unhold_v1(array[v_job], p_new, p_now);
            perform {schema}.begin_v1(v_part, v_job);
        end if;
    end loop;
    return v_woken;
end
$$;

-- begin: this job is the one of its part that was released last, and the notes are taken away
create function {schema}.begin_v1(p_part text, p_job bytea) returns void language plpgsql as $$
begin
    update {schema}.parts p
    set released = p_job, token = (select j.token from {schema}.jobs j where j.id = any(array[p_job])) where p.name = p_part;
    update {schema}.part_links l set noted = false where l.part = p_part and l.noted;
end
$$;

-- note_success: jobs of these parts have succeeded, which is noted for those that wait for them; but not if the job that was
-- released last is still to be started, for that will see it. returns the queues in which a job became ready
create function {schema}.note_success_v1(p_names text[], p_now bigint) returns text[] language plpgsql as $$
declare
    v_parts text[] := {schema}.lock_parts_v1(array(select l.part from {schema}.part_links l where l.after = any(p_names)));
begin
    if cardinality(v_parts) = 0 then
        return '{}';
    end if;
    update {schema}.part_links l set noted = true
    where l.part = any(v_parts) and l.after = any(p_names) and not l.noted and not exists (
        select 1 from {schema}.parts p join {schema}.jobs j on j.id = any(array[p.released])
        where p.name = l.part and j.token = p.token and (j.expires is null or j.expires > p_now)
    );
    return {schema}.let_v1(v_parts, '{}', p_now);
end
$$;

-- obey: the last step of an enqueue, for the parts of its new jobs: the first in line is released if all is noted; or those
-- that need not wait are the ones that were released last. p_open: a caller's transaction, which may stay open for long,
-- locks nothing: what it has made is looked at after its commit, by the next promotion
create function {schema}.obey_v1(
    p_parts text[], p_ids bytea[], p_forced boolean, p_open boolean, p_now bigint
) returns text[] language plpgsql as $$
declare
    v_parts text[];
begin
    if p_open then
        insert into {schema}.part_news (part) select u.name from unnest(p_parts) as u(name);
        return '{}';
    end if;
    v_parts := {schema}.lock_parts_v1(p_parts);
    if not p_forced then
        return {schema}.let_v1(v_parts, p_ids, p_now) || {schema}.free_all_v1(p_parts, v_parts, p_ids, p_now);
    end if;
    perform {schema}.begin_v1(f.part, f.id) from (
        select distinct on (j.part) j.part, j.id from unnest(p_ids) with ordinality as u(id, n)
        join {schema}.jobs j on j.id = any(array[u.id]) where j.part = any(v_parts) order by j.part, u.n desc
    ) f;
    return '{}';
end
$$;

-- join_parts: of these jobs, which their acks have made ready, those that were handed back with a part, and are of none, are
-- of it from now on, and wait if it waits for others: in the order in which they were enqueued. See obey_joined
create function {schema}.join_parts_v1(p_acks {schema}.ack_v1[], p_ids bytea[]) returns void language plpgsql as $$
declare
    v_waiting text[] := {schema}.waiting_for_v1(array(select distinct a.part from unnest(p_acks) a where a.part is not null));
begin
    with joined as (
        update {schema}.jobs j
        set part = a.part, line = w.name, held = case when w.name is not null then abs(j.seq) end,
            deps = j.deps + (w.name is not null)::integer, state = case when w.name is null then 'ready' else 'blocked' end
        from unnest(p_acks) a left join unnest(v_waiting) as w(name) on w.name = a.part
        where a.part is not null and a."to" = 'ready' and a.id = any(p_ids) and j.id = any(array[a.id]) and j.part is null
        returning j.id, j.part
    )
    insert into {schema}.marks (mark, job) select '^@' || o.part, o.id from joined o on conflict do nothing;
end
$$;

-- obey_joined: the last step for jobs that were handed back with a part: the first in line is released if all is noted. Nobody
-- waits here: what others hold is left to the next promotion. returns queues
create function {schema}.obey_joined_v1(p_acks {schema}.ack_v1[], p_now bigint) returns text[] language plpgsql as $$
declare
    v_ids bytea[] := array(
        select j.id from unnest(p_acks) a join {schema}.jobs j on j.id = any(array[a.id])
        where a.part is not null and j.held is not null
    );
    v_lines text[] := array(select distinct j.line from {schema}.jobs j where j.id = any(v_ids));
    v_locked text[] := array(
        select p.name from {schema}.parts p where p.name = any(v_lines) order by p.name for update skip locked
    );
begin
    insert into {schema}.part_news (part) select u.name from unnest(v_lines) as u(name) where u.name <> all(v_locked);
    return {schema}.let_v1(v_locked, v_ids, p_now);
end
$$;

-- free_all: those that wait in the lines of these parts, but for the ones that wait for others, are released in their order in line. What
-- somebody else has in hand is left to the next promotion
create function {schema}.free_all_v1(p_names text[], p_linked text[], p_new bytea[], p_now bigint) returns text[]
language plpgsql as $$
declare
    v_names text[] := array(select u.name from unnest(p_names) as u(name) where u.name <> all(p_linked));
    v_woken text[] := '{}';
begin
    if cardinality(v_names) > 0 then
        v_woken := {schema}.unhold_v1(
            array(
                select j.id from {schema}.jobs j
                where j.held is not null and j.line = any(v_names) and (j.expires is null or j.expires > p_now)
                for update skip locked
            ), p_new, p_now
        );
        insert into {schema}.part_news (part)
        select distinct j.line from {schema}.jobs j
        where j.held is not null and j.line = any(v_names) and (j.expires is null or j.expires > p_now);
    end if;
    return v_woken;
end
$$;

-- hear_news: look at parts that got jobs by transactions of callers, which have committed since. returns queues
create function {schema}.hear_news_v1(p_limit integer, p_now bigint) returns text[] language plpgsql as $$
declare
    v_names text[];
    v_linked text[];
begin
    with heard as (
        delete from {schema}.part_news n
        where n.ctid = any(array(select o.ctid from {schema}.part_news o limit p_limit for update skip locked))
        returning n.part
    )
    select array(select distinct h.part from heard h) into v_names;
    v_linked := {schema}.lock_parts_v1(v_names);
    return {schema}.let_v1(v_linked, '{}', p_now) || {schema}.free_all_v1(v_names, v_linked, '{}', p_now);
end
$$;

-- link: what these parts wait for from now on: p_part and p_after side by side, nobody for the others in p_names
-- Those who link go one by one, so two who make the same part do not meet. returns the queues in which a job became ready
create function {schema}.link_v1(p_names text[], p_part text[], p_after text[], p_now bigint) returns text[]
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    v_now bigint;
begin
    perform {schema}.guard_v1();
    perform pg_advisory_xact_lock(hashtextextended('mainspring links {schema}', 0));
    perform {schema}.lock_parts_v1(p_names);
    v_now := {schema}.now_v1(p_now);
    insert into {schema}.parts (name) select distinct u.name from unnest(p_part) as u(name) on conflict (name) do nothing;
    delete from {schema}.part_links l where l.part = any(p_names) and not exists (
        select 1 from unnest(p_part, p_after) as u(part, after) where u.part = l.part and u.after = l.after
    );
    insert into {schema}.part_links (part, after)
    select distinct u.part, u.after from unnest(p_part, p_after) as u(part, after) on conflict (part, after) do nothing;
    delete from {schema}.parts p where p.name = any(p_names) and p.name <> all(p_part);
    return {schema}.free_all_v1(p_names, p_part, '{}', v_now)
        || {schema}.let_v1(array(select distinct u.name from unnest(p_part) as u(name)), '{}', v_now);
end
$$;
