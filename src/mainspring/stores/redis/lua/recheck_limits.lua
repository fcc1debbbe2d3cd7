-- uses: jobs
-- recheck_limits: goes on with the recheck of lanes that wait for a changed limit
-- returns the number of buckets that are left
with_limits()
local left = recheck_buckets()
flush()
return left
