-- claims: hand out ready jobs from the front of a line. Needs common, heads, rooms, lines, parking, moves.
-- What is claimed is changed in place where nothing but the line can hold the job back.
-- A turn that has met so many useless entries and parked so many lanes stops and says so; the next goes on from there.
-- gives: looked, parks, claimed, writes, held, groups, crowded, soonest, allowed, started, is_enough
-- gives: claim_again, knows, begin, lack, source_of, draw, short
local LOOK = 1000
local HEAVY = 1048576 -- bytes handed out after which it stops and says so as well: a reply must come through in time
local PORTION, ALL = 200, 500 -- entries read at once where others may come first, and where nobody does
local looked, parks = 0, 0
local weight, tasks_known = 0, nil
local claimed, writes, held, groups = {}, {}, {}, {}
local crowded = {} -- queues in which a gate had no room
local soonest, allowed = false, math.huge -- when a rate lets something through; how many the want may have in short buckets
local short = {} -- ids of those
local started = {} -- ids: what this turn claims is written at its end, and a job may stand in two sources

-- What was handed out, as the worker reads it: id and the whole job, a record that lies apart behind it.
local function hand(id, raw)
  if byte(raw, 4) % 4 > 1 then raw = raw .. call('HGET', RECORDS, id) end
  claimed[#claimed + 1], claimed[#claimed + 2] = id, raw
  weight = weight + #raw
end

local function is_enough() return looked + parks >= LOOK or weight >= HEAVY end

-- Running jobs of this worker that a turn above `seen` claimed: it may not have heard of them, but of what it holds.
local function claim_again(worker, seen, holds)
  local ids, again, known = call('SMEMBERS', named('running', worker)), {}, {}
  for first = 1, #holds, 24 do known[sub(holds, first, first + 23)] = true end
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
  for _, id in ipairs(again) do hand(id, dump_head(heads[id])) end
end

local function knows(worker, task)
  if not tasks_known then
    tasks_known = {}
    local raw = call('HGET', named('worker', worker), 'tasks')
    for _, name in ipairs(cmsgpack.unpack(raw)) do tasks_known[name] = true end
  end
  return tasks_known[task]
end

local STARTED_NOW -- started, turn and ended of everything that this turn claims
local OWNER

local function begin(worker, number)
  STARTED_NOW = NOW_PACKED .. struct.pack('>dd', number, NONE)
  OWNER = string.char(#worker) .. worker
end

-- One more attempt, in place. What follows its owner begins with `text`, of this queue and task, if that is known.
local function start(id, raw, text, group)
  local token, owner, attempt = sub(raw, 91, 98), byte(raw, 99), sub(raw, 15, 18)
  token = token < NOW_PACKED and NOW_PACKED or struct.pack('>d', struct.unpack('>d', token) + 1)
  attempt = attempt == '\0\0\0\0' and '\0\0\0\1' or struct.pack('>I4', struct.unpack('>I4', attempt) + 1)
  if not text then
    local high, low = byte(raw, 100 + owner, 101 + owner)
    text, group = '', sub(raw, 102 + owner, 101 + owner + high * 256 + low)
  end
  groups[group] = (groups[group] or 0) + 1
  raw = '\5' .. sub(raw, 2, 14) .. attempt .. STARTED_NOW .. sub(raw, 43, 90) .. token .. OWNER
    .. text .. sub(raw, 100 + owner + #text)
  writes[#writes + 1], writes[#writes + 2] = id, raw
  held[#held + 1] = id
  started[id] = true
  hand(id, raw)
end

-- Whether a job that needs room in these buckets has it: 'stuck' (what it lacks it in is left in `lack`), 'short' (they
-- are, and the want may have no more of those) or nil. Then it takes its places.
local lack = {}
local entered, spare -- the last ones, and how many more of them are not short: a turn only fills them
local passed = 0 -- so many jobs have passed there that are not counted yet
local function count_passed()
  if passed == 0 then return end
  for _, bucket in ipairs(entered) do seat(bucket, passed) end
  passed = 0
end

local function enter_buckets(id, buckets)
  if buckets ~= entered then
    count_passed()
    entered, spare = buckets, spare_for(buckets)
  end
  if spare >= 1 then
    spare, passed = spare - 1, passed + 1
    return
  end
  if allowed <= 0 then return 'short' end
  count_passed()
  lack.name, lack.moment = lacking(buckets)
  if lack.name then return 'stuck' end
  short[#short + 1], allowed = id, allowed - 1
  for _, bucket in ipairs(buckets) do seat(bucket, 1, id) end
end

-- Those that follow in its source are likely to be like this one from their queue to their lane, and if it is limited to
-- their buckets: they need no closer look.
local function liken(source, raw, buckets, more)
  source.group = struct.unpack('>Hc0', raw, 100 + byte(raw, 99))
  source.alike, source.buckets = packed_lane(source.group) .. source.own .. more, buckets
end

-- Whether the job may run now: 'expired', 'stuck' or 'short' (its list is of no use to this turn any more) or nil: then it
-- has taken its places, and left where it stood.
local function hindrance(id, raw, claims, source, worker)
  lack.name, lack.moment = nil, nil
  if claims == LIMITED and source.lane then
    with_rooms()
    local buckets, more = buckets_in(raw)
    known_buckets[source.lane] = buckets
    local hindered = enter_buckets(id, buckets)
    if not source.alike and spare >= 1 then liken(source, raw, buckets, more) end
    return hindered
  end
  local head = load_head(raw)
  local buckets = head[MORE].b
  known_buckets[head[LANE]] = buckets
  if head[EXPIRES] ~= NONE and head[EXPIRES] <= NOW then return 'expired', head end
  if head[PARKED] and not knows(worker, task_of(head)) then return 'stuck' end
  if buckets then
    with_rooms()
    local hindered = enter_buckets(id, buckets)
    if hindered then return hindered end
  end
  if head[EXPIRES] ~= NONE then
    call('ZREM', EXPIRING, id)
    call('ZREM', OVERDUE, id)
  end
  if head[MORE].d then call('ZREM', named('depth', queue_of(head)), id) end
end

-- A source is a list (entries id and seq) or, behind `~`, the set of those that changed their place (by seq). Of a lane
-- with limits its name is told.
local function source_of(heads_key, line, lane)
  local moved = sub(line, 1, 1) == '~'
  local name = moved and sub(line, 2) or line
  local priority = tonumber(string.match(name, '^(-?%d+):'))
  local key = named(moved and 'moved' or 'ready', name)
  return {
    heads = heads_key, line = line, name = name, priority = priority, moved = moved, key = key,
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

-- Takes up to `n` jobs from the front of one source, as long as they stand before `bound` in the line. Once it has met
-- stale entries it reads further: there are more where those came from.
-- Returns how many, and if the source is of no use to this turn any more, why: 'stuck' or 'short'.
local function draw(source, n, bound, worker)
  local most = math.max(n, looked)
  if source.lane then most = math.min(n, worth(known_buckets[source.lane], allowed)) end
  local entries = entries_of(source, math.min(most, bound == math.huge and ALL or PORTION))
  local ids, taken, consumed, stuck = {}, 0, 0, false
  for m, entry in ipairs(entries) do ids[m] = sub(entry, 1, 16) end
  local raws = #ids > 0 and call('HMGET', JOBS, unpack(ids)) or {}
  local last = bound == math.huge and '\255' or nil -- else the first seq that stands behind the bound
  if not last then
    local seq = bound - place(source.priority, 0)
    last = seq <= 0 and '' or struct.pack('>d', seq)
  end
  for m, entry in ipairs(entries) do
    local id, seq, raw = ids[m], sub(entry, 17), raws[m]
    if taken == n or weight >= HEAVY or seq > last or (seq == last and m > 1) then break end -- two may begin with one job
    local state, _, claims
    if raw then state, _, claims = byte(raw, 1, 3) end
    local fresh = state == READY and not started[id] and sub(raw, 5, 12) == seq and sub(raw, 13, 14) == source.packed
    local alike = fresh and source.alike
    if alike then
      local at = 100 + byte(raw, 99)
      alike = find(raw, alike, at, true) == at and alike
    end
    fresh = alike or fresh and is_in(raw, source.own)
    if alike and claims == LIMITED and entered and source.buckets == entered and spare >= 1 then
      spare, passed = spare - 1, passed + 1
      start(id, raw, alike, source.group)
      taken = taken + 1
    elseif fresh and claims == 0 then
      if not source.alike then liken(source, raw, nil, '') end
      start(id, raw, alike, source.group)
      taken = taken + 1
    else
      local hindered, head
      if fresh then
        hindered, head = hindrance(id, raw, claims, source, worker)
      elseif raw and source.lane then
        known_buckets[source.lane] = known_buckets[source.lane] or load_head(raw)[MORE].b
      end
      stuck = hindered ~= 'expired' and hindered
      if stuck then break end
      if fresh and not hindered then
        start(id, raw)
        taken = taken + 1
      else
        looked = looked + 1
        if hindered then call('ZADD', OVERDUE, head[EXPIRES], id) end -- out of the line until promote() ends it
      end
    end
    consumed = consumed + 1
  end
  count_passed()
  if consumed > 0 then
    if source.moved then call('ZREMRANGEBYRANK', source.key, 0, consumed - 1) else call('LPOP', source.key, consumed) end
  end
  -- nothing consumed, yet not stuck: the index disagrees with its list; mend it
  if consumed > 0 or not stuck then
    if source.lane then pending[source.lane] = known_buckets[source.lane] or {} end
    if source.moved then index_moved(source.name, source.heads) else index_list(source.name, source.heads) end
  end
  return taken, stuck
end
