-- breakers: the stored rows of breakers. Needs common, limits.
-- A breaker that has counted nothing yet is closed and is not stored. Else it is stored as [number of the row, the moment
-- until which it is open or 0, the moment it opened or 0, what mainspring/breakers/counting.py keeps there].
-- gives: breaker_of, is_closed, swap_breakers, describe_breaker, breaker_headroom, bring_back_breakers
local BREAKERS = TAG .. 'breakers'
local breakers = {}

-- False for a breaker that is not stored.
local function breaker_of(name)
  if breakers[name] == nil then
    local raw = call('HGET', BREAKERS, name)
    local rev, till, opened, doc = unpack(raw and cmsgpack.unpack(raw) or {}, 1, 4)
    breakers[name] = raw and {rev = rev, till = till, opened = opened, doc = doc}
  end
  return breakers[name]
end

local function is_closed(name)
  local breaker = breaker_of(name)
  return not breaker or breaker.till == 0
end

-- A declared breaker in the fields of StoredBreaker; false if it is not declared.
local function describe_breaker(name)
  local limit, breaker = capacity_of(name).limit, breaker_of(name) or {rev = 0, till = 0, opened = 0, doc = ''}
  if not limit or limit.kind ~= {LIMIT_BREAKER} then return false end
  return {
    NOW, name, limit.size, limit.per, limit.burst, limit.share, limit.span, breaker.rev, breaker.till, breaker.opened,
    breaker.doc,
  }
end

-- Writes the row of a breaker. `open_for`: false leaves the state as it is.
local function put_breaker(name, breaker, swap)
  pass_when_full()
  local rev, open_for, doc = swap[3], swap[4], swap[5]
  local till, opened = breaker and breaker.till or 0, breaker and breaker.opened or 0
  if open_for then
    till, opened = 0, 0
    if open_for > 0 then till, opened = math.min(NOW + open_for, {FOREVER}), NOW end
    wake_for_unkeyed(name)
    capacity_of(name).running = nil
  end
  if till == 0 then call('DEL', named('bucket_jobs', name)) end
  breakers[name] = {rev = rev, till = till, opened = opened, doc = doc}
  call('HSET', BREAKERS, name, cmsgpack.pack({rev, till, opened, doc}))
end

-- Writes the breakers [name, expected number, new number or 0, open for or false, text] whose number is the expected
-- one. Returns all that are declared.
local function swap_breakers(swaps)
  local found = {}
  for _, swap in ipairs(swaps) do
    local name, breaker = swap[1], breaker_of(swap[1])
    if describe_breaker(name) then
      if swap[3] > 0 and (breaker and breaker.rev or 0) == swap[2] then put_breaker(name, breaker, swap) end
      found[#found + 1] = describe_breaker(name)
    end
  end
  return found
end

-- The number of starts that a breaker allows. While it is half open, jobs and holders since its end count as probes.
local function breaker_headroom(capacity)
  if is_closed(capacity.name) then return math.huge end
  local till = breaker_of(capacity.name).till
  if till > NOW then return 0 end
  if not capacity.running then
    capacity.running = call('ZCOUNT', named('bucket_jobs', capacity.name), whole(till), '+inf')
      + call('ZCOUNT', named('bucket_holders', capacity.name), '(' .. whole(NOW), '+inf')
  end
  return capacity.limit.size - capacity.running
end

-- The clock of the server was set back by `step`. A breaker that opened ahead keeps the time that was left of it.
local function bring_back_breakers(step)
  local rows = call('HGETALL', BREAKERS)
  for n = 1, #rows, 2 do
    local rev, till, opened, doc = unpack(cmsgpack.unpack(rows[n + 1]), 1, 4)
    if opened > NOW then
      if till < {FOREVER} then till = NOW + math.max(0, math.min(till - opened, till - step - NOW)) end
      breakers[rows[n]] = {rev = rev, till = till, opened = NOW, doc = doc}
      call('HSET', BREAKERS, rows[n], cmsgpack.pack({rev, till, NOW, doc}))
    end
  end
end
