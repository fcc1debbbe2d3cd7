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
