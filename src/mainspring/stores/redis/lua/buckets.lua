-- uses: common, rows, lane_fields, wakeups, lanes, limits, holders
-- buckets: the state of buckets by the rules of the claim; buckets of limits that are not declared are left out
-- args: now, buckets [limit, key, cost]
-- returns for each: name, limit, kind, size, used, the moment at which a start fits or false if it fits now or that is
--         not known, up to {HOLDERS_SHOWN} jobs that use it, and of a breaker its state (see _breakers.lua) or false
with_limits()

-- The oldest running jobs that name an unkeyed limit, as the moment of the claim and the id. They are not stored: the
-- script looks at {HOLDERS_SEARCHED} running jobs at most.
local function jobs_in_unkeyed(wanted)
  local found, looked = {}, 0
  for _, worker in ipairs(call('SMEMBERS', TAG .. 'workers')) do
    local ids = call('SMEMBERS', named('worker_jobs', worker))
    for first = 1, math.min(#ids, {HOLDERS_SEARCHED} - looked), {ARGUMENTS} do
      for n, raw in ipairs(call('HMGET', JOBS, unpack(ids, first, math.min(first + {ARGUMENTS} - 1, #ids)))) do
        local is_named = false
        if band(byte(raw, {ENDS_AT}), {FLAG_LIMITED}) > 0 then
          for _, bucket in ipairs(buckets_in(raw)) do is_named = is_named or name_of(bucket) == wanted end
        end
        if is_named then found[#found + 1] = sub(raw, {STARTED_AT}, {STARTED_END}) .. ids[first + n - 1] end
      end
    end
    looked = looked + #ids
  end
  table.sort(found)
  local jobs = {}
  for n = 1, math.min(#found, {HOLDERS_SHOWN}) do jobs[n] = sub(found[n], 9) end
  return jobs
end

local function used_in(capacity)
  local limit = capacity.limit
  if limit.kind == {LIMIT_CONCURRENCY} then
    local used = running_in(capacity)
    -- While the limit is full, the capacity that is reserved for holders is not free and does not count as used.
    if used > limit.size and is_holding(reserve_of(capacity.name)) then used = used - 1 end
    return used
  end
  if limit.kind == {LIMIT_BREAKER} then return capacity.running or 0 end
  load_rate(capacity)
  return limit.kind == {LIMIT_RATE} and capacity.used or smooth_used(capacity)
end

local function jobs_in(capacity)
  if not capacity.counts then return call('ZRANGE', named('bucket_jobs', capacity.name), 0, {HOLDERS_SHOWN} - 1) end
  return call('HEXISTS', TAG .. 'bucket_counts', capacity.name) == 1 and jobs_in_unkeyed(capacity.name) or {}
end

local rows = {}
for _, bucket in ipairs(cmsgpack.unpack(ARGV[2])) do
  local name = name_of(bucket)
  local capacity = capacity_of(name)
  local limit = capacity.limit
  if limit then
    local _, at = fits(name, bucket[3])
    local breaker = limit.kind == {LIMIT_BREAKER} and describe_breaker(name)
    rows[#rows + 1] = {
      name, bucket[1], limit.kind, limit.size, used_in(capacity), at or false, jobs_in(capacity), breaker,
    }
  end
end
return rows
