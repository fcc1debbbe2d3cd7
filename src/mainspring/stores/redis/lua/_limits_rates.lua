-- limits_rates: how much of a rate is used. Needs common, limits.
-- A rate keeps its starts, oldest first (the first and the last start of an entry, and their cost), the
-- sum of the costs, and a pause: the moment before which nothing starts. A smooth rate has no starts: it keeps `tat`,
-- the moment at which its whole burst is available again. The formulas of smooth rates are those of
-- stores/shared/rates.py, in whole microseconds.
-- gives: load_rate, use_rate, smooth_time, smooth_used, bring_back_rates
local RATES, RATE_ENDS = TAG .. 'rates', TAG .. 'rate_ends'

-- The nth start. The newest may have been changed by this script. Most callers read few starts: each read asks for
-- more.
local function start_at(capacity, n)
  if capacity.newest and n >= capacity.total then return n == capacity.total and capacity.newest or nil end
  if not capacity.entries[n] then
    capacity.chunk = math.min(2 * (capacity.chunk or 1), {STARTS_READ})
    for m, raw in ipairs(call('LRANGE', named('rate_starts', capacity.name), n - 1, n + capacity.chunk - 2)) do
      capacity.entries[n + m - 1] = {struct.unpack('>ddd', raw)}
    end
  end
  return capacity.entries[n]
end

-- Reads a rate as it is now. `over`: the number of its oldest starts that do not count any more.
local function load_rate(capacity)
  if capacity.used then return end
  local raw = call('HGET', RATES, capacity.name)
  capacity.used, capacity.tat, capacity.pause, capacity.over, capacity.entries = 0, 0, 0, 0, {}
  if not raw then return end
  capacity.used, capacity.tat, capacity.pause = struct.unpack('>ddd', raw)
  local entry = capacity.used > 0 and start_at(capacity, 1)
  while entry and entry[2] + capacity.limit.per <= NOW do
    capacity.used, capacity.over = capacity.used - entry[3], capacity.over + 1
    entry = start_at(capacity, capacity.over + 1)
  end
end

-- The moment at which enough starts have left the window.
local function rate_moment(capacity, cost)
  local used, n, at = capacity.used, capacity.over, NOW
  while used + cost > capacity.limit.size do
    n = n + 1
    local entry = start_at(capacity, n)
    if not entry then break end
    used, at = used - entry[3], entry[2] + capacity.limit.per
  end
  return at
end

-- The microseconds that a start of this cost takes.
local function smooth_time(limit, cost) return math.ceil(cost * limit.per / limit.size) end

-- `tat` without what the rounding of starts has added.
local function smooth_back(capacity)
  local limit = capacity.limit
  if limit.per % limit.size == 0 then return capacity.tat end
  return capacity.tat - math.min(math.max(limit.burst, 1), smooth_time(limit, 1) - 1)
end

-- The units of a smooth rate that are not available again yet.
local function smooth_used(capacity)
  local limit = capacity.limit
  return math.ceil(math.max(smooth_back(capacity) - NOW, 0) * limit.size / math.max(limit.per, 1))
end

local function smooth_moment(capacity, cost)
  local limit = capacity.limit
  cost = math.max(cost, 1)
  local early = math.floor((math.max(limit.burst, cost) - cost) * limit.per / limit.size)
  return math.max(NOW, smooth_back(capacity) - early)
end

-- Counts `n` starts of this cost in a rate, now.
local function use_rate(capacity, cost, n)
  local limit = capacity.limit
  load_rate(capacity)
  capacity.dirty = true
  if limit.kind == {LIMIT_SMOOTH} then
    capacity.tat = math.max(capacity.tat, NOW) + n * smooth_time(limit, cost)
    return
  end
  cost = n * cost
  if not capacity.newest then
    capacity.total = call('LLEN', named('rate_starts', capacity.name))
    local raw = call('LINDEX', named('rate_starts', capacity.name), -1)
    capacity.newest = raw and {struct.unpack('>ddd', raw)}
  end
  local newest = capacity.newest
  capacity.used = capacity.used + cost
  if newest and NOW - newest[1] < limit.per / {RATE_PIECES} then
    newest[2], newest[3] = math.max(newest[2], NOW), newest[3] + cost
  else
    capacity.entries[capacity.total] = newest or nil
    capacity.newest, capacity.total, capacity.added = {NOW, NOW, cost}, capacity.total + 1, true
  end
end

local function write_rate(capacity)
  local key = named('rate_starts', capacity.name)
  if capacity.newest then
    local packed = struct.pack('>ddd', unpack(capacity.newest))
    if capacity.added then call('RPUSH', key, packed) else call('LSET', key, -1, packed) end
  end
  if capacity.over > 0 then call('LPOP', key, capacity.over) end
  call('HSET', RATES, capacity.name, struct.pack('>ddd', capacity.used, capacity.tat, capacity.pause))
  local ends = math.max(capacity.pause, capacity.tat, NOW + capacity.limit.per)
  call('ZADD', RATE_ENDS, whole(math.ceil(ends)), capacity.name)
end

-- The clock of the server was set back by `step`. A start that lies ahead counts from now on; `tat` lies at most one
-- window ahead; a pause keeps the time that was left of it.
local function bring_back_rates(step)
  for _, name in ipairs(call('ZRANGEBYSCORE', RATE_ENDS, '(' .. whole(NOW), '+inf')) do
    local raw, limit = call('HGET', RATES, name), limit_of(limit_in(name))
    if raw and limit then
      local used, tat, pause = struct.unpack('>ddd', raw)
      if tat > NOW then
        local window = math.max(limit.per, limit.size > 0 and smooth_time(limit, math.max(limit.burst, 1)) or 0)
        tat = math.min(tat, NOW + window)
      end
      if pause > NOW then pause = math.max(NOW, pause - step) end
      call('HSET', RATES, name, struct.pack('>ddd', used, tat, pause))
      local key = named('rate_starts', name)
      for n, packed in ipairs(call('LRANGE', key, 0, -1)) do
        local first, last, cost = struct.unpack('>ddd', packed)
        if last > NOW then call('LSET', key, n - 1, struct.pack('>ddd', math.min(first, NOW), NOW, cost)) end
      end
    end
  end
end
