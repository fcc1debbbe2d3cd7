-- limits: the declared limits, and the buckets that jobs name. Needs common.
-- First of the parts that with_limits() creates: limits, breakers, limits_rates, limits_capacity, limits_waiting. They
-- share their names.
-- A bucket is [limit, key, cost]; without a key it is an unkeyed limit. Its name is the limit, or limit=key. A limit is
-- stored as [kind, size, per, burst, the size that was set by hand or false, share, span].
-- Each bucket is read once in a script: its capacity is a table, starts are counted in it at once, and
-- write_capacities() writes it.
-- gives: capacity_of, LIMITS, name_of, is_unkeyed, is_breaker_name, buckets_in, declare_missing
local LIMITS = TAG .. 'limits'
local limits, capacities = {}, {}

local function name_of(bucket) return bucket[2] == '' and bucket[1] or bucket[1] .. '=' .. bucket[2] end
local function limit_in(name) return (string.match(name, '^[^=]*')) end
local function is_unkeyed(name) return not string.find(name, '=', 1, true) end
local function is_breaker_name(name) return sub(name, -#{BREAKER_SUFFIX}) == {BREAKER_SUFFIX} and is_unkeyed(name) end

-- The buckets of a stored job with limits: one table for all jobs that have the same rare fields. Also returns the
-- packed rare fields, their offset, and the lane.
local known = {}
local function buckets_in(raw)
  local _, lane, at = struct.unpack('>Hc0Hc0', raw, {NAMES_AT} + byte(raw, {WORKER_SIZE_AT}))
  local more = sub(raw, at, at + struct.unpack('>I4', raw, {MORE_SIZE_AT}) - 1)
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

-- False for a limit that is not declared: it lets everything through.
local function limit_of(name)
  local limit = limits[name]
  if limit == nil then
    local raw = call('HGET', LIMITS, name)
    limit = raw and read_limit(raw)
    limits[name] = limit
  end
  return limit
end

-- Declares the limits of a packed list [name, kind, size, per, burst, share, span] that are not stored yet.
local function declare_missing(packed)
  for _, limit in ipairs(cmsgpack.unpack(packed)) do
    call('HSETNX', LIMITS, limit[1], cmsgpack.pack({limit[2], limit[3], limit[4], limit[5], false, limit[6], limit[7]}))
    limits[limit[1]] = nil
  end
end

-- The capacity of a bucket. `counts`: its running jobs are a number; else they are members of a sorted set.
local function capacity_of(name)
  local capacity = capacities[name]
  if not capacity then
    local counts = is_unkeyed(name) and not is_breaker_name(name)
    capacity = {name = name, limit = limit_of(limit_in(name)), counts = counts, change = 0, ids = {}, running = false}
    capacities[name] = capacity
  end
  return capacity
end
