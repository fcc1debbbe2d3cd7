-- workers: the fleet, with the number of jobs that run under each
select w.id, w.number, w.turn, w.lost, w.started, w.seen, r.running, w.queues, w.tasks, w.lease, w.info
from {schema}.workers w
cross join lateral (
    select count(*) as running from {schema}.jobs j where j.worker = w.id and j.state = 'running'
) r
order by w.started, w.id
