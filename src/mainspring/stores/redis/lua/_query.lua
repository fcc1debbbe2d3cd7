-- select: the jobs of a query, a bounded number at a time. Needs common, heads, moves.
-- A query: [by ids, states, queues, tasks, marks, reasons, errors, since, until, ended before], a list empty for "any",
-- false for no time. By ids they follow as one argument (16 bytes each, newest first); else that argument is the id
-- after which to go on, or empty.
local FEW = 2000

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

-- Queue, NUL, task of a job as it is stored.
local function group_in(raw)
  local at = 100 + byte(raw, 99)
  local high, low = byte(raw, at, at + 1)
  return sub(raw, at + 2, at + 1 + high * 256 + low)
end

-- Whether a job as it is stored fits all conditions but the ids. Most are told by a few of its bytes.
local function fitting(query)
  local states, queues, tasks = set_of(query[2]), set_of(query[3]), set_of(query[4])
  local marks, reasons, errors, since, till, before = query[5], set_of(query[6]), set_of(query[7]), query[8], query[9], query[10]
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
    local enqueued = (since or till) and struct.unpack('>d', raw, 59)
    if (since and enqueued < since) or (till and enqueued >= till) then return false end
    if before and (state <= RUNNING or struct.unpack('>d', raw, 35) >= before) then return false end
    if #marks == 0 and not reasons and not errors then return true end
    local more = load_head(raw)[MORE]
    return has_marks(more.m, marks)
      and (not reasons or (more.r and reasons[more.r]))
      and (not errors or (state == DEAD and errors[more.e or more.r]))
  end
end

-- A small set that has every job of the query, whatever its order; or nil.
local function few_of(query)
  local states = #query[7] > 0 and {DEAD} or query[2]
  if #states == 0 then return nil end
  local ids, sets = {}, {}
  for _, state in ipairs(states) do
    if state == RUNNING then
      for _, worker in ipairs(call('SMEMBERS', TAG .. 'workers')) do
        for _, id in ipairs(call('SMEMBERS', named('running', worker))) do ids[#ids + 1] = id end
      end
    elseif state == DEAD then
      sets[DIED], sets[HELD] = true, true
    elseif state == SCHEDULED or state == RETRYING then
      sets[LATER] = true
    else
      return nil
    end
  end
  for key in pairs(sets) do
    if call('ZCARD', key) > FEW then return nil end
    for _, id in ipairs(call('ZRANGE', key, 0, -1)) do ids[#ids + 1] = id end
  end
  return ids
end

local function behind(ids, after)
  local rest = {}
  for _, id in ipairs(ids) do
    if after == '' or id < after then rest[#rest + 1] = id end
  end
  table.sort(rest, function(a, b) return a > b end)
  return rest
end

-- The ids to look at, and whether there may be more behind the last of them.
local function candidates(query, argument, most, upward)
  local ids = {}
  if query[1] then
    for first = 1, #argument, 16 do ids[#ids + 1] = sub(argument, first, first + 15) end
    return ids, false
  end
  local few = #query[5] == 0 and few_of(query)
  if few then return behind(few, argument), false end
  local index = #query[5] > 0 and named('mark', query[5][1]) or IDS
  local after = '(' .. argument
  if upward then
    ids = call('ZRANGEBYLEX', index, argument == '' and '-' or after, '+', 'LIMIT', 0, most)
  else
    ids = call('ZREVRANGEBYLEX', index, argument == '' and '+' or after, '-', 'LIMIT', 0, most)
  end
  return ids, #ids == most
end

-- Calls visit(id, job as it is stored) for each job of the query until it says stop; `upward` is oldest id first.
-- Returns the id after which to go on, or false when the query is exhausted.
local function each(query, argument, most, visit, upward)
  local ids, more = candidates(query, argument, most, upward)
  local fits = fitting(query)
  for first = 1, #ids, 200 do
    local last = math.min(first + 199, #ids)
    for n, raw in ipairs(call('HMGET', JOBS, unpack(ids, first, last))) do
      local id = ids[first + n - 1]
      if raw and fits(raw) and visit(id, raw) then return id end
    end
  end
  return more and ids[#ids]
end
