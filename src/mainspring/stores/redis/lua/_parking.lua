-- parking: lanes with keys whose bucket is full leave the index of their group until there may be room, so that a claim
-- meets them once. Needs common, heads, wake, rooms, lines.
-- A parked lane stands by its place in `waiting` for its group and the bucket, and by its moment in `parked_until` if
-- that is known. Whoever frees room opens the first ones of each group. An open lane that goes, to wait for another
-- bucket or because it is empty, has the next ones opened: room must not lie idle.
-- gives: opened, wakes, PARKED_UNTIL, is_gate, note, park, open_due, settle_lanes, settle_groups, tell_waiting, reopen
-- gives: wake_waiting, look_again
local PARKED_ON, REOPEN = TAG .. 'parked', TAG .. 'reopen'
local PARKED_UNTIL = TAG .. 'parked_until'
local OPENED = 100 -- lanes of one group that are opened at once
local grown, waiting = {}, {}
local opened = {}
local wakes = {}

local function parts_of(lane) return string.match(lane, '^([^/]*/[^#!?]*)(#?[^=!?]*)([^!?]*)(.*)$') end
local function queue_in(lane) return (string.match(lane, '^[^/]*')) end
local function is_gate(name) return not string.find(name, '=', 1, true) end
local function waiting_key(group, name) return named('waiting', group .. '\0' .. name) end

local function group_of(lane)
  local base, gates, keys, marks = parts_of(lane)
  return base .. gates .. marks, keys ~= '', base .. string.match(marks, '^!?')
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
  call('ZREM', named('lanes', group), lane)
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
  if lines[1] then
    opened[lane] = true
    call('ZADD', named('lanes', group), lines[2], lane)
    call('ZADD', named('ages', group), whole(oldest), lane)
  else
    opened[lane] = nil
    call('ZREM', named('lanes', group), lane)
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

-- Puts the groups that have changed to their places in their roots.
local function settle_groups()
  local groups = grown
  grown = {}
  for group, root in pairs(groups) do
    local first = call('ZRANGE', named('lanes', group), 0, 0, 'WITHSCORES')[2]
    if first then
      call('ZADD', named('heads', root), first, '#' .. group)
    else
      call('ZREM', named('heads', root), '#' .. group)
    end
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
