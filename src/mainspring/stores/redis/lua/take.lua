-- uses: common, heads, settings*, wake, lines, rooms*, parking*, moves, guests
-- take: places for a guest in all of the buckets or in none; one that has its places has them for longer
-- args: now, guest, how long, buckets [limit, key, cost], limits that are made if there are none
-- returns now, whether, until when, and when to ask again or false, the bucket that had no room, breakers that it is the first
--         to probe
with_rooms()
local guest, till, buckets = ARGV[2], whole(NOW + tonumber(ARGV[3])), cmsgpack.unpack(ARGV[4])
declare_missing(ARGV[5])

if is_there(guest) then
  buckets = cmsgpack.unpack(call('HGET', VISITS, guest))
else
  end_visit(guest)
  local full, moment = nil, false
  for _, bucket in ipairs(buckets) do
    local fit, at = fits(name_of(bucket), bucket[3])
    if not fit and (not full or moment) then
      full = full or name_of(bucket)
      moment = at and math.max(at, moment or 0) or nil
    end
  end
  if full then
    flush()
    return {NOW, 0, 0, moment or false, full, {}}
  end
  for _, bucket in ipairs(buckets) do occupy(bucket) end
  call('HSET', VISITS, guest, ARGV[4])
end
call('ZADD', GUESTS, till, guest)
for _, bucket in ipairs(buckets) do call('ZADD', named('visitors', name_of(bucket)), till, guest) end
flush()
return {NOW, 1, NOW + tonumber(ARGV[3]), false, '', news}
