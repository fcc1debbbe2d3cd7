-- uses: common
-- dependencies: the schedules that wait for others
-- args: now, how many waiting jobs to name
-- returns for each: its name, packed the names it waits for, those of them that have not succeeded yet, its waiting
--         jobs
local found, rows = {}, call('HGETALL', TAG .. 'dependencies')
for n = 1, #rows, 2 do
  local schedule = rows[n]
  local jobs = call('ZRANGE', named('awaiting', schedule), 0, ARGV[2] - 1)
  found[#found + 1] = {schedule, rows[n + 1], call('SMEMBERS', named('missing', schedule)), jobs}
end
return found
