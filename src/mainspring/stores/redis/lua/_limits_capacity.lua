-- limits_capacity: whether buckets have capacity for a start, and what starts and ends do to it. Needs common, limits,
-- breakers, limits_rates.
-- Of an unkeyed limit the number of running jobs that name it is stored: every way into and out of running passes
-- take_capacity() and free_capacity(). A keyed bucket, and a breaker since it opened, has a sorted set of the jobs.
-- gives: mark_freed, free_capacity, running_in, fits, count_start, take_capacity, write_capacities, first_full
-- gives: entries_worth_reading, plentiful_starts
local BUCKET_COUNTS = TAG .. 'bucket_counts'
local freed = {}

-- A job or a holder left the bucket: settle_lanes() opens the lanes that wait for it.
local function mark_freed(name)
  freed[name] = true
  if capacities[name] then capacities[name].running = nil end
end

local function running_in(capacity)
  if not capacity.running then
    local jobs = capacity.counts and (call('HGET', BUCKET_COUNTS, capacity.name) or 0) + capacity.change
      or call('ZCARD', named('bucket_jobs', capacity.name)) + #capacity.ids
    capacity.running = jobs + call('ZCOUNT', named('bucket_holders', capacity.name), '(' .. whole(NOW), '+inf')
  end
  return capacity.running
end

-- `n` jobs leave the bucket; where they are members of a sorted set, `ids` are these jobs. No lane waits for a closed
-- breaker.
local function free_capacity(name, n, ids)
  local is_breaker = is_breaker_name(name)
  if is_breaker and is_closed(name) then return end
  if is_breaker or not is_unkeyed(name) then
    spread('ZREM', named('bucket_jobs', name), ids)
  else
    local capacity = capacity_of(name)
    capacity.change = capacity.change - n
  end
  mark_freed(name)
end

-- Whether a start of this cost fits into the bucket now. If not, also the moment at which it will, if that is known.
local function fits(name, cost)
  local capacity = capacity_of(name)
  local limit = capacity.limit
  if not limit then return true end
  if limit.size <= 0 then return false end
  if limit.kind == {LIMIT_CONCURRENCY} then return running_in(capacity) < limit.size end
  if limit.kind == {LIMIT_BREAKER} then
    if breaker_headroom(capacity) > 0 then return true end
    local till = breaker_of(name).till
    return false, till > NOW and till < {FOREVER} and till or nil
  end
  load_rate(capacity)
  cost = math.min(cost, limit.size)
  local at = limit.kind == {LIMIT_RATE} and rate_moment(capacity, cost) or smooth_moment(capacity, cost)
  at = math.max(capacity.pause, at)
  if at <= NOW then return true end
  return false, at
end

-- The number of starts of cost 1 that fit into the bucket now.
local function headroom_in(name)
  local capacity = capacity_of(name)
  local limit = capacity.limit
  if not limit then return math.huge end
  if limit.size <= 0 then return 0 end
  if limit.kind == {LIMIT_CONCURRENCY} then return limit.size - running_in(capacity) end
  if limit.kind == {LIMIT_BREAKER} then return breaker_headroom(capacity) end
  load_rate(capacity)
  if capacity.pause > NOW then return 0 end
  if limit.kind == {LIMIT_RATE} then return limit.size - capacity.used end
  return math.max(math.max(limit.burst, 1) - smooth_used(capacity), 0)
end

-- The number of starts after which an unkeyed limit is still plentiful: at least half of it and at least {PLENTIFUL} are
-- free. See limits/records.py.
local function plentiful_in(name)
  local capacity = capacity_of(name)
  local limit = capacity.limit
  if not limit then return math.huge end
  if limit.kind == {LIMIT_BREAKER} then return breaker_headroom(capacity) == math.huge and math.huge or 0 end
  if limit.kind ~= {LIMIT_CONCURRENCY} then return 0 end
  return headroom_in(name) - math.max(math.floor(limit.size / 2), {PLENTIFUL})
end

-- The number of jobs that may start in these buckets while all of them stay plentiful. A keyed bucket never is.
local function plentiful_starts(buckets)
  local starts = math.huge
  for _, bucket in ipairs(buckets) do
    if bucket[2] ~= '' then return 0 end
    starts = math.min(starts, plentiful_in(bucket[1]))
  end
  return math.max(starts, 0)
end

-- Counts `n` starts of jobs or holders in the bucket.
local function count_start(bucket, n, capacity)
  capacity = capacity or capacity_of(name_of(bucket))
  if capacity.running then capacity.running = capacity.running + n end
  local limit = capacity.limit
  if not limit or limit.kind == {LIMIT_CONCURRENCY} or limit.kind == {LIMIT_BREAKER} then return end
  use_rate(capacity, math.min(bucket[3], limit.size), n)
end

-- `n` jobs start in the bucket, or the job `id`.
local function take_capacity(bucket, n, id)
  local name = name_of(bucket)
  local capacity = capacity_of(name)
  if capacity.counts then
    capacity.change = capacity.change + n
  elseif bucket[2] ~= '' or not is_closed(name) then
    capacity.ids[#capacity.ids + 1] = id
  end
  count_start(bucket, n, capacity)
end

-- Writes what was counted in this script. A later question reads the buckets again.
local function write_capacities()
  local now = whole(NOW)
  for name, capacity in pairs(capacities) do
    if capacity.ids[1] then
      local members = {}
      for n, id in ipairs(capacity.ids) do members[2 * n - 1], members[2 * n] = now, id end
      spread('ZADD', named('bucket_jobs', name), members)
    end
    if capacity.change ~= 0 and call('HINCRBY', BUCKET_COUNTS, name, capacity.change) == 0 then
      call('HDEL', BUCKET_COUNTS, name)
    end
    if capacity.dirty then write_rate(capacity) end
  end
  capacities = {}
end

-- The bucket for which a job has to wait, and the moment at which it fits, if that is known. Unkeyed limits come before
-- keyed buckets; a bucket without a known moment comes before the others, then the one with the latest moment.
local function first_full(buckets)
  local name, moment, unkeyed
  for _, bucket in ipairs(buckets) do
    if unkeyed and bucket[2] ~= '' then break end
    local fit, at = fits(name_of(bucket), bucket[3])
    if not fit and (not name or not at or at > moment) then
      name, moment, unkeyed = name_of(bucket), at, bucket[2] == ''
      if not at then break end
    end
  end
  return name, moment
end

-- The number of entries of a lane to read: as many as fit into the buckets, once these are known. Claims `ahead` leave
-- the buckets plentiful.
local function entries_worth_reading(buckets, ahead)
  if not buckets then return 1 end
  local most = math.min({CLAIM_ALL}, ahead and plentiful_starts(buckets) or math.huge)
  for _, bucket in ipairs(buckets) do most = math.min(most, headroom_in(name_of(bucket))) end
  return math.max(most, 1)
end
