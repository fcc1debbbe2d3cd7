-- uses: common
-- links: the parts that wait for others
-- args: now, how many of their jobs at most
-- returns for each: its name, packed those that it waits for, those of them that are missing, its jobs that wait
local found, links = {}, call('HGETALL', TAG .. 'links')
for n = 1, #links, 2 do
  local part = links[n]
  local jobs = call('ZRANGE', named('awaiting', part), 0, ARGV[2] - 1)
  found[#found + 1] = {part, links[n + 1], call('SMEMBERS', named('missing', part)), jobs}
end
return found
