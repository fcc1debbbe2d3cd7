-- fleet: the running jobs of a worker that is lost, has crashed or retires. Needs common, rows, moves, finish.
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

-- The final state and the reason for a job that does not run again, or nil. `charged`: the crash counts for this job.
-- `is_known`: it is certain that this job crashed the worker, because it ran alone or as a suspect.
local function end_of_crashed(head, charged, is_known)
  if head[MORE].o then return {CANCELLED}, {BY_USER} end
  if head[EARLY] or charged and is_known and head[CRASHES] >= head[CRASH_LIMIT] then return {DEAD}, {CRASHED} end
end

-- running -> ready, or retrying after a crash that is charged to the job. The body may have begun, so the job cannot
-- expire any more.
local function return_job(id, head, charged, delays)
  local to = {READY}
  leave(id, head)
  head[EXPIRES] = {NONE}
  if charged then
    local delay = delays[math.min(head[CRASHES], #delays)] or 0
    if delay > 0 then to, head[DUE] = {RETRYING}, NOW + delay end
    set_lane(head, head[PARKED])
  end
  enter(id, head, to)
  return to
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
    local guilt, order = guilt_of(head), head[MORE].o
    local charged = cause == {CRASHED} and guilt == blamed
    keep_attempt(id, head, cause, false)
    head[ATTEMPT] = head[ATTEMPT] - 1
    if charged then head[CRASHES] = head[CRASHES] + 1 end
    local to, reason = end_of_crashed(head, charged, guilt == {GUILT_SUSPECT} or #held == 1)
    if to then
      finish(id, head, to, reason, order and order ~= '' and order)
    else
      to = return_job(id, head, charged, delays)
    end
    head[WORKER] = '' -- the worker is forgotten, so that its own late ack is stale
    moved[to][#moved[to] + 1] = id
  end
  return {1, moved[{READY}], moved[{RETRYING}], moved[{DEAD}], moved[{CANCELLED}]}
end
