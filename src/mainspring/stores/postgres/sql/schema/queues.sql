-- Queues of which something is stored. A queue without a row is open.

-- declared: the settings that code declares; given: the settings that an operator set over them
-- stopped: the queue hands out nothing; special: an enqueue has to look at the row; bounded: the jobs that wait in the
-- queue are counted
create table {schema}.queues (
    name text collate "C" primary key,
    mode text not null check (mode in ({QUEUE_OPEN}, {QUEUE_PAUSED}, {QUEUE_DRAINING})),
    since bigint not null,
    disabled text check (disabled in ({DISABLED_HOLD}, {DISABLED_SKIP}, {DISABLED_REJECT})),
    disabled_at bigint not null default 0,
    disabled_by text not null default '',
    declared jsonb,
    given jsonb,
    settings jsonb generated always as (
        case when declared is not null or given is not null then coalesce(declared, '{}') || coalesce(given, '{}') end
    ) stored,
    stopped boolean generated always as (mode = {QUEUE_PAUSED} or disabled is not null) stored,
    special boolean generated always as (
        mode = {QUEUE_DRAINING} or coalesce(disabled, {DISABLED_HOLD}) <> {DISABLED_HOLD} or declared is not null or given is not null
    ) stored,
    bounded boolean generated always as (
        coalesce((given ->> 'max_depth')::bigint, (declared ->> 'max_depth')::bigint, 0) > 0
    ) stored
);
