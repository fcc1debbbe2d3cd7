-- now: the store's clock in microseconds, or the test's
-- clock_timestamp, not now(): the latter stands still while the transaction waits for a lock
create function {schema}.now_v1(p_now bigint) returns bigint language sql volatile as $$
    select coalesce(p_now, (extract(epoch from clock_timestamp()) * 1000000)::bigint)
$$;

-- guard: every function decides by statements with fresh snapshots; under another isolation level it would decide by old ones
create function {schema}.guard_v1() returns void language plpgsql as $$
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'mainspring needs read committed, the transaction is %', current_setting('transaction_isolation')
            using errcode = 'MS001';
    end if;
end
$$;

-- lane_of: where a job stands: at home, as a suspect, parked
create function {schema}.lane_of_v1(p_home text, p_task text, p_crashes integer, p_limit integer, p_parked boolean)
returns text language sql immutable as $$
    select p_home || case when p_crashes > 0 and p_crashes >= p_limit - 1 then '!' else '' end
        || case when p_parked then '?' || p_task else '' end
$$;

-- modes_lock: held shared by whoever claims, alone by whoever changes what a queue does
create function {schema}.modes_lock_v1() returns bigint language sql immutable as $$
    select hashtextextended('mainspring modes {schema}', 0)
$$;
