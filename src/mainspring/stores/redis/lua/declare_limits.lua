-- uses: common, heads, settings*, wake, parts*, lines, rooms*, parking*, moves
-- declare: these limits stand from now on; what somebody set in place of a size stays
-- args: now, limits [name, kind, size, per, burst, share, span]
-- returns how many buckets are still to be looked at for those who wait
with_rooms()
local left, declared, changed_limits = 0, cmsgpack.unpack(ARGV[2]), {}
for _, limit in ipairs(declared) do
  local before = call('HGET', LIMITS, limit[1])
  local set = before and cmsgpack.unpack(before)[5] or false
  local packed = cmsgpack.pack({limit[2], limit[3], limit[4], limit[5], set, limit[6], limit[7]})
  if packed ~= before then
    call('HSET', LIMITS, limit[1], packed)
    changed_limits[#changed_limits + 1] = limit[1]
  end
end
for _, name in ipairs(changed_limits) do left = reopen(name) end
flush()
return left
