-- uses: common
-- workers: the rows of all workers
-- returns for each: id, number, turn, lost, started, seen, running, lease, queues, tasks, info
local rows = {}
for _, worker in ipairs(call('SMEMBERS', TAG .. 'workers')) do
  local row = call(
    'HMGET', named('worker', worker), 'number', 'turn', 'lost', 'started', 'seen', 'lease', 'queues', 'tasks', 'info'
  )
  rows[#rows + 1] = {
    worker, row[1], row[2], row[3], row[4], row[5], call('SCARD', named('worker_jobs', worker)),
    row[6], row[7], row[8], row[9],
  }
end
return rows
