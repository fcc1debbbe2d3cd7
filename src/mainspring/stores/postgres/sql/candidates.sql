-- candidates: live jobs of a query that an order can still change; the action looks again after it has locked them
select id from {schema}.jobs
where (%(ids)s::bytea[] is null or id = any(%(ids)s))
    and (cardinality(%(states)s::text[]) = 0 or state = any(%(states)s))
    and (cardinality(%(queues)s::text[]) = 0 or queue = any(%(queues)s))
    and (cardinality(%(tasks)s::text[]) = 0 or task = any(%(tasks)s))
    and ordered is null
order by id limit %(limit)s
