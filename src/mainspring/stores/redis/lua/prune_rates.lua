-- uses: common, rooms
-- prune of rates: starts whose window is over
-- args: now, how many to look at
-- returns how many went
local names = call('ZRANGEBYSCORE', RESTS, '-inf', NOW, 'LIMIT', 0, tonumber(ARGV[2]))
for _, name in ipairs(names) do
  call('HDEL', RATES, name)
  call('UNLINK', named('starts', name))
  call('ZREM', RESTS, name)
end
return #names
