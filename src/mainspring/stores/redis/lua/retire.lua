-- uses: common, moves, acks, takeback
-- retire: the last acks of a worker, then what it still holds goes back; its row goes
-- args: now, worker, cause, delays, acks, then the bytes of each ack (see _acks.lua)
-- returns taken, ready, retrying, dead, cancelled
local worker, cause, delays, acks = ARGV[2], ARGV[3], cmsgpack.unpack(ARGV[4]), cmsgpack.unpack(ARGV[5])
local lost = call('HGET', named('worker', worker), 'lost')
if lost ~= '0' then return {0, {}, {}, {}, {}} end
call('SREM', WORKERS, worker)
call('DEL', named('worker', worker))
settle_all(worker, acks, 6)
local moved = take_back(worker, cause, delays)
flush()
return moved
