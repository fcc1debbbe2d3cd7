-- Schedules and their runs.

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
