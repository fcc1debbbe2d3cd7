-- uses: common, heads, settings*, wake, parts*, lines, rooms*, parking*, moves, breakers*, spending*, places, relane*, acks, claims, limited*, fair*, fronts
-- turn: running -> by its acks; ready -> running for its wants
-- args: now, worker, turn [number, seen, suspects, wants [lanes, n, oldest, limited or false], plain successes, with
--       holds, successes in numbers [breaker, how many]], holds (id and token, 24 bytes each), then the acks (see _acks.lua)
-- returns now, lost, claims (id, job, id, job, ...), already, stale, orders [id, token, reason], gone (as they came),
--       whether there may be more, whether there is no room, when a rate lets something through or false, queues in
--       which a gate had no room, breakers that have changed, ids of those claimed that have a place in a short bucket
local worker, holds = ARGV[2], ARGV[4]
local number, seen, suspects, wants, plain, with_holds, good = unpack(cmsgpack.unpack(ARGV[3]), 1, 7)
local row = call('HMGET', named('worker', worker), 'turn', 'lost')
local last = tonumber(row[1])

-- Which of the leases it holds are not good any more, those apart of which it tells by this turn.
local function gone_of()
  local acked, gone = {}, {}
  for n = 5, 4 + plain do acked[sub(ARGV[n], 1, 24)] = true end
  for n = 6 + plain, #ARGV, 2 do acked[sub(ARGV[n], 1, 24)] = true end
  for first = 1, #holds, 24 do
    local lease = sub(holds, first, first + 23)
    local raw = call('HGET', JOBS, sub(lease, 1, 16))
    local owner = sub(lease, 17) .. string.char(#worker) .. worker
    local good = raw and byte(raw) == RUNNING and sub(raw, 91, 90 + #owner) == owner
    if not good and not acked[lease] then gone[#gone + 1] = lease end
  end
  return gone
end

-- checks
if not last or row[2] == '1' then return {NOW, 1, {}, {}, {}, {}, {}, 0, 0, false, {}, {}, {}} end
if number < last then
  return redis.error_reply('CONFLICT turn ' .. whole(number) .. ' after ' .. whole(last))
end

-- writes; a full store takes acks without handing out more
local full = false
do
  local noted = redis.pcall('HSET', named('worker', worker), 'turn', whole(number))
  if type(noted) == 'table' and noted.err then
    full = string.find(noted.err, 'OOM', 1, true)
    if not full then return noted end
    pass_when_full()
    call('HSET', named('worker', worker), 'turn', whole(number))
  end
end
if #good > 0 and number > last then
  with_rooms()
  with_breakers()
  hear_numbers(good)
end
local already, stale = settle_all(worker, plain, 5)
flush(true)

if seen < last or number == last then claim_again(worker, math.min(seen, number - 1), holds) end
if number > last and not full then claim(worker, number, suspects, wants) end
add_counts(counts)
if write_rooms then
  write_rooms()
  tell_waiting()
end

local orders, ordered = {}, call('HGETALL', named('orders', worker))
for n = 1, #ordered, 2 do orders[#orders + 1] = {ordered[n], live(ordered[n])[TOKEN], ordered[n + 1]} end
return {
  NOW, 0, claimed, already, stale, orders, with_holds and gone_of() or {}, is_enough() and 1 or 0,
  full and #wants > 0 and 1 or 0, soonest, crowded, news or {}, short,
}
