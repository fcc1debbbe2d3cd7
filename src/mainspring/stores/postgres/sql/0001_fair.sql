-- migration 1: what fair keys need
create index lanes_fair on {schema}.lanes (grp, priority desc, vtime, seq) where parked_on is null and vtime is not null;

-- how far the virtual time of the fair keys of a queue has come; changed under the lock of the bucket `*` and the queue
create table {schema}.clocks (
    queue text collate "C" not null,
    priority integer not null,
    vtime double precision not null,
    primary key (queue, priority)
) with (fillfactor = 50);
