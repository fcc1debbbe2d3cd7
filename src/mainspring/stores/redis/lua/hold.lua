-- uses: jobs, holders
-- hold: takes capacity for a holder in all of the buckets or in none; a holder that has its capacity gets a later end.
--       Without buckets an existing hold is renewed and nothing else is done
-- args: now, holder, ttl, buckets [limit, key, cost], limits to declare if they are missing, microseconds for which to
--       reserve the next free capacity for holders, info, whether the hold gets a fencing token
-- returns now, whether it holds, until when, the moment to ask again or false, the bucket that was full, whether the
--         next capacity in each full bucket is reserved for holders, its token or 0
with_limits()
local holder, till, buckets = ARGV[2], NOW + tonumber(ARGV[3]), cmsgpack.unpack(ARGV[4])
local keep, token = tonumber(ARGV[6]), 0
declare_missing(ARGV[5])

-- Reserves the next capacity in the full buckets, unless a holder has just released capacity there. Returns whether all
-- of the buckets have a reserve.
local function reserve(stuck)
  local all = true
  for _, bucket in ipairs(stuck) do
    local name = name_of(bucket)
    local own = reserve_of(name)
    if keep > 0 and not is_holding(rest_of(name)) then
      local kept_till = whole(math.max(NOW + keep, tonumber(call('ZSCORE', HOLDERS, own) or 0)))
      call('HSET', HOLDS, own, cmsgpack.pack({ {bucket}, 0, NOW, ''}))
      call('ZADD', HOLDERS, kept_till, own)
      call('ZADD', named('bucket_holders', name), kept_till, own)
    end
    all = all and is_holding(own)
  end
  return all
end

-- The buckets that are full, the name of the first of them, and the moment at which all of them fit, if that is known.
local function full_buckets()
  local stuck, full, moment = {}, nil, false
  for _, bucket in ipairs(buckets) do
    local capacity = capacity_of(name_of(bucket))
    -- the reserve is for this holder
    if is_holding(reserve_of(capacity.name)) then capacity.running = running_in(capacity) - 1 end
    local fit, at = fits(capacity.name, bucket[3])
    if not fit and (not full or moment) then
      full = full or capacity.name
      moment = at and math.max(at, moment or 0) or nil
    end
    if not fit then
      stuck[#stuck + 1] = bucket
      if capacity.limit.kind ~= {LIMIT_CONCURRENCY} then keep = 0 end
    end
  end
  return stuck, full, moment
end

if is_holding(holder) then
  buckets, token = hold_of(holder)
  till = math.max(till, tonumber(call('ZSCORE', HOLDERS, holder)))
else
  release_holder(holder)
  if not buckets[1] then
    flush()
    return {NOW, 0, 0, false, '', 0, 0}
  end
  local stuck, full, moment = full_buckets()
  if full then
    local reserved = reserve(stuck)
    flush()
    return {NOW, 0, 0, moment or false, full, reserved and 1 or 0, 0}
  end
  for _, bucket in ipairs(buckets) do
    local own = reserve_of(name_of(bucket))
    if is_holding(own) then release_holder(own) end
    count_start(bucket, 1)
  end
  if ARGV[8] == '1' then token = token_for(buckets) end
  call('HSET', HOLDS, holder, cmsgpack.pack({buckets, token, NOW, ARGV[7]}))
end
call('ZADD', HOLDERS, whole(till), holder)
for _, bucket in ipairs(buckets) do call('ZADD', named('bucket_holders', name_of(bucket)), whole(till), holder) end
flush()
return {NOW, 1, till, false, '', 0, token}
