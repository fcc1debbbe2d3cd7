-- uses: common, heads, settings*, wake, parts*, lines, rooms*, parking*, moves, guests
-- take: places for a guest in all of the buckets or in none; one that has its places has them for longer. Without buckets
--       nothing else is done
-- args: now, guest, how long, buckets [limit, key, cost], limits that are made if there are none, for how long to keep the
--       next places for guests, what it says of itself, whether its places come with a number
-- returns now, whether, until when, and when to ask again or false, the bucket that had no room, whether the next places
--         are kept for guests, breakers that it is the first to probe, its number or 0
with_rooms()
local guest, till, buckets = ARGV[2], NOW + tonumber(ARGV[3]), cmsgpack.unpack(ARGV[4])
local keep, token = tonumber(ARGV[6]), 0
declare_missing(ARGV[5])

-- The next places in these are kept, unless a guest has just given one back there. Returns whether one is in each.
local function keep_places(stuck)
  local all = true
  for _, bucket in ipairs(stuck) do
    local name = name_of(bucket)
    if keep > 0 and not is_there(rest_in(name)) then
      local kept_till = whole(math.max(NOW + keep, tonumber(call('ZSCORE', GUESTS, next_in(name)) or 0)))
      call('HSET', VISITS, next_in(name), cmsgpack.pack({{bucket}, 0, NOW, ''}))
      call('ZADD', GUESTS, kept_till, next_in(name))
      call('ZADD', named('visitors', name), kept_till, next_in(name))
    end
    all = all and is_there(next_in(name))
  end
  return all
end

if is_there(guest) then
  buckets, token = visit_of(guest)
  till = math.max(till, tonumber(call('ZSCORE', GUESTS, guest)))
else
  end_visit(guest)
  if not buckets[1] then
    flush()
    return {NOW, 0, 0, false, '', 0, {}, 0}
  end
  local stuck, full, moment = {}, nil, false
  for _, bucket in ipairs(buckets) do
    local room = room_of(name_of(bucket))
    if is_there(next_in(room.name)) then room.running = running_in(room) - 1 end -- it is there for this one
    local fit, at = fits(room.name, bucket[3])
    if not fit and (not full or moment) then
      full = full or room.name
      moment = at and math.max(at, moment or 0) or nil
    end
    if not fit then
      stuck[#stuck + 1] = bucket
      if room.limit.kind ~= 'concurrency' then keep = 0 end
    end
  end
  if full then
    local kept = keep_places(stuck)
    flush()
    return {NOW, 0, 0, moment or false, full, kept and 1 or 0, {}, 0}
  end
  for _, bucket in ipairs(buckets) do
    if is_there(next_in(name_of(bucket))) then end_visit(next_in(name_of(bucket))) end
    occupy(bucket, 1)
  end
  if ARGV[8] == '1' then token = number_for(buckets) end
  call('HSET', VISITS, guest, cmsgpack.pack({buckets, token, NOW, ARGV[7]}))
end
call('ZADD', GUESTS, whole(till), guest)
for _, bucket in ipairs(buckets) do call('ZADD', named('visitors', name_of(bucket)), whole(till), guest) end
flush()
return {NOW, 1, till, false, '', 0, news, token}
