-- Flows: the counts of joins, and what promotions still have to do. Members and joins are rows of jobs, joined by edges.

-- open: members may be added from anywhere; then the join has an edge to itself. last_end: when its last member ended, as
-- the transaction of that end read the clock. pruning: its flow is being deleted
create table {schema}.joins (
    total bigint not null default 0,
    succeeded bigint not null default 0,
    dead bigint not null default 0,
    cancelled bigint not null default 0,
    bypassed bigint not null default 0,
    last_end bigint not null default 0,
    open boolean not null,
    lenient boolean not null,
    pruning boolean not null default false,
    id bytea primary key
) with (fillfactor = 50);

-- how: how a join ended whose children are being released. after: the last job of the flow that was looked at; found:
-- whether this pass over the jobs of the flow has found one to cancel or to delete. at: when to go on
create table {schema}.flow_work (
    id bytea not null,
    work text not null check (work in ({RELEASE_CHILDREN}, {CANCEL_FLOW}, {DELETE_FLOW})),
    how text,
    after bytea not null default '',
    found boolean not null default false,
    at bigint not null,
    primary key (id, work)
);
create index flow_work_at on {schema}.flow_work (at, id);

-- a parent, and how it ended: a final state or {BYPASSED}, or {FIRST_DEATH} or {UNHELD} for a job that has not ended
create type {schema}.parent_end_v1 as (id bytea, how text);
-- an edge that this end resolves. effect: the reason for which the child is cancelled, if it is; counted: as what a join
-- counts the parent
create type {schema}.met_edge_v1 as (parent bytea, child bytea, effect text, counted text);
-- what the resolved edges did. counted: those of the ended jobs that are joins and ended by their members; first_deaths:
-- joins that go on, and have their first dead member
create type {schema}.met_v1 as (endings {schema}.ending_v1[], counted bytea[], first_deaths bytea[], woken text[]);
-- an edge to a parent of the new job at this position of a batch, with its effect
create type {schema}.judged_edge_v1 as (at integer, parent bytea, policy text, effect text);
-- what new jobs wait for: by position the number of edges; the jobs that an ended parent cancels, or bypasses; the edges
create type {schema}.waits_v1 as (
    waits integer[], broken bytea[], bypassed bytea[], edge_at integer[], edge_parent bytea[], edge_policy text[]
);
