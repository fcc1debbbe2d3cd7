-- sweep: cancels the jobs of flows whose root ended before its members, and deletes them if the root was deleted. Needs
-- common, rows, moves, flows, finish, history.
-- A sweep goes through the jobs with the mark of the flow, in order of their ids: two bytes (whether the root was
-- deleted, whether it has found a live job since its begin), and the id to continue after. It begins anew until it
-- finds no live job, because the end of a job may insert others; of a deleted root until no job is left, once a second
-- while jobs run.
-- gives: sweep_flows
local SWEPT, SWEEPS = TAG .. 'swept', TAG .. 'sweeps'

local function order_cancel(id, head)
  head[MORE].o, changed[id] = '', true
  call('HSET', named('worker_orders', head[WORKER]), id, '')
end

-- Looks at up to `limit` jobs of a flow. Returns how many.
local function sweep_slice(root, limit)
  local stored, mark = call('HGET', SWEEPS, root), flow_mark(root)
  local deleted, found, at = struct.unpack('>BB', stored)
  local after = sub(stored, at)
  local ids = call('ZRANGEBYLEX', named('mark', mark), after == '' and '-' or '(' .. after, '+', 'LIMIT', 0, limit)
  preload(ids)
  for _, id in ipairs(ids) do
    local head = heads[id]
    if is_waiting(head) then
      finish(id, head, {CANCELLED}, {PARENT})
      found = 1
    elseif head[STATE] == {RUNNING} and not head[MORE].o then
      order_cancel(id, head)
      found = 1
    end
    if deleted == 1 and head[STATE] > {RUNNING} then remove(id, head) end
  end
  local is_over = live_jobs_of(mark) == 0
  if deleted == 1 then is_over = call('EXISTS', named('mark', mark)) == 0 end
  if is_over or #ids < limit and deleted == 0 and found == 0 then
    call('HDEL', SWEEPS, root)
    call('ZREM', SWEPT, root)
  elseif #ids == limit then
    call('HSET', SWEEPS, root, struct.pack('>BB', deleted, found) .. ids[#ids])
  else
    call('HSET', SWEEPS, root, struct.pack('>BB', deleted, 0))
    if found == 0 then call('ZADD', SWEPT, NOW + {SECOND}, root) end
  end
  return #ids
end

local function sweep_flows(limit)
  for _, root in ipairs(call('ZRANGEBYSCORE', SWEPT, '-inf', NOW, 'LIMIT', 0, limit)) do
    if limit <= 0 then return end
    limit = limit - sweep_slice(root, limit)
  end
end
