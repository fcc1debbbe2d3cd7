-- uses: common, heads, settings*, wake, parts*, lines, rooms*, parking*, moves, breakers*, spending*, places, relane*, acks, takeback
-- retire: the last acks of a worker, then what it still holds goes back; its row goes
-- args: now, worker, cause, delays, how many plain successes, then the acks (see _acks.lua)
-- returns taken, ready, retrying, dead, cancelled, breakers that have changed
local worker, cause, delays, plain = ARGV[2], ARGV[3], cmsgpack.unpack(ARGV[4]), tonumber(ARGV[5])
local lost = call('HGET', named('worker', worker), 'lost')
if lost ~= '0' then return {0, {}, {}, {}, {}, {}} end
call('SREM', TAG .. 'workers', worker)
call('DEL', named('worker', worker))
settle_all(worker, plain, 6)
local moved = take_back(worker, cause, delays)
flush()
moved[6] = news or {}
return moved
