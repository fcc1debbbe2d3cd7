-- uses: common, heads, settings*, wake, parts*, lines, rooms*, parking*, moves
-- set_size: what a limit lets through in place of its declared size, or nothing else than that
-- args: now, limit, size or empty
-- returns whether there is such a limit, and how many buckets are still to be looked at for those who wait
with_rooms()
local stored = call('HGET', LIMITS, ARGV[2])
if not stored then return {0, 0} end
local limit, size = cmsgpack.unpack(stored), tonumber(ARGV[3]) or false
if limit[5] == size then return {1, 0} end
limit[5] = size
pass_when_full()
call('HSET', LIMITS, ARGV[2], cmsgpack.pack(limit))
local left = reopen(ARGV[2])
flush()
return {1, left}
