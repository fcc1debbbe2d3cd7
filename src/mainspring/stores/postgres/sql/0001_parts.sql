-- migration 1: what parts need
-- held: the job waits for parts, which counts as one of its deps; this is its place in the line of the part that it had when
-- it was enqueued first
alter table {schema}.jobs
    add column part text collate "C",
    add column line text collate "C",
    add column held bigint,
    add check ((held is null) = (line is null) and (held is null or state = 'blocked'));
alter table {schema}.finished add column part text collate "C";
alter table {schema}.dead add column part text collate "C";
create index jobs_held on {schema}.jobs (line, held) where held is not null;

alter type {schema}.moved_v1 add attribute parts text[];

-- a part that waits for others; whoever decides anything of it has locked its row. released: the job that was last, and its
-- token then
create table {schema}.parts (
    name text collate "C" primary key,
    released bytea,
    token bigint not null default 0
) with (fillfactor = 50);

create table {schema}.part_links (
    part text collate "C" not null,
    after text collate "C" not null,
    noted boolean not null default false,
    primary key (part, after)
) with (fillfactor = 50);
create index part_links_after on {schema}.part_links (after);

-- parts for the next promotion to look at: they got a job by a caller's transaction, or one that was somebody else's just then
create table {schema}.part_news (part text not null);
