-- holders: capacity outside of a claim (limiters, locks), for a time. Needs common, limits.
-- `holds` has for each holder a packed [its buckets, its fencing token or 0, the moment it began, its info].
local HOLDERS, HOLDS, FENCES = TAG .. 'holders', TAG .. 'holds', TAG .. 'fences'

local function hold_of(holder)
  local raw = call('HGET', HOLDS, holder)
  if not raw then return {}, 0 end
  return unpack(cmsgpack.unpack(raw), 1, 2)
end

-- Frees the capacity of a holder. Returns the buckets that it held.
local function release_holder(holder)
  local buckets = hold_of(holder)
  call('ZREM', HOLDERS, holder)
  call('HDEL', HOLDS, holder)
  for _, bucket in ipairs(buckets) do
    call('ZREM', named('bucket_holders', name_of(bucket)), holder)
    mark_freed(name_of(bucket))
  end
  return buckets
end

-- Two holders that the store itself makes for a bucket. The first reserves its next free capacity for holders, so that
-- jobs do not take it. The second is there for a short time after a release, in which nothing is reserved.
local function reserve_of(name) return 'next\0' .. name end
local function rest_of(name) return 'rest\0' .. name end

local function is_holding(holder)
  local till = call('ZSCORE', HOLDERS, holder)
  return till and tonumber(till) > NOW
end

-- The next fencing token of these buckets: greater than any token that was given for them.
local function token_for(buckets)
  local token = NOW
  for _, bucket in ipairs(buckets) do
    token = math.max(token, (tonumber(call('ZSCORE', FENCES, name_of(bucket))) or 0) + 1)
  end
  for _, bucket in ipairs(buckets) do call('ZADD', FENCES, whole(token), name_of(bucket)) end
  return token
end
