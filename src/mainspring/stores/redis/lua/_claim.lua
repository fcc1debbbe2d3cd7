-- claim: ready -> running, for jobs from the front of a line. Needs common, rows, limits, lanes, moves.
-- A claimed job is changed in place where nothing but its line can hold it back.
-- A turn that has met {CLAIM_LOOKED} useless entries and full lanes, or has claimed {CLAIM_BYTES} bytes, stops and says
-- so; the next turn goes on from there.
-- gives: looked, made_wait, claimed, writes, running, groups, full_queues, soonest, ahead, started, is_enough
-- gives: claim_again, knows, begin, full, source_of, take_from_line, passed_over
local looked, made_wait = 0, 0 -- useless entries that were met; lanes that had to wait
local weight, tasks_known = 0, nil -- bytes claimed; the tasks of this worker
local claimed, writes, running, groups = {}, {}, {}, {}
local full_queues = {} -- queues in which an unkeyed limit was full
local soonest = false -- when a rate has capacity
local ahead = false -- the want is for jobs that will wait for a slot: all their limits have to be plentiful
local passed_over = false -- such a want has passed over a job that may start in a free slot
local started = {} -- ids: a claim is written at the end of the turn, and a job may be in two sources

-- Adds a job to the reply: its id and the stored job, with a large record behind it.
local function add_claim(id, raw)
  local has_large = byte(raw, {REST_AT}) % (2 * {FLAG_RECORD_APART}) >= {FLAG_RECORD_APART}
  if has_large then raw = raw .. call('HGET', RECORDS, id) end
  claimed[#claimed + 1], claimed[#claimed + 2] = id, raw
  weight = weight + #raw
end

local function is_enough() return looked + made_wait >= {CLAIM_LOOKED} or weight >= {CLAIM_BYTES} end

-- Adds the running jobs of this worker that a turn above `seen` claimed and that are not among the leases it holds: the
-- reply of that turn may be lost.
local function claim_again(worker, seen, holds)
  local ids, again, known = call('SMEMBERS', named('worker_jobs', worker)), {}, {}
  for first = 1, #holds, {LEASE_BYTES} do known[sub(holds, first, first + {LEASE_BYTES} - 1)] = true end
  preload(ids)
  for _, id in ipairs(ids) do
    local head = heads[id]
    if head[TURN] > seen and not known[id .. struct.pack('>d', head[TOKEN])] then again[#again + 1] = id end
  end
  table.sort(again, function(a, b)
    a, b = heads[a], heads[b]
    if a[TURN] ~= b[TURN] then return a[TURN] < b[TURN] end
    return place(a[PRIORITY], a[SEQ]) < place(b[PRIORITY], b[SEQ])
  end)
  for _, id in ipairs(again) do add_claim(id, dump_head(heads[id])) end
end

local function knows(worker, task)
  if not tasks_known then
    tasks_known = {}
    local raw = call('HGET', named('worker', worker), 'tasks')
    for _, name in ipairs(cmsgpack.unpack(raw)) do tasks_known[name] = true end
  end
  return tasks_known[task]
end

local STARTED_NOW -- the fields started, turn, ended and ran of every job that this turn claims
local OWNER
local RUNNING_BYTE

local function begin(worker, number)
  STARTED_NOW = NOW_PACKED .. struct.pack('>ddd', number, {NONE}, {NONE})
  OWNER = string.char(#worker) .. worker
  RUNNING_BYTE = string.char({RUNNING})
end

-- One more attempt, in place. If `text` is given, the job has this text from its group on, and `group` is its group.
local function start(id, raw, text, group)
  local token, owner = sub(raw, {TOKEN_AT}, {TOKEN_END}), byte(raw, {WORKER_SIZE_AT})
  local attempt = sub(raw, {ATTEMPT_AT}, {ATTEMPT_END})
  token = token < NOW_PACKED and NOW_PACKED or struct.pack('>d', struct.unpack('>d', token) + 1)
  attempt = attempt == '\0\0\0\0' and '\0\0\0\1' or struct.pack('>I4', struct.unpack('>I4', attempt) + 1)
  if not text then
    local high, low = byte(raw, {NAMES_AT} + owner, {NAMES_AT} + 1 + owner)
    text, group = '', sub(raw, {NAMES_AT} + 2 + owner, {NAMES_AT} + 1 + owner + high * 256 + low)
  end
  groups[group] = (groups[group] or 0) + 1
  raw = RUNNING_BYTE .. sub(raw, {ENDS_AT}, {PRIORITY_END}) .. attempt .. STARTED_NOW
    .. sub(raw, {CRASHES_AT}, {MORE_SIZE_END}) .. token .. OWNER .. text .. sub(raw, {NAMES_AT} + owner + #text)
  writes[#writes + 1], writes[#writes + 2] = id, raw
  running[#running + 1] = id
  started[id] = true
  add_claim(id, raw)
end

local full = {} -- the bucket that was full for the last job, and the moment at which the job fits, if that is known
local entered, plentiful -- the buckets of the last job, and how many more jobs fit while the buckets stay plentiful
local passed = 0 -- jobs that started in these buckets and are not counted yet
local function count_passed()
  if passed == 0 then return end
  for _, bucket in ipairs(entered) do take_capacity(bucket, passed) end
  passed = 0
end

-- Takes capacity in the buckets of a job. Returns nil, or 'stuck' (one of the buckets is full, see `full`), or
-- 'needs slot' (the job may start, but is not claimed ahead of a free slot).
local function enter_buckets(id, buckets, source)
  if buckets ~= entered then
    count_passed()
    entered, plentiful = buckets, source.needs_slot and 0 or plentiful_starts(buckets)
  end
  if plentiful >= 1 then
    plentiful, passed = plentiful - 1, passed + 1
    return
  end
  count_passed()
  full.name, full.moment = first_full(buckets)
  if full.name then return 'stuck' end
  if ahead then
    passed_over = true
    return 'needs slot'
  end
  for _, bucket in ipairs(buckets) do take_capacity(bucket, 1, id) end
end

-- The next jobs of a source are probably like this one: the same bytes from the group to the lane, and with limits to
-- the buckets. Then they need no closer look.
local function expect_alike(source, raw, buckets, more)
  source.group = struct.unpack('>Hc0', raw, {NAMES_AT} + byte(raw, {WORKER_SIZE_AT}))
  source.alike, source.buckets = packed_lane(source.group) .. source.own .. more, buckets
end

-- Whether the job may run now: nil, then it has taken its capacity and left the indexes of waiting jobs; or 'expired';
-- or 'stuck' or 'needs slot', then its line is of no more use to this turn.
local function obstacle_of(id, raw, claims, source, worker)
  full.name, full.moment = nil, nil
  if claims == {FLAG_LIMITED} and source.lane then
    with_limits()
    local buckets, more = buckets_in(raw)
    known_buckets[source.lane] = buckets
    local obstacle = enter_buckets(id, buckets, source)
    if not source.alike and plentiful >= 1 then expect_alike(source, raw, buckets, more) end
    return obstacle
  end
  local head = load_head(raw)
  local buckets = head[MORE].b
  known_buckets[head[LANE]] = buckets
  if head[EXPIRES] ~= {NONE} and head[EXPIRES] <= NOW then return {EXPIRED}, head end
  if head[PARKED] and not knows(worker, task_of(head)) then return 'stuck' end
  if buckets then
    with_limits()
    local obstacle = enter_buckets(id, buckets, source)
    if obstacle then return obstacle end
  end
  if head[EXPIRES] ~= {NONE} then
    call('ZREM', EXPIRING, id)
    call('ZREM', OVERDUE, id)
  end
  if head[MORE].d then call('ZREM', named('depth', queue_of(head)), id) end
end

-- A source is the list of a line (entries of id and seq) or, behind `~`, the sorted set beside it (by seq). `lane`: set
-- for a lane with limits. `needs_slot`: none of its jobs is claimed ahead of a free slot.
local function source_of(index, line, lane)
  local moved = sub(line, 1, 1) == '~'
  local name = moved and sub(line, 2) or line
  local priority = tonumber(string.match(name, '^(-?%d+):'))
  local key = named(moved and 'line_moved' or 'line', name)
  return {
    index = index, line = line, name = name, priority = priority, moved = moved, key = key,
    packed = struct.pack('>h', priority), lane = lane, own = packed_lane(string.match(name, ':(.*)$')),
  }
end

local function entries_of(source, n)
  if not source.moved then return call('LRANGE', source.key, 0, n - 1) end
  local entries = {}
  for m, id in ipairs(call('ZRANGE', source.key, 0, n - 1, 'WITHSCORES')) do
    if m % 2 == 1 then entries[#entries + 1] = id else
      entries[#entries] = entries[#entries] .. struct.pack('>d', tonumber(id))
    end
  end
  return entries
end

-- Claims up to `n` jobs from the front of a source whose place is before `bound`. After stale entries it reads further:
-- there are probably more of them. Returns the number of jobs and, if the source is of no more use to this turn,
-- 'stuck' or 'needs slot'.
local function take_from_line(source, n, bound, worker)
  local most = math.max(n, looked)
  if source.lane then most = math.min(n, entries_worth_reading(known_buckets[source.lane], ahead)) end
  local entries = entries_of(source, math.min(most, bound == math.huge and {CLAIM_ALL} or {CLAIM_PORTION}))
  local ids, taken, consumed, stuck = {}, 0, 0, false
  for m, entry in ipairs(entries) do ids[m] = sub(entry, 1, {ID_BYTES}) end
  local raws = #ids > 0 and call('HMGET', JOBS, unpack(ids)) or {}
  local last = bound == math.huge and '\255' or nil -- else the first seq that is not before the bound
  if not last then
    local seq = bound - place(source.priority, 0)
    last = seq <= 0 and '' or struct.pack('>d', seq)
  end
  for m, entry in ipairs(entries) do
    local id, seq, raw = ids[m], sub(entry, {ID_BYTES} + 1), raws[m]
    -- m > 1: two sources may begin with the same job
    if taken == n or weight >= {CLAIM_BYTES} or seq > last or (seq == last and m > 1) then break end
    local state, _, claims
    if raw then state, _, claims = byte(raw, 1, 3) end
    local fresh = state == {READY} and not started[id] and sub(raw, {SEQ_AT}, {SEQ_END}) == seq
      and sub(raw, {PRIORITY_AT}, {PRIORITY_END}) == source.packed
    local alike = fresh and source.alike
    if alike then
      local at = {NAMES_AT} + byte(raw, {WORKER_SIZE_AT})
      alike = find(raw, alike, at, true) == at and alike
    end
    fresh = alike or fresh and is_in(raw, source.own)
    if alike and claims == {FLAG_LIMITED} and entered and source.buckets == entered and plentiful >= 1 then
      plentiful, passed = plentiful - 1, passed + 1
      start(id, raw, alike, source.group)
      taken = taken + 1
    elseif fresh and claims == 0 then
      if not source.alike then expect_alike(source, raw, nil, '') end
      start(id, raw, alike, source.group)
      taken = taken + 1
    else
      local obstacle, head
      if fresh then
        obstacle, head = obstacle_of(id, raw, claims, source, worker)
      elseif raw and source.lane then
        known_buckets[source.lane] = known_buckets[source.lane] or load_head(raw)[MORE].b
      end
      stuck = obstacle ~= {EXPIRED} and obstacle
      if stuck then break end
      if fresh and not obstacle then
        start(id, raw)
        taken = taken + 1
      else
        looked = looked + 1
        if obstacle then call('ZADD', OVERDUE, head[EXPIRES], id) end -- out of the line until promote() ends it
      end
    end
    consumed = consumed + 1
  end
  count_passed()
  if consumed > 0 then
    if source.moved then
      call('ZREMRANGEBYRANK', source.key, 0, consumed - 1)
    else
      call('LPOP', source.key, consumed)
    end
  end
  -- nothing consumed, yet not stuck: the index disagrees with its list and is repaired
  if consumed > 0 or not stuck then
    if source.lane then pending[source.lane] = known_buckets[source.lane] or {} end
    if source.moved then index_moved(source.name, source.index) else index_list(source.name, source.index) end
  end
  return taken, stuck
end
