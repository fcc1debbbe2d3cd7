-- attempts: the ended attempts of a job, oldest first
select token, epoch, attempt, worker, started, ended, outcome, error
from {schema}.attempts
where job = %(job)s
order by token
