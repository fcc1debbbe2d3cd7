-- uses: common, heads, rooms, guests
-- buckets: how they stand, by the rules of the claim; those of unknown limits are left out
-- args: now, buckets [limit, key, cost]
-- returns for each: name, limit, kind, size, used, when a start fits that does not now or false, ten holders, and
--         of a breaker how it stands (see _rooms.lua) or false
-- The oldest claims of running jobs that name a gate, as ids behind the moment. Nobody keeps them: they are looked for
-- among so many at most.
local MANY = 10000
local function holders_of(gate)
  local found, looked = {}, 0
  for _, worker in ipairs(call('SMEMBERS', TAG .. 'workers')) do
    local ids = call('SMEMBERS', named('running', worker))
    for first = 1, math.min(#ids, MANY - looked), 1000 do
      for n, raw in ipairs(call('HMGET', JOBS, unpack(ids, first, math.min(first + 999, #ids)))) do
        local is_in = false
        if byte(raw, 2) % 8 >= LIMITED then
          for _, bucket in ipairs(buckets_in(raw)) do is_in = is_in or name_of(bucket) == gate end
        end
        if is_in then found[#found + 1] = sub(raw, 19, 26) .. ids[first + n - 1] end
      end
    end
    looked = looked + #ids
  end
  table.sort(found)
  local holders = {}
  for n = 1, math.min(#found, 10) do holders[n] = sub(found[n], 9) end
  return holders
end

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
      -- While all places are taken, the next one that is kept for guests is none of them.
      if used > limit.size and is_there(next_in(name)) then used = used - 1 end
    elseif limit.kind == 'breaker' then
      used = room.running or 0
    else
      load_rate(room)
      used = limit.kind == 'rate' and room.used or math.ceil(math.max(room.tat - NOW, 0) * limit.size / limit.per)
    end
    local holders
    if room.counts then
      holders = call('HEXISTS', TAG .. 'places', name) == 1 and holders_of(name) or {}
    else
      holders = call('ZRANGE', named('bucket', name), 0, 9)
    end
    rows[#rows + 1] = {name, bucket[1], limit.kind, limit.size, used, at or false, holders, limit.kind == 'breaker' and describe(room)}
  end
end
return rows
