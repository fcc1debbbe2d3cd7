-- moves: how a job leaves one state and enters another, with all indexes. Needs common, rows, lane_fields, wakeups, lanes, limits.
-- finish() in _finish.lua is the only way into a final state.
-- gives: DUE_JOBS, EXPIRING, OVERDUE, FOLLOW_UPS, counts, count, move_counts, guilt_of
-- gives: set_lane, leave, enter, enter_line, new_head, put_beside
local DUE_JOBS, EXPIRING, OVERDUE = TAG .. 'due', TAG .. 'expiring', TAG .. 'overdue'
local FOLLOW_UPS = TAG .. 'follow_ups'
local counts = {}

-- Counts a job by state, queue and task; a cancelled job also by reason, a dead job also by reason and error type. The
-- live jobs of a flow are counted by the marks of the flow and of its body, which come before the other marks.
local function count(head, n)
  local state, more = head[STATE], head[MORE]
  if more.f and state <= {RUNNING} then
    for _, mark in ipairs(more.m) do
      if sub(mark, 1, 1) ~= {FLOW_MARK} then break end
      counts[mark] = (counts[mark] or 0) + n
    end
  end
  local field = string.char(state) .. head[GROUP]
  if state == {CANCELLED} then field = field .. '\0' .. more.r end
  if state == {DEAD} then field = field .. '\0' .. more.r .. '\0' .. (more.e or '') end
  counts[field] = (counts[field] or 0) + n
end

-- The same for many jobs that went from one state to another; `groups`: queue and task -> number of jobs.
local function move_counts(groups, from, to)
  from, to = string.char(from), string.char(to)
  for group, n in pairs(groups) do
    counts[from .. group] = (counts[from .. group] or 0) - n
    counts[to .. group] = (counts[to .. group] or 0) + n
  end
end

-- A suspect is a job that dies at its next crash. It never runs together with other suspects.
local function is_suspect(head)
  return head[CRASHES] > 0 and head[CRASHES] >= head[CRASH_LIMIT] - 1
end

-- How likely the job is the one that crashed its worker: 0 if it never crashed before, more if it did, most for a
-- suspect.
local function guilt_of(head)
  if head[CRASHES] == 0 then return 0 end
  return is_suspect(head) and {GUILT_SUSPECT} or {GUILT_CRASHED}
end

-- The lane for a job as it is now: its home (base lane and buckets), `!` for a suspect, `?task` for a parked job.
local function set_lane(head, parked)
  local marks = is_suspect(head) and '!' or ''
  if parked then marks = marks .. '?' .. task_of(head) end
  head[LANE], head[PARKED] = lane_fields(head[LANE]).home .. marks, parked
end

-- A blocked job stops waiting. Without its side of an edge, the side of the parent means nothing: a join may have so
-- many members that they keep theirs until they end.
local function forget_parents(id, head)
  if head[DEPS] == 0 then return end
  local parents = named('parents', id)
  if not head[MORE].j then
    for _, parent in ipairs(call('ZRANGE', parents, 0, -1)) do call('ZREM', named('children', parent), id) end
  end
  call('UNLINK', parents)
end

local function leave_running(id, head)
  call('SREM', named('worker_jobs', head[WORKER]), id)
  if head[MORE].b then with_limits() end
  for _, bucket in ipairs(head[MORE].b or {}) do free_capacity(name_of(bucket), 1, { id }) end
  if head[MORE].o then call('HDEL', named('worker_orders', head[WORKER]), id) end
end

local function leave(id, head)
  local state = head[STATE]
  if arriving[id] then line_up() end -- it became ready in this script: it gets a place before it leaves
  count(head, -1)
  if state == {RUNNING} then
    leave_running(id, head)
  elseif state == {BLOCKED} then
    forget_parents(id, head)
  elseif state == {SCHEDULED} or state == {RETRYING} then
    call('ZREM', DUE_JOBS, id)
  elseif state == {READY} then
    leave_line(id, head)
  end
  if state < {RUNNING} and head[EXPIRES] ~= {NONE} then
    call('ZREM', EXPIRING, id)
    if state == {READY} then call('ZREM', OVERDUE, id) end
  end
  if state < {RUNNING} and head[MORE].d then call('ZREM', named('depth', queue_of(head)), id) end
end

local function enter(id, head, state)
  head[STATE] = state
  heads[id], changed[id] = head, true
  count(head, 1)
  if state == {SCHEDULED} or state == {RETRYING} then
    call('ZADD', DUE_JOBS, head[DUE], id)
  elseif state == {READY} then
    head[DUE] = {NONE}
    arrivals[#arrivals + 1], arriving[id] = id, true
  end
  if state < {RUNNING} and head[EXPIRES] ~= {NONE} then call('ZADD', EXPIRING, head[EXPIRES], id) end
  if state < {RUNNING} and head[MORE].d then call('ZADD', named('depth', queue_of(head)), head[ENQUEUED], id) end
end

local function enter_line(id, head)
  enter(id, head, head[DUE] ~= {NONE} and head[DUE] > NOW and {SCHEDULED} or {READY})
end

-- A new job from its text (rows.py) and its times [delay, run_at, expires_in]; false: the time is not set.
local function new_head(text, times)
  local head, due, expires = load_head(text), times[2] or NOW + times[1], times[3]
  head[ENQUEUED] = NOW
  if due > NOW then head[DUE] = due end
  if expires then head[EXPIRES] = NOW + expires end
  set_lane(head, false)
  return head
end

-- Writes the large record and the marks of a new job.
local function put_beside(id, head, record)
  if head[RECORD_APART] then call('HSET', RECORDS, id, record) end
  for _, mark in ipairs(head[MORE].m or {}) do call('ZADD', named('mark', mark), 0, id) end
end
