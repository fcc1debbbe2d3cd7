-- moves: every way in and out of a state, with its indexes. Needs common.
local WAITING = {blocked = true, scheduled = true, retrying = true, ready = true}
local arrivals, arriving, counts = {}, {}, {}

local function count(head, n)
  local field = head[STATE] .. '\0' .. head[QUEUE] .. '\0' .. head[TASK]
  counts[field] = (counts[field] or 0) + n
end

-- Lists hold `id:seq`, one list for each lane and priority. The heads index of a group (a base lane with the lanes
-- beside it; its suspects apart) has each list that is not empty, by the place of its first entry in the line.
local SPAN = 2 ^ 44
local function place(priority, seq) return (100 - priority) * SPAN + seq end
local function base_of(lane) return string.match(lane, '^[^/]*/%a+') end
local function group_of(lane) return string.match(lane, '^[^/]*/%a+!?') end
local function line_of(lane, priority) return priority .. ':' .. lane end

-- A job whose next crash would be its last is kept apart from others like it.
local function is_suspect(head)
  return head[CRASHES] > 0 and head[CRASHES] >= head[CRASH_LIMIT] - 1
end

-- Whom a crash is charged to if jobs of several kinds ran: 1 those that crashed before, 2 suspects, 0 the others.
local function guilt_of(head)
  if head[CRASHES] == 0 then return 0 end
  return is_suspect(head) and 2 or 1
end

-- The lane for a job as it is: base, `!` for a suspect, `?task` when parked, `#buckets` when limited.
local function lane_for(head, parked)
  local base = base_of(head[LANE])
  local beside = is_suspect(head) and '!' or ''
  if parked then beside = beside .. '?' .. head[TASK] end
  if #head[BUCKETS] > 0 then
    local names = {}
    for n, bucket in ipairs(head[BUCKETS]) do names[n] = bucket[1] end
    table.sort(names)
    beside = beside .. '#' .. table.concat(names, ',')
  end
  return base .. beside
end

local function is_parked(lane)
  local mark = string.match(lane, '^[^/]*/%a+!?(.?)')
  return mark == '?'
end

-- Gives those who became ready their places in the line, in the order in which they became it.
local function line_up()
  local here, lists = arrivals, {}
  arrivals, arriving = {}, {}
  if #here == 0 then return end
  local seq = call('HINCRBY', META, 'seq', #here) - #here
  for n, id in ipairs(here) do
    local head = heads[id]
    head[SEQ] = seq + n
    local line = line_of(head[LANE], head[PRIORITY])
    local list = lists[line] or {group = group_of(head[LANE]), first = place(head[PRIORITY], seq + n)}
    list[#list + 1] = id .. ':' .. whole(seq + n)
    lists[line] = list
  end
  for line, list in pairs(lists) do
    local was_empty = call('EXISTS', named('ready', line)) == 0
    spread('RPUSH', named('ready', line), list)
    if was_empty then call('ZADD', named('heads', list.group), list.first, line) end
  end
end

local function leave(id, head)
  local state = head[STATE]
  if arriving[id] then line_up() end -- ready for less than one script: it has its place all the same
  count(head, -1)
  if state == 'running' then
    gather('HDEL', named('running', head[WORKER]), id)
    for _, bucket in ipairs(head[BUCKETS]) do call('HDEL', named('bucket', bucket[1]), id) end
    if head[ORDER] then call('HDEL', named('orders', head[WORKER]), id) end
  elseif state == 'scheduled' or state == 'retrying' then
    call('ZREM', LATER, id)
  end -- ready: the entry in its list is stale from now on and is dropped when a claim meets it
  if WAITING[state] and head[EXPIRES] then
    call('ZREM', EXPIRING, id)
    if state == 'ready' then call('ZREM', OVERDUE, id) end
  end
end

local function enter(id, head, state)
  head[STATE] = state
  heads[id], changed[id] = head, true
  count(head, 1)
  if state == 'scheduled' or state == 'retrying' then
    call('ZADD', LATER, head[DUE], id)
  elseif state == 'ready' then
    head[DUE] = false
    arrivals[#arrivals + 1], arriving[id] = id, true
  end
  if WAITING[state] then
    head[WORKER] = false
    if head[EXPIRES] then call('ZADD', EXPIRING, head[EXPIRES], id) end
  end
end

local function enter_line(id, head)
  local later = head[DUE] and head[DUE] > NOW
  enter(id, head, later and 'scheduled' or 'ready')
end

-- The one way into a final state. Resolves the edges of all who end by it, without recursion.
local function finish(id, head, state, reason)
  local ending = {{id, head, state, reason}}
  local at = 1
  while ending[at] do
    id, head, state, reason = unpack(ending[at])
    at = at + 1
    if live(id) then
      leave(id, head)
      gather('HDEL', JOBS, id)
      heads[id], changed[id], finished[id] = false, nil, head
      head[STATE], head[REASON], head[ENDED], head[DEPS] = state, reason, NOW, 0
      count(head, 1)
      gather('ZADD', named('ended', state), NOW, id)
      local edges = {}
      if head[CHILDREN] then
        edges = call('HGETALL', named('children', id))
        call('DEL', named('children', id))
        head[CHILDREN] = false
      end
      gather('HSET', FINISHED, id, cmsgpack.pack(head))
      for n = 1, #edges, 2 do
        local child = live(edges[n])
        if child and child[STATE] == 'blocked' then
          if edges[n + 1] == 'fail' and state ~= 'succeeded' then
            ending[#ending + 1] = {edges[n], child, 'cancelled', 'parent'}
          else
            child[DEPS] = child[DEPS] - 1
            changed[edges[n]] = true
            if child[DEPS] == 0 then
              leave(edges[n], child)
              enter_line(edges[n], child)
            end
          end
        end
      end
    end
  end
end

-- `acked` is true for the owner's own word, false for what a rescue or a retirement says of it.
local function keep_attempt(id, head, outcome, acked, error)
  local key, token = named('attempts', id), whole(head[TOKEN])
  local row = {head[TOKEN], head[EPOCH], head[ATTEMPT], head[WORKER], head[STARTED], NOW, outcome, acked}
  call('HSET', key, token, cmsgpack.pack(row))
  if error then call('HSET', key, token .. ':error', error) end
end

-- The end of every script that moved something.
local function flush()
  line_up()
  send_gathered()
  local pairs_to_write = {}
  for id in pairs(changed) do
    pairs_to_write[#pairs_to_write + 1] = id
    pairs_to_write[#pairs_to_write + 1] = cmsgpack.pack(heads[id])
  end
  changed = {}
  if #pairs_to_write > 0 then spread('HSET', JOBS, pairs_to_write) end
  for field, n in pairs(counts) do
    if n ~= 0 and call('HINCRBY', COUNTS, field, n) == 0 then call('HDEL', COUNTS, field) end
  end
  counts = {}
end
