-- rooms: how much room buckets have. Needs common. A bucket is [limit, key, cost]; without a key it is a gate.
-- Each is read once in a script, what starts is counted here at once, and write_rooms() writes it.
-- A limit is stored as [kind, size, per, burst, what somebody set in place of its size or false]. Of a rate are kept the
-- starts, oldest first (the first and the last moment that an entry stands for, and how much), their sum, and the
-- moment before which nothing starts; of a smooth one instead of starts the moment at which all of it is back.
-- Of a breaker is kept how it stands, if it is not simply closed: [failures, calls, until when it is open or 0, since when,
-- whether somebody has begun to probe it, whether it was opened by hand, what failed last, and by parts of its window the
-- beginning, successes and failures].
-- Jobs are counted in a gate: as many have a place there as are running and name it, for every way into and out of
-- running passes seat() and vacate(). In a bucket with a key each of them stands, and in a breaker those that have started
-- since it opened.
-- gives: room_of, LIMITS, RATES, RESTS, freed, name_of, limit_in, declare_missing, free, vacate, running_in, load_rate
-- gives: fits, room_in, use_up, occupy, seat, write_rooms, lacking, worth, spare_for, buckets_in
-- gives: news, is_guard, switch_of, close_switch, put_switch, narrow, describe, tell_news
local LIMITS = TAG .. 'limits'
local RATES = TAG .. 'rates'
local RESTS = TAG .. 'rests'
local PLACES = TAG .. 'places'
local PIECES = 1000 -- of a window: starts that are no further apart are one entry
local ROOMY = 100 -- a limit of which less is left is short, and one of which less than half is: see records.py
local BREAKERS = TAG .. 'breakers'
local FOREVER = 4503599627370496
local limits, rooms, switches = {}, {}, {}
local freed = {}
local news = {}

local function name_of(bucket) return bucket[2] == '' and bucket[1] or bucket[1] .. '=' .. bucket[2] end
local function limit_in(name) return (string.match(name, '^[^=]*')) end
local function is_guard(name) return sub(name, -8) == ':breaker' and not string.find(name, '=', 1, true) end

-- What a limited job, as it is stored, needs room in: one table for all that have nothing beside it. Then how that stands
-- there, where, and its lane.
local known = {}
local function buckets_in(raw)
  local _, lane, at = struct.unpack('>Hc0Hc0', raw, 100 + byte(raw, 99))
  local more = sub(raw, at, at + struct.unpack('>I4', raw, 87) - 1)
  local buckets = known[more]
  if not buckets then
    buckets = cmsgpack.unpack(more).b
    known[more] = buckets
  end
  return buckets, more, at, lane
end

local function read_limit(raw)
  local kind, size, per, burst, set, share, span = unpack(cmsgpack.unpack(raw), 1, 7)
  return {kind = kind, size = set or size, per = per, burst = burst, share = share, span = span}
end

-- False for one that nobody has declared: it lets everything through.
local function limit_of(name)
  local limit = limits[name]
  if limit == nil then
    local raw = call('HGET', LIMITS, name)
    limit = raw and read_limit(raw)
    limits[name] = limit
  end
  return limit
end

local function declare_missing(packed)
  for _, limit in ipairs(cmsgpack.unpack(packed)) do
    call('HSETNX', LIMITS, limit[1], cmsgpack.pack({limit[2], limit[3], limit[4], limit[5], false, limit[6], limit[7]}))
    limits[limit[1]] = nil
  end
end

local function room_of(name)
  local room = rooms[name]
  if not room then
    local counts = not string.find(name, '=', 1, true) and not is_guard(name)
    room = {name = name, limit = limit_of(limit_in(name)), counts = counts, change = 0, ids = {}, running = false}
    rooms[name] = room
  end
  return room
end

local function close_switch(switch)
  switch.failures, switch.calls, switch.till, switch.opened = 0, 0, 0, 0
  switch.half, switch.tripped, switch.error, switch.counts = false, false, '', {}
  return switch
end

-- How a breaker stands; false for one that is closed and has nothing to forget.
local function switch_of(name)
  if switches[name] == nil then
    local raw, switch = call('HGET', BREAKERS, name), false
    if raw then
      switch = {}
      switch.failures, switch.calls, switch.till, switch.opened, switch.half, switch.tripped, switch.error, switch.counts =
        unpack(cmsgpack.unpack(raw), 1, 8)
    end
    switches[name] = switch
  end
  return switches[name]
end

local function put_switch(name, switch)
  if switch.till == 0 then call('DEL', named('bucket', name)) end
  if switch.till == 0 and switch.failures == 0 and #switch.counts == 0 then
    switches[name] = false
    call('HDEL', BREAKERS, name)
    return
  end
  switches[name] = switch
  call('HSET', BREAKERS, name, cmsgpack.pack({
    switch.failures, switch.calls, switch.till, switch.opened, switch.half, switch.tripped, switch.error, switch.counts,
  }))
end

-- What lies before the window goes, what is of one part of it is one.
local function narrow(switch, limit)
  local parts, order = {}, {}
  for _, part in ipairs(switch.counts) do
    if part[1] > NOW - limit.span then
      if not parts[part[1]] then
        parts[part[1]] = {part[1], 0, 0}
        order[#order + 1] = parts[part[1]]
      end
      local sum = parts[part[1]]
      sum[2], sum[3] = sum[2] + part[2], sum[3] + part[3]
    end
  end
  switch.counts, switch.failures, switch.calls = order, 0, 0
  for _, part in ipairs(order) do
    switch.failures, switch.calls = switch.failures + part[3], switch.calls + part[2] + part[3]
  end
end

-- A breaker as the reply tells of it: name, state, failures, calls, since when, until when, error, opened by hand.
local function describe(room)
  local switch = switch_of(room.name) or close_switch({})
  if switch.till == 0 then
    if room.limit.share > 0 then narrow(switch, room.limit) end
    local error = switch.failures > 0 and switch.error or ''
    return {room.name, 'closed', switch.failures, switch.calls, false, false, error, 0}
  end
  return {
    room.name, switch.till > NOW and 'open' or 'half_open', switch.failures, switch.calls, switch.opened,
    switch.till < FOREVER and switch.till, switch.error, switch.tripped and 1 or 0,
  }
end

local function tell_news(name) news[#news + 1] = describe(room_of(name)) end

-- How many a breaker lets through; of one that is half open who was let in since counts.
local function guard_room(room)
  local switch = switch_of(room.name)
  if not switch or switch.till == 0 then return math.huge end
  if switch.till > NOW then return 0 end
  if not room.running then
    room.running = call('ZCOUNT', named('bucket', room.name), whole(switch.till), '+inf')
      + call('ZCOUNT', named('visitors', room.name), '(' .. whole(NOW), '+inf')
  end
  return room.limit.size - room.running
end

-- The first that is let in to a half open breaker is told of.
local function begin_probe(room)
  local switch = switch_of(room.name)
  if not switch or switch.half or switch.till == 0 or switch.till > NOW then return end
  switch.half = true
  put_switch(room.name, switch)
  tell_news(room.name)
end

-- Somebody left the bucket: who waits for it is looked for by settle_lanes().
local function free(name)
  freed[name] = true
  if rooms[name] then rooms[name].running = nil end
end

local function running_in(room)
  if not room.running then
    local jobs = room.counts and (call('HGET', PLACES, room.name) or 0) + room.change
      or call('ZCARD', named('bucket', room.name)) + #room.ids
    room.running = jobs + call('ZCOUNT', named('visitors', room.name), '(' .. whole(NOW), '+inf')
  end
  return room.running
end

-- So many jobs leave the bucket; for a closed breaker nobody waits. Where they stand, `ids` tells which they are.
local function vacate(name, n, ids)
  local is_breaker = is_guard(name)
  if is_breaker and not switch_of(name) then return end
  if is_breaker or string.find(name, '=', 1, true) then
    spread('ZREM', named('bucket', name), ids)
  else
    local room = room_of(name)
    room.change = room.change - n
  end
  free(name)
end

-- The nth of its starts; the newest may have been changed by this script. Most ask for few: more are read each time.
local function entry_of(room, n)
  if room.newest and n >= room.total then return n == room.total and room.newest or nil end
  if not room.entries[n] then
    room.chunk = math.min(2 * (room.chunk or 1), 64)
    for m, raw in ipairs(call('LRANGE', named('starts', room.name), n - 1, n + room.chunk - 2)) do
      room.entries[n + m - 1] = {struct.unpack('>ddd', raw)}
    end
  end
  return room.entries[n]
end

-- A rate as it stands now: `over` of its oldest starts count no more.
local function load_rate(room)
  if room.used then return end
  local raw = call('HGET', RATES, room.name)
  room.used, room.tat, room.pause, room.over, room.entries = 0, 0, 0, 0, {}
  if not raw then return end
  room.used, room.tat, room.pause = struct.unpack('>ddd', raw)
  local entry = room.used > 0 and entry_of(room, 1)
  while entry and entry[2] + room.limit.per <= NOW do
    room.used, room.over = room.used - entry[3], room.over + 1
    entry = entry_of(room, room.over + 1)
  end
end

-- When enough of its starts have run out.
local function rate_moment(room, cost)
  local used, n, at = room.used, room.over, NOW
  while used + cost > room.limit.size do
    n = n + 1
    local entry = entry_of(room, n)
    if not entry then break end
    used, at = used - entry[3], entry[2] + room.limit.per
  end
  return at
end

local function smooth_moment(room, cost)
  local limit = room.limit
  local each = limit.per / limit.size
  return math.max(NOW, math.ceil(room.tat + (cost - math.max(limit.burst, cost)) * each))
end

-- Whether a start at that cost fits into the bucket now; if not, the moment at which it does, where that is known.
local function fits(name, cost)
  local room = room_of(name)
  local limit = room.limit
  if not limit then return true end
  if limit.size <= 0 then return false end
  if limit.kind == 'concurrency' then return running_in(room) < limit.size end
  if limit.kind == 'breaker' then
    if guard_room(room) > 0 then return true end
    local till = switch_of(name).till
    return false, till > NOW and till < FOREVER and till or nil
  end
  load_rate(room)
  cost = math.min(cost, limit.size)
  local at = math.max(room.pause, limit.kind == 'rate' and rate_moment(room, cost) or smooth_moment(room, cost))
  if at <= NOW then return true end
  return false, at
end

-- How many starts at a cost of 1 fit now.
local function room_in(name)
  local room = room_of(name)
  local limit = room.limit
  if not limit then return math.huge end
  if limit.size <= 0 then return 0 end
  if limit.kind == 'concurrency' then return limit.size - running_in(room) end
  if limit.kind == 'breaker' then return guard_room(room) end
  load_rate(room)
  if room.pause > NOW then return 0 end
  if limit.kind == 'rate' then return limit.size - room.used end
  local each = limit.per / limit.size
  return math.floor(math.max(limit.burst, 1) - math.max(room.tat - NOW, 0) / each)
end

-- How much of a gate may be used up before it is short.
local function spare_in(name)
  local room = room_of(name)
  local limit = room.limit
  if not limit then return math.huge end
  if limit.kind == 'breaker' then return guard_room(room) == math.huge and math.huge or 0 end
  if limit.kind ~= 'concurrency' then return 0 end
  return room_in(name) - math.max(math.floor(limit.size / 2), ROOMY)
end

-- How many jobs may start in these buckets before one of those has a place in a short one.
local function spare_for(buckets)
  local spare = math.huge
  for _, bucket in ipairs(buckets) do
    if bucket[2] ~= '' then return 0 end
    spare = math.min(spare, spare_in(bucket[1]))
  end
  return math.max(spare, 0)
end

-- Uses up so much of a rate, now.
local function use_up(room, cost)
  local limit = room.limit
  load_rate(room)
  room.dirty = true
  if limit.kind == 'smooth' then
    room.tat = math.max(room.tat, NOW) + cost * limit.per / limit.size
    return
  end
  if not room.newest then
    room.total = call('LLEN', named('starts', room.name))
    local raw = call('LINDEX', named('starts', room.name), -1)
    room.newest = raw and {struct.unpack('>ddd', raw)}
  end
  local newest = room.newest
  room.used = room.used + cost
  if newest and NOW - newest[1] < limit.per / PIECES then
    newest[2], newest[3] = math.max(newest[2], NOW), newest[3] + cost
  else
    room.entries[room.total] = newest or nil
    room.newest, room.total, room.added = {NOW, NOW, cost}, room.total + 1, true
  end
end

-- So many start in the bucket, guests or jobs.
local function occupy(bucket, n, room)
  room = room or room_of(name_of(bucket))
  if room.running then room.running = room.running + n end
  local limit = room.limit
  if not limit or limit.kind == 'concurrency' then return end
  if limit.kind == 'breaker' then return begin_probe(room) end
  use_up(room, n * math.min(bucket[3], limit.size))
end

-- So many jobs start in the bucket, or this one.
local function seat(bucket, n, id)
  local name = name_of(bucket)
  local room = room_of(name)
  if room.counts then
    room.change = room.change + n
  elseif bucket[2] ~= '' or (switch_of(name) or {till = 0}).till > 0 then
    room.ids[#room.ids + 1] = id
  end
  occupy(bucket, n, room)
end

local function write_rate(room)
  local key = named('starts', room.name)
  if room.newest then
    local packed = struct.pack('>ddd', unpack(room.newest))
    if room.added then call('RPUSH', key, packed) else call('LSET', key, -1, packed) end
  end
  if room.over > 0 then call('LPOP', key, room.over) end
  call('HSET', RATES, room.name, struct.pack('>ddd', room.used, room.tat, room.pause))
  call('ZADD', RESTS, whole(math.ceil(math.max(room.pause, room.tat, NOW + room.limit.per))), room.name)
end

-- What was counted here is read anew afterwards, where somebody asks.
local function write_rooms()
  local now = whole(NOW)
  for name, room in pairs(rooms) do
    if room.ids[1] then
      local members = {}
      for n, id in ipairs(room.ids) do members[2 * n - 1], members[2 * n] = now, id end
      spread('ZADD', named('bucket', name), members)
    end
    if room.change ~= 0 and call('HINCRBY', PLACES, name, room.change) == 0 then call('HDEL', PLACES, name) end
    if room.dirty then write_rate(room) end
  end
  rooms = {}
end

-- The first of these buckets that lacks room for a job, and when it will have it, if anybody knows: gates stand before
-- buckets with keys, and one whose moment nobody knows before the others.
local function lacking(buckets)
  local name, moment, gate
  for _, bucket in ipairs(buckets) do
    if gate and bucket[2] ~= '' then break end
    local fit, at = fits(name_of(bucket), bucket[3])
    if not fit and (not name or not at or at > moment) then
      name, moment, gate = name_of(bucket), at, bucket[2] == ''
      if not at then break end
    end
  end
  return name, moment
end

-- How many entries of a lane are worth reading: as many as have room, once it is known what they need, and no more than
-- `allowed` that have it in short buckets.
local function worth(buckets, allowed)
  if not buckets then return 1 end
  local most = math.min(500, spare_for(buckets) + allowed)
  for _, bucket in ipairs(buckets) do most = math.min(most, room_in(name_of(bucket))) end
  return math.max(most, 1)
end
