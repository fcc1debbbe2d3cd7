-- fleet: the running jobs of a worker that is lost, has crashed or retires. Needs common, rows, moves, finish,
-- take_back.
local function by_seq(a, b) return a[2][SEQ] < b[2][SEQ] end

-- The running jobs of a worker as [id, head], by seq; and the guilt whose jobs are charged with a crash (see
-- guilt_of()): the lowest guilt of the jobs that crashed before, or 0 if no job crashed before, then all are charged.
local function jobs_of(worker)
  local ids = call('SMEMBERS', named('worker_jobs', worker))
  preload(ids)
  local held, blamed = {}, 0
  for n, id in ipairs(ids) do
    held[n] = {id, heads[id]}
    local guilt = guilt_of(heads[id])
    if guilt > 0 and (blamed == 0 or guilt < blamed) then blamed = guilt end
  end
  table.sort(held, by_seq)
  return held, blamed
end

-- Another worker may lead the services of this worker.
local function end_leads(worker)
  local leads = call('HGETALL', TAG .. 'leads')
  for n = 1, #leads, 2 do
    if string.match(leads[n + 1], '^%d+ (.*)$') == worker then call('HDEL', TAG .. 'leads', leads[n]) end
  end
end

-- Moves all jobs of `worker` out of running, by cause (lost, crashed, interrupted).
-- Returns 1 and the ids that are now ready, retrying, dead, cancelled.
local function take_back(worker, cause, delays)
  end_leads(worker)
  local held, blamed = jobs_of(worker)
  local moved = {[{READY}] = {}, [{RETRYING}] = {}, [{DEAD}] = {}, [{CANCELLED}] = {}}
  for _, pair in ipairs(held) do
    local id, head = pair[1], pair[2]
    local guilt = guilt_of(head)
    local charged = cause == {CRASHED} and guilt == blamed
    local is_known = guilt == {GUILT_SUSPECT} or #held == 1
    keep_attempt(id, head, cause, false)
    local to = take_back_job(id, head, {charged, is_known, delays, {CRASHED}})
    head[WORKER] = '' -- the worker is forgotten, so that its own late ack is stale
    moved[to][#moved[to] + 1] = id
  end
  return {1, moved[{READY}], moved[{RETRYING}], moved[{DEAD}], moved[{CANCELLED}]}
end
