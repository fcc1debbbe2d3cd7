-- uses: jobs, limits_spent*, lanes_moved, take_back*, ack_handback*, ack, fleet
-- retire: applies the last acks of a worker, moves its other jobs out of running, and deletes its row
-- args: now, worker, cause, delays, number of plain successes, then the acks (see _ack.lua)
-- returns whether it was done, ready, retrying, dead, cancelled
local worker, cause, delays, plain = ARGV[2], ARGV[3], cmsgpack.unpack(ARGV[4]), tonumber(ARGV[5])
local lost = call('HGET', named('worker', worker), 'lost')
if lost ~= '0' then return {0, {}, {}, {}, {}} end
call('SREM', TAG .. 'workers', worker)
call('DEL', named('worker', worker))
apply_acks(worker, plain, 6)
with_take_back()
local moved = take_back(worker, cause, delays)
flush()
return moved
