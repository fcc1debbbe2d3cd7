-- uses: common
-- prune of schedules: deletes the revisions of schedules that were deleted long ago
-- args: now, microseconds for which they are kept
-- returns the number of deleted entries
return call('ZREMRANGEBYSCORE', TAG .. 'schedules_gone', '-inf', '(' .. whole(NOW - tonumber(ARGV[2])))
