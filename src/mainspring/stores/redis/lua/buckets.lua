-- uses: common, rooms
-- buckets: how they stand, by the rules of the claim; those of unknown limits are left out
-- args: now, buckets [limit, key, cost]
-- returns for each: name, limit, kind, size, used, when a start fits that does not now or false, ten holders, and
--         of a breaker how it stands (see _rooms.lua) or false
local rows = {}
for _, bucket in ipairs(cmsgpack.unpack(ARGV[2])) do
  local name = name_of(bucket)
  local room = room_of(name)
  local limit = room.limit
  if limit then
    local _, at = fits(name, bucket[3])
    local used
    if limit.kind == 'concurrency' then
      used = running_in(room)
    elseif limit.kind == 'breaker' then
      used = room.running or 0
    else
      load_rate(room)
      used = limit.kind == 'rate' and room.used or math.ceil(math.max(room.tat - NOW, 0) * limit.size / limit.per)
    end
    local holders = call('ZRANGE', named('bucket', name), 0, 9)
    rows[#rows + 1] = {name, bucket[1], limit.kind, limit.size, used, at or false, holders, limit.kind == 'breaker' and describe(room)}
  end
end
return rows
