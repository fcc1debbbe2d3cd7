-- uses: common
-- due_schedules: the schedules whose moment of the next look has come, the earliest first
-- args: now, how many at most
-- returns now, names and rows in turn, the row of the next schedule or false
local SCHEDULES, LOOKS = TAG .. 'schedules', TAG .. 'schedule_looks'
local names, found = call('ZRANGEBYSCORE', LOOKS, '-inf', NOW, 'LIMIT', 0, ARGV[2]), {}
for n, name in ipairs(names) do found[2 * n - 1], found[2 * n] = name, call('HGET', SCHEDULES, name) end
local following = call('ZRANGE', LOOKS, #names, #names)[1]
return {NOW, found, following and call('HGET', SCHEDULES, following) or false}
