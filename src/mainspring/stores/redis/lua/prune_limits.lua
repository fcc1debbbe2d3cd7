-- uses: common, rooms
-- prune of rates: starts whose window is over; and numbers of guests that are old
-- args: now, how many to look at, how long numbers are kept
-- returns how many went, of those of which there were more
local names = call('ZRANGEBYSCORE', RESTS, '-inf', NOW, 'LIMIT', 0, tonumber(ARGV[2]))
for _, name in ipairs(names) do
  call('HDEL', RATES, name)
  call('UNLINK', named('starts', name))
  call('ZREM', RESTS, name)
end
local old = call('ZRANGEBYSCORE', TAG .. 'fences', '-inf', whole(NOW - tonumber(ARGV[3])), 'LIMIT', 0, tonumber(ARGV[2]))
spread('ZREM', TAG .. 'fences', old)
return math.max(#names, #old)
