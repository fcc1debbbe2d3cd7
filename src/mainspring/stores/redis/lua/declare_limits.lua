-- uses: jobs
-- declare_limits: stores limits; a size that was set by hand stays
-- args: now, limits [name, kind, size, per, burst, share, span]
-- returns the number of buckets whose waiting lanes are still to be rechecked
with_limits()
local left, changed_limits = 0, {}
for _, limit in ipairs(cmsgpack.unpack(ARGV[2])) do
  local before = call('HGET', LIMITS, limit[1])
  local set = before and cmsgpack.unpack(before)[5] or false
  local packed = cmsgpack.pack({limit[2], limit[3], limit[4], limit[5], set, limit[6], limit[7]})
  if packed ~= before then
    call('HSET', LIMITS, limit[1], packed)
    changed_limits[#changed_limits + 1] = limit[1]
  end
end
for _, name in ipairs(changed_limits) do left = recheck_buckets(name) end
flush()
return left
