-- uses: common
-- runs: what became of the occurrences of a schedule, the latest first
-- args: now, schedule, before which (`(` and a moment, or `+inf`), how many at most
-- returns occurrences and runs (see _schedules.lua) in turn
local found = {}
local order = call('ZREVRANGEBYSCORE', named('occurrences', ARGV[2]), ARGV[3], '-inf', 'LIMIT', 0, ARGV[4])
for n, at in ipairs(order) do found[2 * n - 1], found[2 * n] = at, call('HGET', named('runs', ARGV[2]), at) end
return found
