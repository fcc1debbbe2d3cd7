-- claims: hand out ready jobs by (priority descending, seq), looking at the heads of lists only. Needs common, heads,
-- lines, moves. What is claimed is changed in place where nothing but the line can hold the job back.
local LOOK = 1000 -- entries that a turn may find useless before it stops and says so; the next turn goes on from there
local HEAVY = 1048576 -- bytes handed out after which it stops and says so as well: a reply must come through in time
local looked, weight, tasks_known = 0, 0, nil
local claimed, writes, held, groups = {}, {}, {}, {}
local started = {} -- ids: what this turn claims is written at its end, and a job may stand in two sources

-- What was handed out, as the worker reads it: id and the whole job, a record that lies apart behind it.
local function hand(id, raw)
  if byte(raw, 4) % 4 > 1 then raw = raw .. call('HGET', RECORDS, id) end
  claimed[#claimed + 1], claimed[#claimed + 2] = id, raw
  weight = weight + #raw
end

local function is_enough() return looked >= LOOK or weight >= HEAVY end

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

local function has_room(head)
  for _, bucket in ipairs(head[MORE].b or {}) do
    if call('HLEN', named('bucket', bucket[1])) >= bucket[2] then return false end
  end
  return true
end

local STARTED_NOW -- started, turn and ended of everything that this turn claims
local OWNER

local function begin(worker, number)
  STARTED_NOW = NOW_PACKED .. struct.pack('>dd', number, NONE)
  OWNER = string.char(#worker) .. worker
end

-- One more attempt, in place.
local function start(id, raw)
  local token, owner, attempt = sub(raw, 91, 98), byte(raw, 99), sub(raw, 15, 18)
  token = token < NOW_PACKED and NOW_PACKED or struct.pack('>d', struct.unpack('>d', token) + 1)
  attempt = attempt == '\0\0\0\0' and '\0\0\0\1' or struct.pack('>I4', struct.unpack('>I4', attempt) + 1)
  local high, low = byte(raw, 100 + owner, 101 + owner)
  local group = sub(raw, 102 + owner, 101 + owner + high * 256 + low)
  groups[group] = (groups[group] or 0) + 1
  raw = '\5' .. sub(raw, 2, 14) .. attempt .. STARTED_NOW .. sub(raw, 43, 90) .. token .. OWNER .. sub(raw, 100 + owner)
  writes[#writes + 1], writes[#writes + 2] = id, raw
  held[#held + 1] = id
  started[id] = true
  hand(id, raw)
end

-- Whether the job may run now: 'expired', 'stuck' (its list is of no use to this turn any more) or nil.
local function hindrance(raw, worker)
  local head = load_head(raw)
  if head[EXPIRES] ~= NONE and head[EXPIRES] <= NOW then return 'expired', head end
  local known = not head[PARKED] or knows(worker, task_of(head))
  if not known or not has_room(head) then return 'stuck', head end
  return nil, head
end

local function take_room(id, head)
  for _, bucket in ipairs(head[MORE].b or {}) do call('HSET', named('bucket', bucket[1]), id, '') end
  if head[EXPIRES] ~= NONE then
    call('ZREM', EXPIRING, id)
    call('ZREM', OVERDUE, id)
  end
end

-- A source is a list (entries id and seq) or, behind `~`, the set of those that changed their place (by seq).
local function source_of(heads_key, line)
  local moved = sub(line, 1, 1) == '~'
  local name = moved and sub(line, 2) or line
  local priority = tonumber(string.match(name, '^(-?%d+):'))
  local key = named(moved and 'moved' or 'ready', name)
  return {
    heads = heads_key, line = line, name = name, priority = priority, moved = moved, key = key,
    packed = struct.pack('>h', priority), limited = string.find(name, '#', 1, true),
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
-- stale entries it reads further: there are more where those came from. Of a lane with limits it reads only the first:
-- there may be many such lanes, all without room.
-- Returns how many, and whether the source is of no use to this turn any more.
local function draw(source, n, bound, worker)
  local entries = entries_of(source, source.limited and 1 or math.min(math.max(n, looked), 200))
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
    if fresh and claims == 0 then
      start(id, raw)
      taken = taken + 1
    else
      local hindered, head
      if fresh then hindered, head = hindrance(raw, worker) end
      stuck = hindered == 'stuck'
      if stuck then break end
      if head and not hindered then
        take_room(id, head)
        start(id, raw)
        taken = taken + 1
      else
        looked = looked + 1
        if hindered then call('ZADD', OVERDUE, head[EXPIRES], id) end -- out of the line until promote() ends it
      end
    end
    consumed = consumed + 1
  end
  if consumed > 0 then
    if source.moved then call('ZREMRANGEBYRANK', source.key, 0, consumed - 1) else call('LPOP', source.key, consumed) end
  end
  -- nothing consumed, yet not stuck: the index disagrees with its list; mend it
  if consumed > 0 or not stuck then
    if source.moved then index_moved(source.name, source.heads) else index_list(source.name, source.heads) end
  end
  return taken, stuck
end

-- The first by seq alone of all lists of these groups, priority apart.
local function oldest_of(groups, without)
  local best, best_seq
  for _, group in ipairs(groups) do
    local key = named('heads', group)
    local lines = call('ZRANGE', key, 0, -1, 'WITHSCORES')
    for n = 1, #lines, 2 do
      local seq = tonumber(lines[n + 1]) % SPAN
      if not without[lines[n]] and (not best or seq < best_seq) then best, best_seq = source_of(key, lines[n]), seq end
    end
  end
  return best
end

local function claim_oldest(groups, n, worker)
  local got, without = 0, {}
  while got < n and not is_enough() do
    local source = oldest_of(groups, without)
    if not source then break end
    local taken, stuck = draw(source, 1, math.huge, worker)
    got = got + taken
    if stuck then without[source.line] = true end
  end
  return got
end

-- The next list of a group behind `floor` and the place where the one after it begins.
local function look_at(front)
  local lines = call('ZRANGEBYSCORE', front.heads, front.floor, '+inf', 'WITHSCORES', 'LIMIT', 0, 2)
  front.line, front.at, front.after = lines[1], tonumber(lines[2]) or math.huge, tonumber(lines[4]) or math.huge
end

local function claim_merged(groups, n, worker)
  local fronts, got = {}, 0
  for m, group in ipairs(groups) do
    fronts[m] = {heads = named('heads', group), floor = '-inf'}
    look_at(fronts[m])
  end
  while got < n and not is_enough() do
    local best, bound = nil, math.huge
    for _, front in ipairs(fronts) do
      if front.line and (not best or front.at < best.at) then best = front end
    end
    if not best then break end
    for _, front in ipairs(fronts) do bound = math.min(bound, front == best and front.after or front.at) end
    local taken, stuck = draw(source_of(best.heads, best.line), n - got, bound, worker)
    got = got + taken
    if stuck then best.floor = '(' .. call('ZSCORE', best.heads, best.line) end
    look_at(best)
  end
  return got
end

-- For each want: suspects first while allowed, then `oldest` by age, then by priority and seq.
local function claim(worker, number, suspects, wants)
  local asked = {}
  for _, want in ipairs(wants) do
    for _, lane in ipairs(want[1]) do asked[string.match(lane, '^[^/]*')] = true end
  end
  local paused = #wants > 0 and queues_in('paused', asked)
  if #wants > 0 then bring_back() end
  begin(worker, number)
  for _, want in ipairs(wants) do
    local lanes, n, oldest = want[1], want[2], want[3]
    local plain, crashed, twice = {}, {}, {}
    for _, lane in ipairs(lanes) do
      if not twice[lane] and not (paused and paused[string.match(lane, '^[^/]*')]) then
        twice[lane] = true
        plain[#plain + 1] = lane
        crashed[#crashed + 1] = lane .. '!'
      end
    end
    if n > 0 and suspects > 0 then
      local got = claim_merged(crashed, math.min(n, suspects), worker)
      suspects, n = suspects - got, n - got
    end
    if n > 0 and oldest > 0 then n = n - claim_oldest(plain, math.min(n, oldest), worker) end
    if n > 0 then claim_merged(plain, n, worker) end
  end
  move_counts(groups, '\4', '\5')
  spread('HSET', JOBS, writes)
  spread('SADD', named('running', worker), held)
end
