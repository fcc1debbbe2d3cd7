-- lanes: where ready jobs are. Needs common, rows, lane_fields, wakeups.
-- A line is a list of id and seq, one for each lane and priority. An index is a sorted set of the lines that have
-- entries, by the place of their first entry. Each base lane has one index for itself and the lanes beside it, but
-- suspects have an index of their own: these are the roots. A lane with limits has an index of its own; the lane is in
-- the index of its lane set (base lane, unkeyed limits and marks), and the lane set is in its root as `#` and its name.
-- gives: line_of, index_of, arrivals, arriving, pending, touch, index_list, index_moved, line_up, leave_line
-- gives: close_gaps, known_buckets
local function line_of(lane, priority) return priority .. ':' .. lane end

local function index_of(lane)
  local fields = lane_fields(lane)
  return named('index', fields.limited and lane or fields.root)
end

local arrivals, arriving = {}, {}
local gaps = {}
local known_buckets = {} -- lane -> the buckets that its jobs name, once this script has read one of them
local pending = {} -- lanes with limits whose index has changed -> the buckets that their jobs name

local function touch(head)
  if head[MORE].b then
    pending[head[LANE]] = head[MORE].b
  elseif lane_fields(head[LANE]).free then
    pending[head[LANE]] = {}
  end
end

-- The index has the place of the first entry of a list. Behind `~` it has the place of the first member of the sorted
-- set beside the list.
local function index_list(line, index)
  local first = call('LINDEX', named('line', line), 0)
  if not first then return call('ZREM', index, line) end
  local priority = tonumber(string.match(line, '^-?%d+'))
  call('ZADD', index, place(priority, (struct.unpack('>d', first, {ID_BYTES} + 1))), line)
end

local function index_moved(line, index)
  local first = call('ZRANGE', named('line_moved', line), 0, 0, 'WITHSCORES')[2]
  if not first then return call('ZREM', index, '~' .. line) end
  local priority = tonumber(string.match(line, '^-?%d+'))
  call('ZADD', index, place(priority, tonumber(first)), '~' .. line)
end

-- Gives the jobs that became ready their places, in the order in which they became ready, and wakes listeners. Jobs of
-- a lifo queue get places that fall from the middle of all places, where the others begin: they go into the sorted
-- sets.
local function line_up()
  local here, lists, queues = arrivals, {}, {}
  arrivals, arriving = {}, {}
  if #here == 0 then return end
  local seq = take_seqs(#here)
  for n, id in ipairs(here) do
    local head = heads[id]
    head[SEQ] = seq + n
    local line = line_of(head[LANE], head[PRIORITY])
    if head[MORE].s then
      head[SEQ] = {SEQ_SPAN} - head[SEQ]
      call('ZADD', named('line_moved', line), head[SEQ], id)
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
    local was_empty = call('EXISTS', named('line', line)) == 0
    spread('RPUSH', named('line', line), list)
    if was_empty then
      call('ZADD', index_of(list.head[LANE]), list.first, line)
      touch(list.head)
    end
  end
  for queue in pairs(queues) do wake_up(queue) end
end

-- A ready job leaves its line without a claim. Its entry is removed if it is the first or the last of its list, as with
-- many jobs that leave together. Any other entry becomes stale: a gap.
local function leave_line(id, head)
  local line, index = line_of(head[LANE], head[PRIORITY]), index_of(head[LANE])
  local list, moved, entry = named('line', line), named('line_moved', line), id .. struct.pack('>d', head[SEQ])
  local was_moved = call('ZREM', moved, id) == 1
  touch(head)
  if was_moved then index_moved(line, index) end
  if call('LINDEX', list, -1) == entry then
    call('RPOP', list)
    if call('EXISTS', list) == 0 then call('ZREM', index, line) end
  elseif call('LINDEX', list, 0) == entry then
    call('LPOP', list)
    index_list(line, index)
  elseif not was_moved then
    local gap = gaps[line] or {n = 0, index = index}
    gap.n, gaps[line] = gap.n + 1, gap
  end
end

-- For each gap two entries leave the front of the list; entries of ready jobs go into the sorted set beside the list.
-- So a list never has more entries than there are ready jobs, and a claim meets few stale entries even if there was no
-- claim for a long time. The heads are written already.
local function close_gap(line, gap)
  local key, priority, lane = named('line', line), string.match(line, '^(-?%d+):(.*)$')
  local wanted, own = struct.pack('>h', tonumber(priority)), packed_lane(lane)
  local left, popped = 2 * gap.n, nil
  while left > 0 do
    local entries, ids, members = call('LPOP', key, math.min(left, {GAP_ENTRIES})) or {}, {}, {}
    if #entries == 0 then break end
    left, popped = left - #entries, true
    for n, entry in ipairs(entries) do ids[n] = sub(entry, 1, {ID_BYTES}) end
    for n, raw in ipairs(call('HMGET', JOBS, unpack(ids))) do
      local seq = sub(entries[n], {ID_BYTES} + 1)
      local stands = raw and byte(raw) == {READY} and sub(raw, {SEQ_AT}, {SEQ_END}) == seq
      if stands and sub(raw, {PRIORITY_AT}, {PRIORITY_END}) == wanted and is_in(raw, own) then
        members[#members + 1], members[#members + 2] = whole((struct.unpack('>d', seq))), ids[n]
      end
    end
    if #members > 0 then call('ZADD', named('line_moved', line), unpack(members)) end
  end
  if not popped then return end
  index_list(line, gap.index)
  index_moved(line, gap.index)
end

local function close_gaps()
  for line, gap in pairs(gaps) do close_gap(line, gap) end
  gaps = {}
end
