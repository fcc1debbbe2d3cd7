-- find: the jobs of a query, live and ended, newest id first, below the cursor; one snapshot
(
    select id, state, null::text as reason, task, queue, lane, priority, attempt, epoch, crashes, crash_limit, early,
        token, worker, seq, enqueued, due, expires, started, null::bigint as finished, deps,
        ordered is not null as ordered, progress, null::bytea as result, null::bytea as error, record
    from {schema}.jobs
    where (%(ids)s::bytea[] is null or id = any(%(ids)s))
        and (cardinality(%(states)s::text[]) = 0 or state = any(%(states)s))
        and (cardinality(%(queues)s::text[]) = 0 or queue = any(%(queues)s))
        and (cardinality(%(tasks)s::text[]) = 0 or task = any(%(tasks)s))
        and (%(before)s::bytea is null or id < %(before)s)
    order by id desc limit %(limit)s
)
union all
(
    select id, state, reason, task, queue, lane, priority, attempt, epoch, crashes, crash_limit, early, token, worker,
        seq, enqueued, due, expires, started, finished, 0, false, progress, result, error, record
    from {schema}.finished
    where (%(ids)s::bytea[] is null or id = any(%(ids)s))
        and (cardinality(%(states)s::text[]) = 0 or state = any(%(states)s))
        and (cardinality(%(queues)s::text[]) = 0 or queue = any(%(queues)s))
        and (cardinality(%(tasks)s::text[]) = 0 or task = any(%(tasks)s))
        and (%(before)s::bytea is null or id < %(before)s)
    order by id desc limit %(limit)s
)
union all
(
    select id, state, reason, task, queue, lane, priority, attempt, epoch, crashes, crash_limit, early, token, worker,
        seq, enqueued, due, expires, started, finished, 0, false, progress, result, error, record
    from {schema}.dead
    where (%(ids)s::bytea[] is null or id = any(%(ids)s))
        and (cardinality(%(states)s::text[]) = 0 or state = any(%(states)s))
        and (cardinality(%(queues)s::text[]) = 0 or queue = any(%(queues)s))
        and (cardinality(%(tasks)s::text[]) = 0 or task = any(%(tasks)s))
        and (%(before)s::bytea is null or id < %(before)s)
    order by id desc limit %(limit)s
)
order by id desc limit %(limit)s
