-- uses: common
-- look: the schedules that are to be looked at now, the earliest first
-- args: now, how many at most
-- returns now, names and rows in turn, the row of the next one or false
local SCHEDULES, LOOKS = TAG .. 'schedules', TAG .. 'looks'
local names, found = call('ZRANGEBYSCORE', LOOKS, '-inf', NOW, 'LIMIT', 0, ARGV[2]), {}
for n, name in ipairs(names) do found[2 * n - 1], found[2 * n] = name, call('HGET', SCHEDULES, name) end
local next_one = call('ZRANGE', LOOKS, #names, #names)[1]
return {NOW, found, next_one and call('HGET', SCHEDULES, next_one) or false}
