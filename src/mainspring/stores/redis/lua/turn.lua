-- uses: jobs, limits_spent*, lanes_moved, take_back*, ack_handback*, ack, claims
-- turn: running -> the state that its ack says; ready -> running for the wants of a worker
-- args: now, worker, turn [number, seen, suspects, wants [lanes, n, ahead], number of plain
--       successes, with holds, breakers to write or read], holds (id and token, {LEASE_BYTES} bytes each), then the
--       acks (see _ack.lua)
-- returns now, lost, claims (id, job, id, job, ...), already, stale, orders [id, token, reason], gone (as they came),
--       whether there may be more, whether the store is full, when a rate has capacity or false, queues in which an
--       unkeyed limit was full, the breakers, whether claims ahead passed over a job that may start
local worker, holds = ARGV[2], ARGV[4]
local number, seen, suspects, wants, plain, with_holds, swaps = unpack(cmsgpack.unpack(ARGV[3]), 1, 7)
local row = call('HMGET', named('worker', worker), 'turn', 'lost')
local last = tonumber(row[1])

-- The leases that the worker holds and that are not valid any more, without those that this turn acknowledges.
local function gone_leases()
  local acked, gone = {}, {}
  for n = 5, 4 + plain do acked[sub(ARGV[n], 1, {LEASE_BYTES})] = true end
  for n = 6 + plain, #ARGV, 2 do acked[sub(ARGV[n], 1, {LEASE_BYTES})] = true end
  for first = 1, #holds, {LEASE_BYTES} do
    local lease = sub(holds, first, first + {LEASE_BYTES} - 1)
    local raw = call('HGET', JOBS, sub(lease, 1, {ID_BYTES}))
    local owner = sub(lease, {ID_BYTES} + 1) .. string.char(#worker) .. worker
    local valid = raw and byte(raw) == {RUNNING} and sub(raw, {TOKEN_AT}, {TOKEN_AT} - 1 + #owner) == owner
    if not valid and not acked[lease] then gone[#gone + 1] = lease end
  end
  return gone
end

-- checks
if not last or row[2] == '1' then return {NOW, 1, {}, {}, {}, {}, {}, 0, 0, false, {}, {}, 0} end
if number < last then
  return redis.error_reply('CONFLICT turn ' .. whole(number) .. ' after ' .. whole(last))
end

-- writes; a full store accepts acks and claims no jobs
local is_full = false
do
  local noted = redis.pcall('HSET', named('worker', worker), 'turn', whole(number))
  if type(noted) == 'table' and noted.err then
    is_full = string.find(noted.err, 'OOM', 1, true)
    if not is_full then return noted end
    pass_when_full()
    call('HSET', named('worker', worker), 'turn', whole(number))
  end
end

-- acks
local already, stale = apply_acks(worker, plain, 5)
local breakers = {}
if #swaps > 0 then
  with_limits()
  breakers = swap_breakers(swaps)
end
flush(true)

-- claims
if seen < last or number == last then claim_again(worker, math.min(seen, number - 1), holds) end
if number > last and not is_full then claim(worker, number, suspects, wants) end
add_counts(counts)
if write_capacities then
  write_capacities()
  wake_waiting_queues()
end

-- orders
local orders, ordered = {}, call('HGETALL', named('worker_orders', worker))
for n = 1, #ordered, 2 do orders[#orders + 1] = {ordered[n], live(ordered[n])[TOKEN], ordered[n + 1]} end
return {
  NOW, 0, claimed, already, stale, orders, with_holds and gone_leases() or {}, is_enough() and 1 or 0,
  is_full and #wants > 0 and 1 or 0, soonest, full_queues, breakers, passed_over and 1 or 0,
}
