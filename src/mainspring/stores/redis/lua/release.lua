-- uses: jobs, limits_spent, holders
-- release: frees the capacity of a holder
-- args: now, holder, what it really cost by limit [limit, cost], microseconds for which its rates let nothing through
-- returns whether the hold existed and was not over
with_limits()
local holder = ARGV[2]
local held = is_holding(holder)
pass_when_full()
local buckets = release_holder(holder)
for _, bucket in ipairs(held and buckets or {}) do
  local name = name_of(bucket)
  if is_holding(reserve_of(name)) then
    release_holder(reserve_of(name))
    call('HSET', HOLDS, rest_of(name), cmsgpack.pack({ {}, 0, NOW, ''}))
    call('ZADD', HOLDERS, whole(NOW + {HOLDER_REST}), rest_of(name))
  end
end
if held then correct_costs(buckets, cmsgpack.unpack(ARGV[3]), tonumber(ARGV[4])) end
flush()
return held and 1 or 0
