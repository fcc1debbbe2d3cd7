-- follow-up jobs: stored with their job at its enqueue, inserted when the job ends

-- name: add_follow_up
insert or ignore into {t}follow_ups (job, state, n, data) values (?, ?, ?, ?)

-- name: follow_ups_of
-- job, state: the follow-up jobs for this end, with the epoch of the live job
select f.data, j.epoch
from {t}follow_ups as f
cross join {t}jobs as j
where f.job = ? and f.state = ? and j.id = f.job
order by f.n

-- name: followed_states
select distinct state from {t}follow_ups where job = ?
