-- turn: the worker of a turn, its leases and its orders. Acks are in ack.sql, claims in claim.sql

-- name: worker_of_turn
select lost, turn, tasks from {t}workers where id = ?

-- name: set_worker_turn
update {t}workers set turn = ?, seen = ? where id = ?

-- name: leases
select id, token from {t}jobs where state = {RUNNING} and worker = ?

-- name: cancel_orders
select id, token, cancel_order from {t}jobs where worker = ? and cancel_order is not null and state = {RUNNING}

-- name: claims_since
-- worker, turn: the running jobs of this worker that were claimed by turns after this one
select id, token, task, queue, lane, priority, attempt, epoch, crashes, early, enqueued, expires, record, turn, seq, flags
from {t}jobs
where state = {RUNNING} and worker = ? and turn > ?
