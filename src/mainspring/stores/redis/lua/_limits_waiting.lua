-- limits_waiting: lanes that wait for capacity. Needs common, rows, lane_fields, wakeups, lanes, limits,
-- limits_capacity. A keyed lane whose bucket is full leaves the index of its lane set until the bucket may have capacity, so a claim meets it
-- once. `waiting_lanes` has it by its place, for its lane set and the bucket, and `waiting_until` by the moment at
-- which it may start, if that is known. A script that frees capacity opens the first waiting lanes of each lane set.
-- When an open lane begins to wait for another bucket or becomes empty, the next lanes are opened: capacity must not
-- stay unused. The lanes of fair keys are in a sorted set for each priority by their virtual times: see _fair.lua.
-- gives: is_fair, is_free, level_of, step_of, clock_of, set_clock
-- gives: opened, WAITING_UNTIL, note_waiting, make_wait, open_due_lanes, settle_lanes, settle_lane_sets
-- gives: wake_waiting_queues, recheck_buckets, wake_for_unkeyed, recheck_lane, note_time
local WAITING_ON, RECHECK = TAG .. 'waiting_on', TAG .. 'recheck'
local WAITING_UNTIL = TAG .. 'waiting_until'
local grown, waiting = {}, {}
local opened = {}
local wakes = {}
local clocks, moved_clocks = {}, {}

local function waiting_key(set, name) return named('waiting_lanes', set .. '\0' .. name) end

-- is_fair: the lane set of fair keys. is_free: its jobs name no bucket.
local function is_fair(set) return lane_fields(set).fair end
local function is_free(set) return lane_fields(set).free end
local function level_of(set, priority) return named('vtimes', priority .. ':' .. set) end
local function step_of(lane) return 1 / lane_fields(lane).weight end

-- The virtual time of the fair keys of a queue.
local function clock_of(queue, priority)
  clocks[queue] = clocks[queue] or {}
  local clock = clocks[queue][priority] or tonumber(call('HGET', named('clocks', queue), priority) or 0)
  clocks[queue][priority] = clock
  return clock
end

local function set_clock(queue, priority, vtime)
  clocks[queue][priority], moved_clocks[queue] = vtime, true
end

-- The clock of a queue is deleted when no lane of a fair key is open in the queue.
local function settle_clock(queue, set, is_new, is_gone)
  if is_new then call('SADD', named('fair', queue), set) end
  if not is_gone then return end
  call('SREM', named('fair', queue), set)
  if call('EXISTS', named('fair', queue)) == 0 then
    call('DEL', named('clocks', queue))
    clocks[queue] = nil
  end
end

-- Puts the lane of a fair key into the sorted sets of the priorities of its jobs. A lane that was not there begins one
-- step after the clock.
local function index_fair(lane, set, lines)
  local present, n, levels = {}, 0, nil
  for m = 1, #lines, 2 do
    local priority = string.match(lines[m], '^~?(-?%d+):')
    if not present[priority] then
      present[priority], n = true, n + 1
      local vtime = clock_of(lane_fields(lane).queue, priority) + step_of(lane)
      if call('ZADD', level_of(set, priority), 'NX', vtime, lane) == 1 then
        call('ZADD', named('lanes', set), -priority, priority)
      end
    end
  end
  levels = call('ZRANGE', named('lanes', set), 0, -1)
  for _, priority in ipairs(#levels > n and levels or {}) do
    local key = level_of(set, priority)
    if not present[priority] and call('ZREM', key, lane) == 1 and call('EXISTS', key) == 0 then
      call('ZREM', named('lanes', set), priority)
    end
  end
end

-- A job of the lane set waits for capacity in the bucket.
local function note_waiting(set, name)
  if call('SADD', named('waiting_sets', name), set) == 1 then
    call('SADD', named('waiting_buckets', limit_in(name)), name)
  end
end

local function forget_waiting(set, name)
  call('SREM', named('waiting_sets', name), set)
  if call('EXISTS', named('waiting_sets', name)) == 0 then
    call('SREM', named('waiting_buckets', limit_in(name)), name)
  end
end

-- The lane leaves the index of its lane set and waits for the bucket. Its other buckets count as freed for other lanes.
local function make_wait(lane, buckets, name, moment)
  local fields = lane_fields(lane)
  local set = fields.set
  local first = call('ZRANGE', named('index', lane), 0, 0, 'WITHSCORES')[2]
  if fields.fair then index_fair(lane, set, {}) else call('ZREM', named('lanes', set), lane) end
  call('ZADD', waiting_key(set, name), first, lane)
  call('HSET', WAITING_ON, lane, name)
  if moment then call('ZADD', WAITING_UNTIL, whole(moment), lane) end
  note_waiting(set, name)
  grown[set], opened[lane], pending[lane] = fields.root, nil, nil
  for _, bucket in ipairs(buckets) do
    if bucket[2] ~= '' and name_of(bucket) ~= name then freed[name_of(bucket)] = true end
  end
end

local function stop_waiting(lane, set, name)
  call('HDEL', WAITING_ON, lane)
  call('ZREM', WAITING_UNTIL, lane)
  call('ZREM', waiting_key(set, name), lane)
  if call('EXISTS', waiting_key(set, name)) == 0 then forget_waiting(set, name) end
end

local function open_lane(lane, name)
  stop_waiting(lane, lane_fields(lane).set, name)
  pending[lane] = pending[lane] or {}
end

-- The first job of the lane was replaced by another job at the same place.
local function recheck_lane(lane)
  local name = call('HGET', WAITING_ON, lane)
  if name then open_lane(lane, name) end
end

-- Notes the time every {CLOCK_NOTED} microseconds. If the clock of the server was set back since, what rates remember of
-- the later time is brought back, and the lanes that wait for a moment are rechecked.
local function note_time()
  local noted = tonumber(call('HGET', META, 'clock') or '') or 0
  if NOW >= noted - {CLOCK_SET_BACK} and NOW <= noted + {CLOCK_NOTED} then return end
  pass_when_full()
  call('HSET', META, 'clock', whole(NOW))
  if NOW > noted then return end
  bring_back_rates(noted - NOW)
  bring_back_breakers(noted - NOW)
  for _, lane in ipairs(call('ZRANGEBYSCORE', WAITING_UNTIL, '(' .. whole(NOW), '+inf')) do
    call('ZADD', WAITING_UNTIL, whole(NOW), lane)
  end
end

-- Opens the lanes whose moment has come, and other lanes that wait for the same buckets.
local function open_due_lanes(limit)
  for _, lane in ipairs(call('ZRANGEBYSCORE', WAITING_UNTIL, '-inf', NOW, 'LIMIT', 0, limit)) do
    local name = call('HGET', WAITING_ON, lane)
    freed[name], wakes[lane_fields(lane).queue] = true, true
    open_lane(lane, name)
  end
end

-- Whether the lane goes on waiting: it does while its first job is the same.
local function is_still_waiting(lane, set, lines)
  local name = call('HGET', WAITING_ON, lane)
  if not name then return false end
  if lines[2] == call('ZSCORE', waiting_key(set, name), lane) then return true end
  stop_waiting(lane, set, name)
  if lines[1] then wakes[lane_fields(lane).queue] = true end -- the next turn starts its job or makes the lane wait again
  return not lines[1]
end

-- Puts a lane into its lane set, by the place of its first job.
local function index_lane(lane, buckets)
  local fields = lane_fields(lane)
  local set, fair = fields.set, fields.fair
  local lines = call('ZRANGE', named('index', lane), 0, fair and -1 or 0, 'WITHSCORES')
  if fields.keyed and not opened[lane] and is_still_waiting(lane, set, lines) then return end
  if fair then index_fair(lane, set, lines) end
  if lines[1] then
    opened[lane] = true
    if not fair then call('ZADD', named('lanes', set), lines[2], lane) end
  else
    opened[lane] = nil
    if not fair then call('ZREM', named('lanes', set), lane) end
    for _, bucket in ipairs(buckets) do
      if bucket[2] ~= '' then freed[name_of(bucket)] = true end
    end
  end
end

-- The bucket may have capacity: opens the first waiting lanes of each lane set, even more than fit, because the turn
-- decides the order in which jobs start. Of a rate without capacity one lane without a known moment is opened, so that
-- the next turn finds its moment. wake_waiting_queues() wakes the listeners later.
local function open_waiting_lanes(name)
  local sets = call('SMEMBERS', named('waiting_sets', name))
  if #sets == 0 then return end
  waiting[name] = sets
  local limit, has_headroom = capacity_of(name).limit, headroom_in(name) > 0
  if is_unkeyed(name) or not has_headroom and limit.kind == {LIMIT_CONCURRENCY} then return end
  for _, set in ipairs(sets) do
    for _, lane in ipairs(call('ZRANGE', waiting_key(set, name), 0, has_headroom and {LANES_OPENED} - 1 or 0)) do
      if has_headroom or not call('ZSCORE', WAITING_UNTIL, lane) then open_lane(lane, name) end
    end
  end
end

-- Indexes the lanes that have changed and opens lanes that waited for freed buckets, until nothing is left to do.
local function settle_lanes()
  while next(pending) or next(freed) do
    local lanes, names = pending, freed
    pending, freed = {}, {}
    for lane, buckets in pairs(lanes) do
      local fields = lane_fields(lane)
      grown[fields.set] = fields.root
      index_lane(lane, buckets)
    end
    for name in pairs(names) do open_waiting_lanes(name) end
  end
end

-- Puts the lane sets that have changed into their roots. A lane set of fair keys goes before all others: the claim
-- looks inside to find the key that is next.
local function settle_lane_sets()
  local sets = grown
  grown = {}
  for queue in pairs(moved_clocks) do
    for priority, vtime in pairs(clocks[queue]) do call('HSET', named('clocks', queue), priority, vtime) end
  end
  moved_clocks = {}
  for set, root in pairs(sets) do
    local first = call('ZRANGE', named('lanes', set), 0, 0, 'WITHSCORES')[2]
    local fair, is_new, is_gone = is_fair(set), false, false
    if first and fair then first = {FAIR_PLACE} end
    if first then
      is_new = call('ZADD', named('index', root), first, '#' .. set) == 1
    else
      is_gone = call('ZREM', named('index', root), '#' .. set) == 1
    end
    if fair then settle_clock(lane_fields(set).queue, set, is_new, is_gone) end
  end
end

-- An unkeyed limit has changed: wakes the queues of all lane sets that wait for it.
local function wake_for_unkeyed(name)
  for _, set in ipairs(call('SMEMBERS', named('waiting_sets', name))) do wakes[lane_fields(set).queue] = true end
  call('DEL', named('waiting_sets', name))
  call('SREM', named('waiting_buckets', limit_in(name)), name)
end

-- Wakes the listeners of the queues in which a job may start now that waited for capacity.
local function wake_waiting_queues()
  for name, sets in pairs(waiting) do
    if headroom_in(name) > 0 then
      for _, set in ipairs(sets) do wakes[lane_fields(set).queue] = true end
      if is_unkeyed(name) then
        call('DEL', named('waiting_sets', name))
        call('SREM', named('waiting_buckets', limit_in(name)), name)
      end
    end
  end
  for queue in pairs(wakes) do wake_up(queue) end
  waiting, wakes = {}, {}
end

-- Rechecks the lanes that wait for the buckets of a changed limit, at most {BUCKETS_RECHECKED} buckets in one script.
-- Returns the number of buckets that are left.
local function recheck_buckets(limit)
  if limit then call('SUNIONSTORE', RECHECK, RECHECK, named('waiting_buckets', limit)) end
  for _, name in ipairs(call('SPOP', RECHECK, {BUCKETS_RECHECKED})) do freed[name] = true end
  settle_lanes()
  return call('SCARD', RECHECK)
end
