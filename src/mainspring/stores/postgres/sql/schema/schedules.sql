-- Schedules, their runs, and the dependencies between schedules.

-- A row without doc is what is left of a deleted schedule: its revision, for a day (see prune_schedules).
create table {schema}.schedules (
    name text collate "C" primary key,
    rev bigint not null,
    look bigint,
    doc bytea,
    check (doc is not null or look is null)
) with (fillfactor = 70);
create index schedules_look on {schema}.schedules (look, name) where look is not null;
create index schedules_gone on {schema}.schedules (rev) where doc is null;

create table {schema}.schedule_runs (
    schedule text collate "C" not null,
    at bigint not null,
    job bytea,
    doc bytea not null,
    primary key (schedule, at)
);

-- a schedule that waits for others; a decision about it is made under the lock of its row. released: the job that was
-- released last, and its token at that moment
create table {schema}.dependents (
    name text collate "C" primary key,
    released bytea,
    token bigint not null default 0
) with (fillfactor = 50);

create table {schema}.dependencies (
    schedule text collate "C" not null,
    after text collate "C" not null,
    noted boolean not null default false,
    primary key (schedule, after)
) with (fillfactor = 50);
create index dependencies_after on {schema}.dependencies (after);

-- schedules that the next promotion rechecks: they got a job by a caller's transaction, or a job that another
-- transaction had locked
create table {schema}.dependency_rechecks (schedule text not null);
