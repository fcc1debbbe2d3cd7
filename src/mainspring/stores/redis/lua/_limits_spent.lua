-- spending: what is said of rates after a start. Needs common, rooms.
-- gives: correct

-- Takes back so much of what was used up, from the newest starts.
local function give_back(room, cost)
  local key, limit = named('starts', room.name), room.limit
  load_rate(room)
  if limit.kind == 'smooth' then
    room.tat, room.dirty = room.tat - cost * limit.per / limit.size, true
    return free(room.name)
  end
  write_rooms()
  room = room_of(room.name)
  load_rate(room)
  local last = call('LLEN', key)
  while cost > 0 and last > room.over do
    local first, latest, n = struct.unpack('>ddd', call('LINDEX', key, -1))
    local given = math.min(cost, n)
    cost, room.used, room.dirty = cost - given, room.used - given, true
    if given < n then
      call('LSET', key, -1, struct.pack('>ddd', first, latest, n - given))
    else
      call('RPOP', key)
      last = last - 1
    end
  end
  room.entries = {}
  free(room.name)
end

-- What a start in these buckets really cost, by limit [[limit, cost], ...], and how long their rates let nothing through.
local function correct(buckets, spent, slow)
  local real = {}
  for _, pair in ipairs(spent) do real[pair[1]] = pair[2] end
  for _, bucket in ipairs(buckets) do
    local room = room_of(name_of(bucket))
    local limit = room.limit and room.limit.kind ~= 'breaker' and room.limit
    if limit and limit.kind ~= 'concurrency' and limit.size > 0 then
      local more = real[bucket[1]] and math.max(real[bucket[1]], 0) - math.min(bucket[3], limit.size) or 0
      if more > 0 then use_up(room, more) elseif more < 0 then give_back(room, -more) end
    end
    if limit and limit.kind ~= 'concurrency' and slow > 0 then
      room = room_of(room.name)
      load_rate(room)
      room.pause, room.dirty = math.max(room.pause, NOW + slow), true
    end
  end
end
