-- uses: jobs
-- forget_limit: deletes a limit; its buckets let everything through
-- args: now, limit
-- returns whether the limit existed, and the number of buckets whose waiting lanes are still to be rechecked
with_limits()
if call('HDEL', LIMITS, ARGV[2]) == 0 then return {0, 0} end
call('HDEL', TAG .. 'breakers', ARGV[2])
if is_breaker_name(ARGV[2]) then call('DEL', named('bucket_jobs', ARGV[2])) end
local left = recheck_buckets(ARGV[2])
flush()
return {1, left}
