-- uses: jobs, limits_spent*, take_back, fleet
-- rescue: running -> ready | retrying | dead | cancelled, for all jobs of a worker whose heartbeat number has not
-- changed
-- args: now, worker, number, cause, delays
-- returns whether it was done, ready, retrying, dead, cancelled
local worker, number, cause, delays = ARGV[2], ARGV[3], ARGV[4], cmsgpack.unpack(ARGV[5])
local row = call('HMGET', named('worker', worker), 'number', 'lost')
if row[1] ~= number or row[2] == '1' then return {0, {}, {}, {}, {}} end
pass_when_full()
call('HSET', named('worker', worker), 'lost', 1)
local moved = take_back(worker, cause, delays)
flush()
return moved
