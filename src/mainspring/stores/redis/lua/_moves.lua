-- moves: every way in and out of a state, with its indexes. Needs common, heads, wake, parts, rooms, lines, parking.
-- gives: LATER, EXPIRING, OVERDUE, DONE, DIED, DROPS, HELD, ERRORS, PARENTS, FOLLOWS, counts, count, move_counts, guilt_of
-- gives: set_lane, leave, enter, enter_line, new_head, put_beside, resolve, enter_history, finish_all, finish
-- gives: keep_attempt, flush, unblock
local LATER, EXPIRING, OVERDUE = TAG .. 'later', TAG .. 'expiring', TAG .. 'overdue'
local DONE, DIED, DROPS, HELD = TAG .. 'done', TAG .. 'died', TAG .. 'drops', TAG .. 'held'
local ERRORS, PARENTS, FOLLOWS = TAG .. 'errors', TAG .. 'parents', TAG .. 'follows'
local counts = {}

-- Numbers by state, queue, task; of the cancelled also by reason, of the dead by reason and type of error.
local function count(head, n)
  local state, more = head[STATE], head[MORE]
  local field = string.char(state) .. head[GROUP]
  if state == CANCELLED then field = field .. '\0' .. more.r end
  if state == DEAD then field = field .. '\0' .. more.r .. '\0' .. (more.e or '') end
  counts[field] = (counts[field] or 0) + n
end

-- The same for many that went from one state to another, by queue and task.
local function move_counts(groups, from, to)
  for group, n in pairs(groups) do
    counts[from .. group] = (counts[from .. group] or 0) - n
    counts[to .. group] = (counts[to .. group] or 0) + n
  end
end

-- A job whose next crash would be its last is kept apart from others like it.
local function is_suspect(head)
  return head[CRASHES] > 0 and head[CRASHES] >= head[CRASH_LIMIT] - 1
end

-- Whom a crash is charged to if jobs of several kinds ran: 1 those that crashed before, 2 suspects, 0 the others.
local function guilt_of(head)
  if head[CRASHES] == 0 then return 0 end
  return is_suspect(head) and 2 or 1
end

-- Puts a job into the lane for it as it is: its home (base lane and buckets), `!` for a suspect, `?task` when parked.
local function set_lane(head, parked)
  local marks = is_suspect(head) and '!' or ''
  if parked then marks = marks .. '?' .. task_of(head) end
  head[LANE], head[PARKED] = home_of(head[LANE]) .. marks, parked
end

-- A blocked job waits no more: its parents and its part need not know of it.
local function forget_parents(id, head)
  if head[MORE].w then
    call('ZREM', named('awaiting', head[MORE].w), id)
    head[MORE].w = nil
  end
  local parents = call('HGET', PARENTS, id)
  call('HDEL', PARENTS, id)
  if not parents or head[DEPS] == 0 then return end
  for first = 1, #parents, 16 do call('HDEL', named('children', sub(parents, first, first + 15)), id) end
end

local function leave(id, head)
  local state = head[STATE]
  if arriving[id] then line_up() end -- ready for less than one script: it has its place all the same
  count(head, -1)
  if state == RUNNING then
    call('SREM', named('running', head[WORKER]), id)
    if head[MORE].b then with_rooms() end
    for _, bucket in ipairs(head[MORE].b or {}) do vacate(name_of(bucket), 1, {id}) end
    if head[MORE].o then call('HDEL', named('orders', head[WORKER]), id) end
  elseif state == BLOCKED then
    forget_parents(id, head)
  elseif state == SCHEDULED or state == RETRYING then
    call('ZREM', LATER, id)
  elseif state == READY then
    leave_line(id, head)
  end
  if state < RUNNING and head[EXPIRES] ~= NONE then
    call('ZREM', EXPIRING, id)
    if state == READY then call('ZREM', OVERDUE, id) end
  end
  if state < RUNNING and head[MORE].d then call('ZREM', named('depth', queue_of(head)), id) end
end

local function enter(id, head, state)
  head[STATE] = state
  heads[id], changed[id] = head, true
  count(head, 1)
  if state == SCHEDULED or state == RETRYING then
    call('ZADD', LATER, head[DUE], id)
  elseif state == READY then
    head[DUE] = NONE
    arrivals[#arrivals + 1], arriving[id] = id, true
  end
  if state < RUNNING and head[EXPIRES] ~= NONE then call('ZADD', EXPIRING, head[EXPIRES], id) end
  if state < RUNNING and head[MORE].d then call('ZADD', named('depth', queue_of(head)), head[ENQUEUED], id) end
end

local function enter_line(id, head)
  enter(id, head, head[DUE] ~= NONE and head[DUE] > NOW and SCHEDULED or READY)
end

-- A new job from its text (heads.py) and its times [delay, run_at, expires_in]; false is no time.
local function new_head(text, times)
  local head, due, expires = load_head(text), times[2] or NOW + times[1], times[3]
  head[ENQUEUED] = NOW
  if due > NOW then head[DUE] = due end
  if expires then head[EXPIRES] = NOW + expires end
  set_lane(head, false)
  return head
end

-- What stands beside a new job.
local function put_beside(id, head, record)
  if head[APART] then call('HSET', RECORDS, id, record) end
  for _, mark in ipairs(head[MORE].m or {}) do call('ZADD', named('mark', mark), 0, id) end
end

-- The follow-up jobs of a job that ends in `state`: one for each epoch, once.
local function insert_follows(id, head, state)
  local text, at = call('HGET', FOLLOWS, id), 1
  local epoch = head[EPOCH] % 65536
  local number = string.char(math.floor(epoch / 256), epoch % 256)
  while text and at <= #text do
    local on, own, raw, times, record
    on, own, raw, times, record, at = struct.unpack('>Bc16I4c0I4c0I4c0', text, at)
    own = sub(own, 1, 14) .. number
    if on == state and not anywhere(own) then
      local follower = new_head(raw, cmsgpack.unpack(times))
      local queue = queue_of(follower)
      if (queues_in('draining', {[queue] = true}) or {})[queue] == 'special' then
        with_settings()
        place_new(follower, settings_of(kept_of(queue)))
      end
      call('ZADD', IDS, 0, own)
      put_beside(own, follower, record)
      enter_line(own, follower)
    end
  end
end

-- A blocked job has one thing less to wait for.
local function unblock(id, head)
  head[DEPS], changed[id] = head[DEPS] - 1, true
  if head[DEPS] > 0 then return end
  leave(id, head)
  enter_line(id, head)
end

-- Adds to `ending` the children that end with their parent, and frees the others.
local function resolve(id, head, succeeded, ending)
  if not head[CHILDREN] then return end
  local edges = call('HGETALL', named('children', id))
  call('DEL', named('children', id))
  head[CHILDREN] = false
  for n = 1, #edges, 2 do
    local child = live(edges[n])
    if child and child[STATE] == BLOCKED then
      if edges[n + 1] == 'fail' and not succeeded then
        child[DEPS], changed[edges[n]] = child[DEPS] - 1, true
        ending[#ending + 1] = {edges[n], child, CANCELLED, 'parent'}
      else
        unblock(edges[n], child)
      end
    end
  end
end

-- Where retention finds an ended job.
local function enter_history(id, head)
  if head[STATE] == DEAD then
    call('ZADD', DIED, head[ENDED], id)
  elseif head[MORE].k then
    call('ZADD', DROPS, whole(head[ENDED] + head[MORE].k), id)
  else
    call('ZADD', DONE, head[ENDED], id)
  end
end

-- Each of `ending` [id, head, state, reason, note] goes to history, and who hangs on it with it, without recursion.
local function finish_all(ending)
  local at = 1
  while ending[at] do
    local id, head, state, reason, note = unpack(ending[at], 1, 5)
    at = at + 1
    if head[STATE] <= RUNNING then
      local more = head[MORE]
      leave(id, head)
      more.r, more.n, more.o = reason or nil, note or nil, nil
      head[STATE], head[ENDED], head[DEPS], head[DUE] = state, NOW, 0, NONE
      heads[id], changed[id] = head, true
      count(head, 1)
      enter_history(id, head)
      if head[FOLLOWED] then insert_follows(id, head, state) end
      resolve(id, head, state == SUCCEEDED, ending)
      if head[OF_PART] and state == SUCCEEDED then
        with_parts()
        for _, freed in ipairs(parts.hear_success(head)) do unblock(freed, live(freed)) end
      end
    end
  end
end

-- The one way into a final state.
local function finish(id, head, state, reason, note) finish_all({{id, head, state, reason, note}}) end

-- `acked` is true for the owner's own word, false for what a rescue or a retirement says of it.
local KEPT_ATTEMPTS = 100
local function keep_attempt(id, head, outcome, acked, error)
  local key = named('attempts', id)
  local row = {head[TOKEN], head[EPOCH], head[ATTEMPT], head[WORKER], head[STARTED], NOW, outcome, acked, error and true or false}
  local packed = cmsgpack.pack(row)
  if call('RPUSH', key, struct.pack('>I4c0', #packed, packed) .. (error or '')) > KEPT_ATTEMPTS then call('LPOP', key) end
end

-- The end of every script that moved something. A turn goes on: when it has taken its own room it writes what is left of
-- it, and tells who waits.
local function flush(goes_on)
  line_up()
  local writes = {}
  for id in pairs(changed) do
    writes[#writes + 1], writes[#writes + 2] = id, dump_head(heads[id])
  end
  changed = {}
  spread('HSET', JOBS, writes)
  close_gaps()
  if next(pending) then with_rooms() end
  if settle_lanes then
    settle_lanes()
    settle_groups()
    if not goes_on then
      write_rooms()
      tell_waiting()
    end
  end
  add_counts(counts)
  counts = {}
end
