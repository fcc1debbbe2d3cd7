-- guests: places outside of a claim, for a time. Needs common, rooms.
-- What is kept of a guest is [its buckets, the number of its stay or 0, since when, what it says of itself].
local GUESTS, VISITS, FENCES = TAG .. 'guests', TAG .. 'visits', TAG .. 'fences'

local function visit_of(guest)
  local raw = call('HGET', VISITS, guest)
  if not raw then return {}, 0 end
  return unpack(cmsgpack.unpack(raw), 1, 2)
end

-- The guest's places are free. Returns the buckets in which it was.
local function end_visit(guest)
  local buckets = visit_of(guest)
  call('ZREM', GUESTS, guest)
  call('HDEL', VISITS, guest)
  for _, bucket in ipairs(buckets) do
    call('ZREM', named('visitors', name_of(bucket)), guest)
    free(name_of(bucket))
  end
  return buckets
end

-- Who stands for the next place in a bucket, which is kept for guests; and for the time in which none is kept.
local function next_in(name) return 'next\0' .. name end
local function rest_in(name) return 'rest\0' .. name end

local function is_there(guest)
  local till = call('ZSCORE', GUESTS, guest)
  return till and tonumber(till) > NOW
end

-- The next number of these buckets: larger than any that they gave.
local function number_for(buckets)
  local token = NOW
  for _, bucket in ipairs(buckets) do
    token = math.max(token, (tonumber(call('ZSCORE', FENCES, name_of(bucket))) or 0) + 1)
  end
  for _, bucket in ipairs(buckets) do call('ZADD', FENCES, whole(token), name_of(bucket)) end
  return token
end
