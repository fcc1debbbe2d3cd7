-- history: an ended job leaves history, or is deleted with all that is stored of it. Needs common, rows, moves,
-- follow_ups, flows, finish, keys.
local PROGRESS = TAG .. 'progress'

-- Deletes what is stored of a job. It has left its indexes before.
local function forget(id, head)
  call('HDEL', JOBS, id)
  call('ZREM', IDS, id)
  if head[RECORD_APART] then call('HDEL', RECORDS, id) end
  if head[ERROR] then call('HDEL', ERRORS, id) end
  if head[RESULT_APART] then call('HDEL', RESULTS, id) end
  if head[FOLLOWED] then call('HDEL', FOLLOW_UPS, id) end
  for _, mark in ipairs(head[MORE].m or {}) do call('ZREM', named('mark', mark), id) end
  drop_key(id, head)
  call('HDEL', PROGRESS, id)
  call('UNLINK', named('attempts', id), named('logs', id), named('items', id))
  heads[id], changed[id] = false, nil
end

local function leave_history(id, head)
  count(head, -1)
  if head[MORE].u or head[MORE].j then call('ZREM', KEY_UNTIL, id) end
  if head[MORE].k == {FLOW_KEEP} then
    if head[STATE] == {DEAD} then call('ZREM', FLOW_DIED, id) end
  elseif head[STATE] == {DEAD} then
    call('ZREM', DIED, id)
  elseif head[MORE].k then
    call('ZREM', KEEP_UNTIL, id)
  else
    call('ZREM', DONE, id)
  end
end

-- Deletes a job that does not run. To its children it is a parent that ended badly, and the jobs of a flow go with its
-- root.
local function remove(id, head)
  local ending = {}
  if is_waiting(head) then leave(id, head) else leave_history(id, head) end
  if head[CHILDREN] or head[MORE].j then with_flows() end
  if head[CHILDREN] then flows.resolve(id, head, {ENDED_BADLY}, ending) end
  forget(id, head)
  if head[MORE].j then flows.sweep_flow(id, true) end
  finish_all(ending)
end

-- The mark of the jobs of a flow that ends with this job.
local function flow_mark(id) return {FLOW_MARK} .. hex_of(id) end

-- The number of live jobs with the mark of a flow.
local function live_jobs_of(mark) return (call('HGET', TAG .. 'flow_jobs', mark) or 0) + (counts[mark] or 0) end
