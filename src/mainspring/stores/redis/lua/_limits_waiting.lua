-- parking: lanes with keys whose bucket is full leave the index of their group until there may be room, so that a claim
-- meets them once. Needs common, heads, wake, rooms, lines.
-- A parked lane stands by its place in `waiting` for its group and the bucket, and by its moment in `parked_until` if
-- that is known. Whoever frees room opens the first ones of each group. An open lane that goes, to wait for another
-- bucket or because it is empty, has the next ones opened: room must not lie idle.
-- The lanes of fair keys stand in a set for each priority by their vtimes: see _fair.lua.
-- gives: is_fair, is_free, level_of, step_of, clock_of, set_clock
-- gives: opened, wakes, PARKED_UNTIL, is_gate, note, park, open_due, settle_lanes, settle_groups, tell_waiting, reopen
-- gives: wake_waiting, look_again
local PARKED_ON, REOPEN = TAG .. 'parked', TAG .. 'reopen'
local PARKED_UNTIL = TAG .. 'parked_until'
local OPENED = 100 -- lanes of one group that are opened at once
local grown, waiting = {}, {}
local opened = {}
local wakes = {}
local clocks, moved_clocks = {}, {}

local function parts_of(lane) return string.match(lane, '^([^/]*/[^#!?]*)(#?[^=!?]*)([^!?]*)(.*)$') end
local function queue_in(lane) return (string.match(lane, '^[^/]*')) end
local function is_gate(name) return not string.find(name, '=', 1, true) end
local function waiting_key(group, name) return named('waiting', group .. '\0' .. name) end

local function group_of(lane)
  local base, gates, keys, marks = parts_of(lane)
  return base .. gates .. marks, keys ~= '', base .. string.match(marks, '^!?')
end

-- Of the lanes of fair keys; of those whose jobs need room nowhere.
local function is_fair(group) return string.find(group, '^[^/]*/[^#!?]*#%*') ~= nil end
local function is_free(group) return string.find(group, '^[^/]*/[^#!?]*#%*[^%*,]') ~= nil or sub(group, -2) == '#*' end
local function level_of(group, priority) return named('vtimes', priority .. ':' .. group) end
local function step_of(lane) return 1 / tonumber(string.match(lane, '#[^=]*=([^*]*)')) end

-- How far the virtual time of the fair keys of a queue has come.
local function clock_of(queue, priority)
  clocks[queue] = clocks[queue] or {}
  local clock = clocks[queue][priority] or tonumber(call('HGET', named('clocks', queue), priority) or 0)
  clocks[queue][priority] = clock
  return clock
end

local function set_clock(queue, priority, vtime)
  clocks[queue][priority], moved_clocks[queue] = vtime, true
end

-- A clock stands still, and is forgotten, when no lane of a fair key is in any line of its queue.
local function settle_clock(queue, group, is_new, is_gone)
  if is_new then call('SADD', named('fair', queue), group) end
  if not is_gone then return end
  call('SREM', named('fair', queue), group)
  if call('EXISTS', named('fair', queue)) == 0 then
    call('DEL', named('clocks', queue))
    clocks[queue] = nil
  end
end

-- Puts the lane of a fair key into the sets of the priorities that it has jobs of: behind the claim before it, if it was
-- not there.
local function index_fair(lane, group, lines)
  local present, n, levels = {}, 0, nil
  for m = 1, #lines, 2 do
    local priority = string.match(lines[m], '^~?(-?%d+):')
    if not present[priority] then
      present[priority], n = true, n + 1
      local vtime = clock_of(queue_in(lane), priority) + step_of(lane)
      if call('ZADD', level_of(group, priority), 'NX', vtime, lane) == 1 then
        call('ZADD', named('lanes', group), -priority, priority)
      end
    end
  end
  levels = call('ZRANGE', named('lanes', group), 0, -1)
  for _, priority in ipairs(#levels > n and levels or {}) do
    local key = level_of(group, priority)
    if not present[priority] and call('ZREM', key, lane) == 1 and call('EXISTS', key) == 0 then
      call('ZREM', named('lanes', group), priority)
    end
  end
end

-- Something of the group waits for room in the bucket.
local function note(group, name)
  if call('SADD', named('waits', name), group) == 1 then call('SADD', named('crowded', limit_in(name)), name) end
end

local function forget_note(group, name)
  call('SREM', named('waits', name), group)
  if call('EXISTS', named('waits', name)) == 0 then call('SREM', named('crowded', limit_in(name)), name) end
end

-- The lane leaves the index of its group. What else it could have used is for others.
local function park(lane, buckets, name, moment)
  local group, _, root = group_of(lane)
  local first = call('ZRANGE', named('heads', lane), 0, 0, 'WITHSCORES')[2]
  if is_fair(group) then index_fair(lane, group, {}) else call('ZREM', named('lanes', group), lane) end
  call('ZREM', named('ages', group), lane)
  call('ZADD', waiting_key(group, name), first, lane)
  call('HSET', PARKED_ON, lane, name)
  if moment then call('ZADD', PARKED_UNTIL, whole(moment), lane) end
  note(group, name)
  grown[group], opened[lane], pending[lane] = root, nil, nil
  for _, bucket in ipairs(buckets) do
    if bucket[2] ~= '' and name_of(bucket) ~= name then freed[name_of(bucket)] = true end
  end
end

local function unpark(lane, group, name)
  call('HDEL', PARKED_ON, lane)
  call('ZREM', PARKED_UNTIL, lane)
  call('ZREM', waiting_key(group, name), lane)
  if call('EXISTS', waiting_key(group, name)) == 0 then forget_note(group, name) end
end

local function open(lane, name)
  unpark(lane, (group_of(lane)), name)
  pending[lane] = pending[lane] or {}
end

-- The first job of the lane has become another, though its place is the same.
local function look_again(lane)
  local name = call('HGET', PARKED_ON, lane)
  if name then open(lane, name) end
end

-- The moment has come for these lanes, and for others that wait for the same buckets.
local function open_due(limit)
  for _, lane in ipairs(call('ZRANGEBYSCORE', PARKED_UNTIL, '-inf', NOW, 'LIMIT', 0, limit)) do
    local name = call('HGET', PARKED_ON, lane)
    freed[name], wakes[queue_in(lane)] = true, true
    open(lane, name)
  end
end

-- A lane that is parked stays so while its first job is the same.
local function is_kept(lane, group, lines)
  local name = call('HGET', PARKED_ON, lane)
  if not name then return false end
  if lines[2] == call('ZSCORE', waiting_key(group, name), lane) then return true end
  unpark(lane, group, name)
  if lines[1] then wakes[queue_in(lane)] = true end -- who turns parks it again, or starts it
  return not lines[1]
end

-- Puts a lane to its place in its group, by its first job and by its oldest.
local function index_lane(lane, group, keyed, buckets)
  local lines, oldest = call('ZRANGE', named('heads', lane), 0, -1, 'WITHSCORES'), math.huge
  if keyed and not opened[lane] and is_kept(lane, group, lines) then return end
  for n = 2, #lines, 2 do oldest = math.min(oldest, tonumber(lines[n]) % SPAN) end
  local fair = is_fair(group)
  if fair then index_fair(lane, group, lines) end
  if lines[1] then
    opened[lane] = true
    if not fair then call('ZADD', named('lanes', group), lines[2], lane) end
    call('ZADD', named('ages', group), whole(oldest), lane)
  else
    opened[lane] = nil
    if not fair then call('ZREM', named('lanes', group), lane) end
    call('ZREM', named('ages', group), lane)
    for _, bucket in ipairs(buckets) do
      if bucket[2] ~= '' then freed[name_of(bucket)] = true end
    end
  end
end

-- There may be room in the bucket: opens the first lanes of each group, also more than have room, for the order in which
-- jobs start is that of the turn. A rate without room has one opened that waits for no moment so far, to be told its
-- own. Who is to hear of it is told later.
local function open_waiting(name)
  local groups = call('SMEMBERS', named('waits', name))
  if #groups == 0 then return end
  waiting[name] = groups
  local limit, has_room = room_of(name).limit, room_in(name) > 0
  if is_gate(name) or not has_room and limit.kind == 'concurrency' then return end
  for _, group in ipairs(groups) do
    for _, lane in ipairs(call('ZRANGE', waiting_key(group, name), 0, has_room and OPENED - 1 or 0)) do
      if has_room or not call('ZSCORE', PARKED_UNTIL, lane) then open(lane, name) end
    end
  end
end

-- After lanes have changed and room was freed: brings all that follows from it to rest.
local function settle_lanes()
  while next(pending) or next(freed) do
    local lanes, names = pending, freed
    pending, freed = {}, {}
    for lane, buckets in pairs(lanes) do
      local group, keyed, root = group_of(lane)
      grown[group] = root
      index_lane(lane, group, keyed, buckets)
    end
    for name in pairs(names) do open_waiting(name) end
  end
end

-- Puts the groups that have changed to their places in their roots: one of fair keys before all of its priority, for
-- whose turn it is is seen inside.
local function settle_groups()
  local groups = grown
  grown = {}
  for queue in pairs(moved_clocks) do
    for priority, vtime in pairs(clocks[queue]) do call('HSET', named('clocks', queue), priority, vtime) end
  end
  moved_clocks = {}
  for group, root in pairs(groups) do
    local first = call('ZRANGE', named('lanes', group), 0, 0, 'WITHSCORES')[2]
    local fair, is_new, is_gone = is_fair(group), false, false
    if first and fair then first = place(-first, 0) end
    if first then
      is_new = call('ZADD', named('heads', root), first, '#' .. group) == 1
    else
      is_gone = call('ZREM', named('heads', root), '#' .. group) == 1
    end
    if fair then settle_clock(queue_in(group), group, is_new, is_gone) end
  end
end

-- All who wait for a gate look again: it has changed.
local function wake_waiting(name)
  for _, group in ipairs(call('SMEMBERS', named('waits', name))) do wakes[queue_in(group)] = true end
  call('DEL', named('waits', name))
  call('SREM', named('crowded', limit_in(name)), name)
end

-- Wakes those who listen where something may start now that waited for room.
local function tell_waiting()
  for name, groups in pairs(waiting) do
    if room_in(name) > 0 then
      for _, group in ipairs(groups) do wakes[queue_in(group)] = true end
      if is_gate(name) then
        call('DEL', named('waits', name))
        call('SREM', named('crowded', limit_in(name)), name)
      end
    end
  end
  for queue in pairs(wakes) do wake_up(queue) end
  waiting, wakes = {}, {}
end

-- A limit has changed: all who wait for it are looked at, so many buckets at a time. Returns how many are left.
local function reopen(limit)
  if limit then call('SUNIONSTORE', REOPEN, REOPEN, named('crowded', limit)) end
  for _, name in ipairs(call('SPOP', REOPEN, 500)) do freed[name] = true end
  settle_lanes()
  return call('SCARD', REOPEN)
end
