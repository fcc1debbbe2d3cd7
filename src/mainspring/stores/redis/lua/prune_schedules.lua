-- uses: common
-- prune of schedules: the numbers of those that went long ago
-- args: now, for how long they are kept
-- returns how many went
return call('ZREMRANGEBYSCORE', TAG .. 'gone', '-inf', '(' .. whole(NOW - tonumber(ARGV[2])))
