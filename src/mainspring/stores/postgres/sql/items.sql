-- items: the stream of a job after a place, in order
select n, data from {schema}.items where job = %(job)s and n > %(after)s::bigint order by n limit %(limit)s
