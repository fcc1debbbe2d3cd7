-- breakers: the stored state of a breaker. Needs common, limits.
-- A breaker that is closed and counts no failure is not stored. Else it is stored as [failures, calls, the moment until
-- which it is open or 0, the moment it opened, whether a probe has begun, whether it was opened by hand, the last
-- error, and for each piece of its window the beginning, successes and failures].
-- gives: changed_breakers, breaker_of, close_breaker, put_breaker, narrow_window, describe_breaker, report_change
local BREAKERS = TAG .. 'breakers'
local breakers = {}
local changed_breakers = {}

local function close_breaker(breaker)
  breaker.failures, breaker.calls, breaker.till, breaker.opened = 0, 0, 0, 0
  breaker.half, breaker.tripped, breaker.error, breaker.counts = false, false, '', {}
  return breaker
end

-- False for a breaker that is closed and counts no failure.
local function breaker_of(name)
  if breakers[name] == nil then
    local raw, breaker = call('HGET', BREAKERS, name), false
    if raw then
      local failures, calls, till, opened, half, tripped, error, counts = unpack(cmsgpack.unpack(raw), 1, 8)
      breaker = {
        failures = failures, calls = calls, till = till, opened = opened, half = half, tripped = tripped,
        error = error, counts = counts,
      }
    end
    breakers[name] = breaker
  end
  return breakers[name]
end

local function put_breaker(name, breaker)
  if breaker.till == 0 then call('DEL', named('bucket_jobs', name)) end
  if breaker.till == 0 and breaker.failures == 0 and #breaker.counts == 0 then
    breakers[name] = false
    call('HDEL', BREAKERS, name)
    return
  end
  breakers[name] = breaker
  call('HSET', BREAKERS, name, cmsgpack.pack({
    breaker.failures, breaker.calls, breaker.till, breaker.opened, breaker.half, breaker.tripped, breaker.error,
    breaker.counts,
  }))
end

-- Drops the pieces that are older than the window, and joins counts of the same piece.
local function narrow_window(breaker, limit)
  local pieces, order = {}, {}
  for _, piece in ipairs(breaker.counts) do
    if piece[1] > NOW - limit.span then
      if not pieces[piece[1]] then
        pieces[piece[1]] = {piece[1], 0, 0}
        order[#order + 1] = pieces[piece[1]]
      end
      local sum = pieces[piece[1]]
      sum[2], sum[3] = sum[2] + piece[2], sum[3] + piece[3]
    end
  end
  breaker.counts, breaker.failures, breaker.calls = order, 0, 0
  for _, piece in ipairs(order) do
    breaker.failures, breaker.calls = breaker.failures + piece[3], breaker.calls + piece[2] + piece[3]
  end
end

-- A breaker as replies show it: name, state, failures, calls, moment it opened, open until, error, opened by hand.
local function describe_breaker(capacity)
  local breaker = breaker_of(capacity.name) or close_breaker({})
  if breaker.till == 0 then
    if capacity.limit.share > 0 then narrow_window(breaker, capacity.limit) end
    local error = breaker.failures > 0 and breaker.error or ''
    return {capacity.name, {BREAKER_CLOSED}, breaker.failures, breaker.calls, false, false, error, 0}
  end
  return {
    capacity.name, breaker.till > NOW and {BREAKER_OPEN} or {BREAKER_HALF_OPEN}, breaker.failures, breaker.calls,
    breaker.opened, breaker.till < {FOREVER} and breaker.till, breaker.error, breaker.tripped and 1 or 0,
  }
end

-- Adds the breaker to those that the reply of the script names as changed.
local function report_change(name) changed_breakers[#changed_breakers + 1] = describe_breaker(capacity_of(name)) end

-- The number of starts that a breaker allows. While it is half open, jobs and holders since its end count as probes.
local function breaker_headroom(capacity)
  local breaker = breaker_of(capacity.name)
  if not breaker or breaker.till == 0 then return math.huge end
  if breaker.till > NOW then return 0 end
  if not capacity.running then
    capacity.running = call('ZCOUNT', named('bucket_jobs', capacity.name), whole(breaker.till), '+inf')
      + call('ZCOUNT', named('bucket_holders', capacity.name), '(' .. whole(NOW), '+inf')
  end
  return capacity.limit.size - capacity.running
end

-- The first probe of a half open breaker is reported as a change.
local function begin_probe(capacity)
  local breaker = breaker_of(capacity.name)
  if not breaker or breaker.half or breaker.till == 0 or breaker.till > NOW then return end
  breaker.half = true
  put_breaker(capacity.name, breaker)
  report_change(capacity.name)
end
