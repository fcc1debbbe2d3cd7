-- uses: jobs
-- set_limit_size: sets a size by hand that replaces the declared size of a limit, or removes it
-- args: now, limit, size or empty
-- returns whether the limit exists, and the number of buckets whose waiting lanes are still to be rechecked
with_limits()
local stored = call('HGET', LIMITS, ARGV[2])
if not stored then return {0, 0} end
local limit, size = cmsgpack.unpack(stored), tonumber(ARGV[3]) or false
if limit[5] == size then return {1, 0} end
limit[5] = size
pass_when_full()
call('HSET', LIMITS, ARGV[2], cmsgpack.pack(limit))
local left = recheck_buckets(ARGV[2])
flush()
return {1, left}
