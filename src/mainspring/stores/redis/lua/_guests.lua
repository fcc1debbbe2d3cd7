-- guests: places outside of a claim, for a time. Needs common, rooms.
local GUESTS, VISITS = TAG .. 'guests', TAG .. 'visits'

-- The guest's places are free. Returns the buckets in which it was.
local function end_visit(guest)
  local raw = call('HGET', VISITS, guest)
  local buckets = raw and cmsgpack.unpack(raw) or {}
  call('ZREM', GUESTS, guest)
  call('HDEL', VISITS, guest)
  for _, bucket in ipairs(buckets) do
    call('ZREM', named('visitors', name_of(bucket)), guest)
    free(name_of(bucket))
  end
  return buckets
end

local function is_there(guest)
  local till = call('ZSCORE', GUESTS, guest)
  return till and tonumber(till) > NOW
end
