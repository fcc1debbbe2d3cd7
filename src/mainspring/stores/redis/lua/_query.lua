-- query: the jobs of a query, a bounded number in one script. Needs common, rows, moves, finish.
-- A query is [by ids, states, queues, tasks, marks, reasons, errors, since, until, ended before]. An empty list means
-- any; false means no time. With `by ids` the next argument is the ids (16 bytes each, newest first); else it is the id
-- after which the script continues, or empty.

local function set_of(list)
  local set
  for _, name in ipairs(list) do
    set = set or {}
    set[name] = true
  end
  return set
end

local function has_marks(own, marks)
  own = set_of(own or {}) or {}
  for _, mark in ipairs(marks) do
    if not own[mark] then return false end
  end
  return true
end

-- The group (queue, NUL, task) of a stored job.
local function group_in(raw)
  local at = {NAMES_AT} + byte(raw, {WORKER_SIZE_AT})
  local high, low = byte(raw, at, at + 1)
  return sub(raw, at + 2, at + 1 + high * 256 + low)
end

-- A function that returns whether a stored job fits all conditions except the ids. For most queries it reads a few bytes.
local function fitting(query)
  local states, queues, tasks = set_of(query[2]), set_of(query[3]), set_of(query[4])
  local marks, reasons, errors = query[5], set_of(query[6]), set_of(query[7])
  local since, till, before = query[8], query[9], query[10]
  local known = {}
  local function group_fits(group)
    if known[group] == nil then
      local queue, task = string.match(group, '^([^%z]*)%z(.*)$')
      known[group] = (not queues or queues[queue]) and (not tasks or tasks[task]) or false
    end
    return known[group]
  end
  return function(raw)
    local state = byte(raw)
    if states and not states[state] then return false end
    if (queues or tasks) and not group_fits(group_in(raw)) then return false end
    local enqueued = (since or till) and struct.unpack('>d', raw, {ENQUEUED_AT})
    if (since and enqueued < since) or (till and enqueued >= till) then return false end
    if before and (state <= {RUNNING} or struct.unpack('>d', raw, {ENDED_AT}) >= before) then return false end
    if #marks == 0 and not reasons and not errors then return true end
    local more = load_head(raw)[MORE]
    return has_marks(more.m, marks)
      and (not reasons or (more.r and reasons[more.r]))
      and (not errors or (state == {DEAD} and errors[more.e or more.r]))
  end
end

-- All jobs that a query by states may mean, in any order, if they are few; else nil.
local function few_of(query)
  local states = #query[7] > 0 and { {DEAD} } or query[2]
  if #states == 0 then return nil end
  local ids, sets = {}, {}
  for _, state in ipairs(states) do
    if state == {RUNNING} then
      for _, worker in ipairs(call('SMEMBERS', TAG .. 'workers')) do
        for _, id in ipairs(call('SMEMBERS', named('worker_jobs', worker))) do ids[#ids + 1] = id end
      end
    elseif state == {DEAD} then
      sets[DIED], sets[FLOW_DIED], sets[KEY_UNTIL] = true, true, true
    elseif state == {SCHEDULED} or state == {RETRYING} then
      sets[DUE_JOBS] = true
    else
      return nil
    end
  end
  for key in pairs(sets) do
    if call('ZCARD', key) > {QUERY_FEW} then return nil end
    for _, id in ipairs(call('ZRANGE', key, 0, -1)) do ids[#ids + 1] = id end
  end
  return ids
end

-- The ids after `after`, newest first.
local function ids_after(ids, after)
  local rest = {}
  for _, id in ipairs(ids) do
    if after == '' or id < after then rest[#rest + 1] = id end
  end
  table.sort(rest, function(a, b) return a > b end)
  return rest
end

-- The ids to look at, and whether there may be more after the last of them.
local function candidates(query, argument, most, upward)
  local ids = {}
  if query[1] then
    for first = 1, #argument, {ID_BYTES} do ids[#ids + 1] = sub(argument, first, first + {ID_BYTES} - 1) end
    return ids, false
  end
  local few = #query[5] == 0 and few_of(query)
  if few then return ids_after(few, argument), false end
  local index = #query[5] > 0 and named('mark', query[5][1]) or IDS
  local after = '(' .. argument
  if upward then
    ids = call('ZRANGEBYLEX', index, argument == '' and '-' or after, '+', 'LIMIT', 0, most)
  else
    ids = call('ZREVRANGEBYLEX', index, argument == '' and '+' or after, '-', 'LIMIT', 0, most)
  end
  return ids, #ids == most
end

-- Calls visit(id, stored job) for each job of the query until it returns true; `upward`: oldest id first.
-- Returns the id after which the next script continues, or false at the end of the query.
local function visit_jobs(query, argument, most, visit, upward)
  local ids, more = candidates(query, argument, most, upward)
  local fits = fitting(query)
  for first = 1, #ids, {QUERY_READ} do
    local last = math.min(first + {QUERY_READ} - 1, #ids)
    for n, raw in ipairs(call('HMGET', JOBS, unpack(ids, first, last))) do
      local id = ids[first + n - 1]
      if raw and fits(raw) and visit(id, raw) then return id end
    end
  end
  return more and ids[#ids]
end
