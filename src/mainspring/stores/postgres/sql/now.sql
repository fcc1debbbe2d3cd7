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
