-- logs: the lines of a job after a number, oldest first
select at, level, text, n from {schema}.logs where job = %(job)s and n > %(after)s::bigint order by n
