-- claims: hand out ready jobs by (priority descending, seq), looking at the heads of lists only. Needs common, moves.
local LOOK = 1000 -- entries that a turn may find useless before it stops; the next turn goes on from there
local looked, tasks_known = 0, nil

-- Running jobs of this worker that a turn above `seen` claimed: it may not have heard of them.
local function claimed_since(worker, seen)
  local ids, again = call('HKEYS', named('running', worker)), {}
  preload(ids)
  for _, id in ipairs(ids) do
    if heads[id][TURN] > seen then again[#again + 1] = id end
  end
  table.sort(again, function(a, b)
    a, b = heads[a], heads[b]
    if a[TURN] ~= b[TURN] then return a[TURN] < b[TURN] end
    return place(a[PRIORITY], a[SEQ]) < place(b[PRIORITY], b[SEQ])
  end)
  return again
end

local function handed_out(ids)
  local out = {}
  for first = 1, #ids, 1000 do
    local records = call('HMGET', RECORDS, unpack(ids, first, math.min(first + 999, #ids)))
    for n, record in ipairs(records) do
      local id = ids[first + n - 1]
      out[#out + 1] = {id, cmsgpack.pack(heads[id]), record}
    end
  end
  return out
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
  for _, bucket in ipairs(head[BUCKETS]) do
    if call('HLEN', named('bucket', bucket[1])) >= bucket[2] then return false end
  end
  return true
end

local function start(id, head, worker, number)
  leave(id, head)
  head[TOKEN] = math.max(head[TOKEN] + 1, NOW)
  head[WORKER], head[TURN], head[ATTEMPT], head[STARTED] = worker, number, head[ATTEMPT] + 1, NOW
  enter(id, head, 'running')
  gather('HSET', named('running', worker), id, whole(head[TOKEN]))
  for _, bucket in ipairs(head[BUCKETS]) do call('HSET', named('bucket', bucket[1]), id, whole(head[TOKEN])) end
end

-- Takes up to `n` jobs from the front of one list, as long as they stand before `bound` in the line.
-- Returns how many, and whether the list is of no use to this turn any more.
local function draw(source, n, bound, worker, number, claims)
  local list, priority = named('ready', source.line), source.priority
  local entries = call('LRANGE', list, 0, math.min(n, 100) - 1)
  local ids, taken, consumed, stuck = {}, 0, 0, false
  for m, entry in ipairs(entries) do ids[m] = string.sub(entry, 1, 16) end
  preload(ids)
  for m, entry in ipairs(entries) do
    local id, seq = ids[m], tonumber(string.sub(entry, 18))
    if place(priority, seq) >= bound then break end
    local head = heads[id]
    local fresh = head and head[STATE] == 'ready' and head[SEQ] == seq
    local expired = fresh and head[EXPIRES] and head[EXPIRES] <= NOW
    if fresh and not expired then
      stuck = (is_parked(head[LANE]) and not knows(worker, head[TASK])) or not has_room(head)
      if stuck then break end
      start(id, head, worker, number)
      claims[#claims + 1] = id
      taken = taken + 1
    else
      looked = looked + 1
      if expired then call('ZADD', OVERDUE, head[EXPIRES], id) end -- out of the line until promote() ends it
    end
    consumed = consumed + 1
  end
  if consumed > 0 then call('LPOP', list, consumed) end
  if consumed > 0 or not stuck then -- nothing consumed, yet not stuck: the index disagrees with its list; mend it
    local first = call('LINDEX', list, 0)
    if first then
      call('ZADD', source.heads, place(priority, tonumber(string.sub(first, 18))), source.line)
    else
      call('ZREM', source.heads, source.line)
    end
  end
  return taken, stuck
end

local function source_of(heads_key, line)
  return {heads = heads_key, line = line, priority = tonumber(string.match(line, '^(-?%d+):'))}
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

local function claim_oldest(groups, n, worker, number, claims)
  local got, without = 0, {}
  while got < n and looked < LOOK do
    local source = oldest_of(groups, without)
    if not source then break end
    local taken, stuck = draw(source, 1, math.huge, worker, number, claims)
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

local function claim_merged(groups, n, worker, number, claims)
  local fronts, got = {}, 0
  for m, group in ipairs(groups) do
    fronts[m] = {heads = named('heads', group), floor = '-inf'}
    look_at(fronts[m])
  end
  while got < n and looked < LOOK do
    local best, bound = nil, math.huge
    for _, front in ipairs(fronts) do
      if front.line and (not best or front.at < best.at) then best = front end
    end
    if not best then break end
    for _, front in ipairs(fronts) do bound = math.min(bound, front == best and front.after or front.at) end
    local taken, stuck = draw(source_of(best.heads, best.line), n - got, bound, worker, number, claims)
    got = got + taken
    if stuck then best.floor = '(' .. call('ZSCORE', best.heads, best.line) end
    look_at(best)
  end
  return got
end

-- A clock that went back makes overdue jobs good again: each returns to its place, near the front of its list.
local function bring_back()
  for _, id in ipairs(call('ZRANGEBYSCORE', OVERDUE, '(' .. whole(NOW), '+inf', 'LIMIT', 0, 100)) do
    local head, before = live(id), {}
    local line = line_of(head[LANE], head[PRIORITY])
    local list = named('ready', line)
    local first = call('LINDEX', list, 0)
    while first and tonumber(string.sub(first, 18)) < head[SEQ] do
      before[#before + 1] = call('LPOP', list)
      first = call('LINDEX', list, 0)
    end
    call('LPUSH', list, id .. ':' .. whole(head[SEQ]))
    for n = #before, 1, -1 do call('LPUSH', list, before[n]) end
    first = call('LINDEX', list, 0)
    call('ZADD', named('heads', group_of(head[LANE])), place(head[PRIORITY], tonumber(string.sub(first, 18))), line)
    call('ZREM', OVERDUE, id)
  end
end

-- For each want: suspects first while allowed, then `oldest` by age, then by priority and seq.
local function claim(worker, number, suspects, wants, claims)
  if #wants > 0 then bring_back() end
  for _, want in ipairs(wants) do
    local lanes, n, oldest = want[1], want[2], want[3]
    local plain, crashed, twice = {}, {}, {}
    for _, lane in ipairs(lanes) do
      if not twice[lane] then
        twice[lane] = true
        plain[#plain + 1] = lane
        crashed[#crashed + 1] = lane .. '!'
      end
    end
    if n > 0 and suspects > 0 then
      local got = claim_merged(crashed, math.min(n, suspects), worker, number, claims)
      suspects, n = suspects - got, n - got
    end
    if n > 0 and oldest > 0 then n = n - claim_oldest(plain, math.min(n, oldest), worker, number, claims) end
    if n > 0 then claim_merged(plain, n, worker, number, claims) end
  end
end
