-- Unique keys: the job that took a key last.

-- mode: '' for a plain key, {KEY_KEEP} for a key that is held after its job succeeded too, or {KEY_DEBOUNCE},
-- {KEY_THROTTLE}, {KEY_KEEP_LAST}
-- until: the end of the window. span: for how long the key counts after a success, or (throttle) after a start
-- previous: the job of the key that was started before. replaced_by: the enqueue that replaced the job last
create table {schema}.keys (
    hash bytea primary key check (length(hash) = {ID_BYTES}),
    job bytea,
    until bigint not null default 0,
    span bigint not null default 0,
    mode text not null default '',
    print bytea,
    previous bytea,
    replaced_by bytea
) with (fillfactor = 70);
create index keys_job on {schema}.keys (job);

-- what a new job keeps of the waiting job that it replaces: seq, if that job was ready; leaves: the limited lane that it
-- was ready in
create type {schema}.replaced_v1 as (at integer, enqueued bigint, epoch integer, seq bigint, queue text, leaves text);
