-- uses: common
-- schedule_runs: the runs of a schedule, the latest occurrence first
-- args: now, schedule, upper bound of the occurrences (`(` and a moment, or `+inf`), how many at most
-- returns occurrences and runs (see _schedules.lua) in turn
local found = {}
local order = call('ZREVRANGEBYSCORE', named('occurrences', ARGV[2]), ARGV[3], '-inf', 'LIMIT', 0, ARGV[4])
for n, at in ipairs(order) do found[2 * n - 1], found[2 * n] = at, call('HGET', named('runs', ARGV[2]), at) end
return found
