-- uses: common
-- prune of limits: deletes rates that say nothing any more, and old fencing tokens
-- args: now, how many to look at, microseconds for which fencing tokens are kept
-- returns the greater of the two numbers of deleted entries
local RATE_ENDS, FENCES = TAG .. 'rate_ends', TAG .. 'fences'
local limit = tonumber(ARGV[2])
local names = call('ZRANGEBYSCORE', RATE_ENDS, '-inf', NOW, 'LIMIT', 0, limit)
for _, name in ipairs(names) do
  call('HDEL', TAG .. 'rates', name)
  call('UNLINK', named('rate_starts', name))
  call('ZREM', RATE_ENDS, name)
end
local old = call('ZRANGEBYSCORE', FENCES, '-inf', whole(NOW - tonumber(ARGV[3])), 'LIMIT', 0, limit)
spread('ZREM', FENCES, old)
return math.max(#names, #old)
