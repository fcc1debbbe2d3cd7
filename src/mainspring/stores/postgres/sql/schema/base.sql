-- What everything else needs: the order of ready jobs, the identity of the schema, the clock, the isolation level.

create sequence {schema}.seq;

-- clock: the time that a promotion noted last (see limits/clock.sql)
create table {schema}.meta (id uuid not null, clock bigint not null default 0);
insert into {schema}.meta (id) values (gen_random_uuid());

-- now: the clock of the store in microseconds, or the clock of a test.
-- clock_timestamp, not now(): now() does not move while the transaction waits for a lock.
create function {schema}.now_v1(p_now bigint) returns bigint language sql volatile as $$
    select coalesce(p_now, (extract(epoch from clock_timestamp()) * {SECOND})::bigint)
$$;

-- order_key: the place of a ready job among all ready jobs; see order_key() in mainspring/jobs/records.py.
create function {schema}.order_key_v1(p_seq bigint, p_priority integer) returns bigint language sql immutable as $$
    select p_seq - p_priority * {PRIORITY_STEP}
$$;

-- follow_clock: move the sequence to the time, if it is behind by more than {SEQ_BEHIND} microseconds: seq is the time at
-- which a job becomes ready, made unique. One session at a time does this, so the sequence never goes back. The lock is
-- released in the same statement: a caller's transaction may stay open for long, and the others need the time meanwhile.
create function {schema}.follow_clock_v1(p_now bigint) returns void language plpgsql as $$
declare
    v_lock bigint;
begin
    if coalesce(pg_sequence_last_value('{schema}.seq'::regclass), 0) >= p_now - {SEQ_BEHIND} then
        return;
    end if;
    v_lock := hashtextextended('mainspring seq {schema}', 0);
    perform case when pg_try_advisory_lock(v_lock) then row(
        case when coalesce(pg_sequence_last_value('{schema}.seq'::regclass), 0) < p_now - {SEQ_BEHIND}
            then setval('{schema}.seq', p_now) end,
        pg_advisory_unlock(v_lock)
    ) end;
end
$$;

-- guard: refuse other isolation levels. Every function decides by statements with fresh snapshots; under another level
-- the snapshots would be old.
create function {schema}.guard_v1() returns void language plpgsql as $$
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'mainspring needs read committed, the transaction is %', current_setting('transaction_isolation')
            using errcode = {ERROR_REFUSED};
    end if;
end
$$;
