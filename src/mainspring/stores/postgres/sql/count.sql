-- count: how many jobs of a query are in each state; one snapshot
select state, count(*) from (
    select state from {schema}.jobs
    where (%(ids)s::bytea[] is null or id = any(%(ids)s))
        and (cardinality(%(states)s::text[]) = 0 or state = any(%(states)s))
        and (cardinality(%(queues)s::text[]) = 0 or queue = any(%(queues)s))
        and (cardinality(%(tasks)s::text[]) = 0 or task = any(%(tasks)s))
    union all
    select state from {schema}.finished
    where (%(ids)s::bytea[] is null or id = any(%(ids)s))
        and (cardinality(%(states)s::text[]) = 0 or state = any(%(states)s))
        and (cardinality(%(queues)s::text[]) = 0 or queue = any(%(queues)s))
        and (cardinality(%(tasks)s::text[]) = 0 or task = any(%(tasks)s))
    union all
    select state from {schema}.dead
    where (%(ids)s::bytea[] is null or id = any(%(ids)s))
        and (cardinality(%(states)s::text[]) = 0 or state = any(%(states)s))
        and (cardinality(%(queues)s::text[]) = 0 or queue = any(%(queues)s))
        and (cardinality(%(tasks)s::text[]) = 0 or task = any(%(tasks)s))
) s
group by state
