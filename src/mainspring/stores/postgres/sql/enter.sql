-- enter: hold the batches of several enqueue calls that are about to be inserted as one
-- Each is locked as enqueue locks its own, so a repeat of any of them waits. The keys are sorted: nobody waits crosswise.
create function {schema}.enter_v1(p_batch bytea[]) returns void language plpgsql as $$
begin
    perform pg_advisory_xact_lock(k.key) from (
        select hashtextextended('{schema}' || encode(u.batch, 'hex'), 0) as key from unnest(p_batch) as u(batch) order by 1
    ) k;
    -- One of them may be a first try that something held back until its retry had been here: then each goes by itself.
    if exists (select 1 from {schema}.retried r where r.batch = any(p_batch)) then
        raise exception 'a batch of these was sent again before' using errcode = 'MS001';
    end if;
end
$$;
