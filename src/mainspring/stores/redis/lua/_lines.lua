-- lines: where ready jobs stand. Needs common, heads, wake.
-- Lists hold id and seq, one list for each lane and priority: a line. An index has each line that is not empty, by the
-- place of its first entry. There is one index for each base lane with the lanes beside it (its suspects apart): a root.
-- A lane with limits has an index of its own. It stands in that of its group (base lane, gates and marks), and the group
-- as `#` and its name in its root.
-- gives: home_of, line_of, index_of, arrivals, arriving, pending, touch, index_list, index_moved, line_up, leave_line
-- gives: close_gaps, known_buckets
local function base_of(lane) return string.match(lane, '^[^/]*/[^!#?]+') end
local function home_of(lane) return string.match(lane, '^[^/]*/[^!?]*') end
local function line_of(lane, priority) return priority .. ':' .. lane end

local function index_of(lane)
  local is_limited = string.find(lane, '^[^/]*/[^#!?]*#')
  return named('heads', is_limited and lane or string.match(lane, '^[^/]*/[^#!?]*!?'))
end

local arrivals, arriving = {}, {}
local gaps = {}
local known_buckets = {} -- what jobs of a lane need room in, as far as this script has met one
local pending = {} -- lanes with limits whose index has changed, with the buckets that their jobs name

local function touch(head)
  if head[MORE].b then
    pending[head[LANE]] = head[MORE].b
  elseif string.find(head[LANE], '#*=', 1, true) then
    pending[head[LANE]] = {}
  end
end

-- The index has the place of the first entry of a list, and behind `~` of the set beside it.
local function index_list(line, index)
  local first = call('LINDEX', named('ready', line), 0)
  if not first then return call('ZREM', index, line) end
  local priority = tonumber(string.match(line, '^-?%d+'))
  call('ZADD', index, place(priority, (struct.unpack('>d', first, 17))), line)
end

local function index_moved(line, index)
  local first = call('ZRANGE', named('moved', line), 0, 0, 'WITHSCORES')[2]
  if not first then return call('ZREM', index, '~' .. line) end
  local priority = tonumber(string.match(line, '^-?%d+'))
  call('ZADD', index, place(priority, tonumber(first)), '~' .. line)
end

-- Gives those who became ready their places in the line, in the order in which they became it, and wakes. The places of
-- those whose queue is a stack fall from the middle of all places, where the others begin: so they stand in the sets.
local function line_up()
  local here, lists, queues = arrivals, {}, {}
  arrivals, arriving = {}, {}
  if #here == 0 then return end
  local seq = call('HINCRBY', META, 'seq', #here) - #here
  for n, id in ipairs(here) do
    local head = heads[id]
    head[SEQ] = seq + n
    local line = line_of(head[LANE], head[PRIORITY])
    if head[MORE].s then
      head[SEQ] = SPAN - head[SEQ]
      call('ZADD', named('moved', line), head[SEQ], id)
      index_moved(line, index_of(head[LANE]))
      touch(head)
    else
      local list = lists[line] or {head = head, first = place(head[PRIORITY], seq + n)}
      list[#list + 1] = id .. struct.pack('>d', seq + n)
      lists[line] = list
    end
    queues[queue_of(head)] = true
  end
  for line, list in pairs(lists) do
    local was_empty = call('EXISTS', named('ready', line)) == 0
    spread('RPUSH', named('ready', line), list)
    if was_empty then
      call('ZADD', index_of(list.head[LANE]), list.first, line)
      touch(list.head)
    end
  end
  for queue in pairs(queues) do wake_up(queue) end
end

-- A ready job leaves by another door than a claim. Its entry goes if it stands at an end of its list, as those of many
-- that leave together do; another is stale from now on: a gap.
local function leave_line(id, head)
  local line, index = line_of(head[LANE], head[PRIORITY]), index_of(head[LANE])
  local ready, moved, entry = named('ready', line), named('moved', line), id .. struct.pack('>d', head[SEQ])
  local was_moved = call('ZREM', moved, id) == 1
  touch(head)
  if was_moved then index_moved(line, index) end
  if call('LINDEX', ready, -1) == entry then
    call('RPOP', ready)
    if call('EXISTS', ready) == 0 then call('ZREM', index, line) end
  elseif call('LINDEX', ready, 0) == entry then
    call('LPOP', ready)
    index_list(line, index)
  elseif not was_moved then
    local gap = gaps[line] or {n = 0, index = index}
    gap.n, gaps[line] = gap.n + 1, gap
  end
end

-- For each gap two entries leave the front of the list: what still stands for a job goes into the set beside it. So a
-- list is never longer than there are ready jobs, and whoever claims meets few stale entries, though nobody has
-- claimed for long. Heads are written already.
local function close_gap(line, gap)
  local key, priority, lane = named('ready', line), string.match(line, '^(-?%d+):(.*)$')
  local wanted, own = struct.pack('>h', tonumber(priority)), packed_lane(lane)
  local left, popped = 2 * gap.n, nil
  while left > 0 do
    local entries, ids, members = call('LPOP', key, math.min(left, 500)) or {}, {}, {}
    if #entries == 0 then break end
    left, popped = left - #entries, true
    for n, entry in ipairs(entries) do ids[n] = sub(entry, 1, 16) end
    for n, raw in ipairs(call('HMGET', JOBS, unpack(ids))) do
      local seq = sub(entries[n], 17)
      if raw and byte(raw) == READY and sub(raw, 5, 12) == seq and sub(raw, 13, 14) == wanted and is_in(raw, own) then
        members[#members + 1], members[#members + 2] = whole((struct.unpack('>d', seq))), ids[n]
      end
    end
    if #members > 0 then call('ZADD', named('moved', line), unpack(members)) end
  end
  if not popped then return end
  index_list(line, gap.index)
  index_moved(line, gap.index)
end

local function close_gaps()
  for line, gap in pairs(gaps) do close_gap(line, gap) end
  gaps = {}
end
