-- uses: common, heads, settings*, wake, parts*, lines, rooms*, parking*, moves
-- forget_limit: the buckets of this limit let everything through
-- args: now, limit
-- returns whether there was one, and how many buckets are still to be looked at for those who wait
with_rooms()
if call('HDEL', LIMITS, ARGV[2]) == 0 then return {0, 0} end
call('HDEL', TAG .. 'breakers', ARGV[2])
if is_guard(ARGV[2]) then call('DEL', named('bucket', ARGV[2])) end
local left = reopen(ARGV[2])
flush()
return {1, left}
