-- acks: what a worker says of its attempts. Needs common, heads, wake, rooms, lines, parking, moves, spending, relane.
-- A plain success is one argument: id, token, and the result after a `+` if there is one. Any other ack is two: a
-- packed [outcome, to, reason, delay, due, refund, park, label, with result, with error, slow, spent [limit, cost], fault,
-- buckets [limit, key, cost, label], part], and id, token, result, error, each of the last two with its length in front; false stands for nothing.
-- gives: settle_all

-- Whether this very owner has said this very thing of this attempt before. Every ended attempt has a row but a plain
-- success, after which the head names its owner until the next claim.
local function said_before(id, token, worker, outcome)
  for _, entry in ipairs(call('LRANGE', named('attempts', id), 0, -1)) do
    local row = cmsgpack.unpack((struct.unpack('>I4c0', entry)))
    if row[1] == token then return row[8] and row[4] == worker and row[7] == outcome end
  end
  local head = outcome == 'succeeded' and anywhere(id)
  return head and head[TOKEN] == token and head[WORKER] == worker and head[STATE] ~= RUNNING
end

local function settle(id, head, ack, result, error)
  local outcome, to, reason, delay, due, refund, park, label = unpack(ack, 1, 8)
  local order, buckets = head[MORE].o, head[MORE].b
  if buckets and ack[11] then
    with_rooms()
    with_breakers()
    if ack[14] then with_relane() end
    correct(buckets, ack[14] and unspent(buckets) or ack[12], ack[11])
  end
  if buckets and (ack[13] or to == SUCCEEDED) then
    with_rooms()
    with_breakers()
    end_of(buckets, head[STARTED], ack[13])
  end
  local ends = order or to > RUNNING
  if order or to ~= SUCCEEDED then keep_attempt(id, head, outcome, true, error) end
  if refund then head[ATTEMPT] = head[ATTEMPT] - 1 end
  if ends then
    if error then call('HSET', ERRORS, id, error) end
    head[ERROR] = error and true
    if order then return finish(id, head, CANCELLED, 'by_user', order ~= '' and order) end
    if to == DEAD then head[MORE].e = label or nil end
    head[FAR] = result and #result > LARGE
    if head[FAR] then call('HSET', RESULTS, id, result) end
    head[RESULT] = head[FAR] and '' or result
    return finish(id, head, to, reason)
  end
  leave(id, head)
  head[DUE] = due or (NOW + delay)
  if to == READY and ack[14] then
    with_relane()
    return relane(id, head, ack[14], ack[15], park)
  end
  if to == READY and park then set_lane(head, true) end
  enter(id, head, to)
end

local function settle_one(id, token, worker, ack, result, error, already, stale)
  local head = live(id)
  if head and head[STATE] == RUNNING and head[TOKEN] == token and head[WORKER] == worker then
    settle(id, head, ack, result, error)
  else
    local list = said_before(id, token, worker, ack[1]) and already or stale
    list[#list + 1] = {id, token}
  end
end

local SUCCESS = {'succeeded', SUCCEEDED, false, 0, false, false, false, false, false, false, false}

-- Jobs of one queue and task, and of limited ones those that are alike in all that is stored down to their buckets. Which
-- they are, and when the last of them began, is kept where they stand in a bucket one by one.
local function kind_of(raw, ends, group_at, kinds)
  local buckets, text
  if ends == LIMITED then
    with_rooms()
    local more, at, lane
    buckets, more, at, lane = buckets_in(raw)
    text = sub(raw, group_at, at + #more - 1)
    if not string.find(lane, '=', 1, true) then known_buckets[lane] = buckets end
  else
    local high, low = byte(raw, group_at, group_at + 1)
    text = sub(raw, group_at, group_at + 1 + high * 256 + low)
  end
  local kind = kinds[text]
  if not kind then
    local group = struct.unpack('>Hc0', text)
    kind = {text = text, ends = ends, group = group, buckets = buckets, n = 0, ids = false, began = ''}
    for _, bucket in ipairs(buckets or {}) do
      if bucket[2] ~= '' or is_guard(bucket[1]) and switch_of(bucket[1]) then kind.ids = {} end
    end
    kinds[text] = kind
  end
  return kind
end

-- Those that have succeeded leave their buckets. A breaker that is closed and has nothing to forget hears nothing of it.
local function leave_buckets(kind)
  for _, bucket in ipairs(kind.buckets) do
    local name = name_of(bucket)
    vacate(name, kind.n, kind.ids)
    if is_guard(name) and switch_of(name) then
      with_breakers()
      end_of({bucket}, (struct.unpack('>d', kind.began)))
    end
  end
end

-- Successes of jobs on which nothing hangs: their heads are changed in place. Returns the arguments that are not such.
local function settle_plain(worker, first, last)
  local ids, others = {}, {}
  for n = first, last do ids[n - first + 1] = sub(ARGV[n], 1, 16) end
  if #ids == 0 then return others end
  local owner = string.char(#worker) .. worker
  local group_at = 100 + #worker
  local done, far, gone, ended, twice, groups, now = {}, {}, {}, {}, {}, {}, whole(NOW)
  local kinds, kind = {}, nil
  for from = 1, #ids, 1000 do
    local raws = call('HMGET', JOBS, unpack(ids, from, math.min(from + 999, #ids)))
    for n, raw in ipairs(raws) do
      local id, said = ids[from + n - 1], ARGV[first + from + n - 2]
      local state, ends, _, rest
      if raw then state, ends, _, rest = byte(raw, 1, 4) end
      if
        state == RUNNING and (ends == 0 or ends == LIMITED) and not twice[id]
        and sub(raw, 91, 98) == sub(said, 17, 24) and find(raw, owner, 99, true) == 99
      then
        twice[id] = true
        if not kind or kind.ends ~= ends or find(raw, kind.text, group_at, true) ~= group_at then
          kind = kind_of(raw, ends, group_at, kinds)
        end
        kind.n = kind.n + 1
        if kind.ids then
          local began = sub(raw, 19, 26)
          kind.ids[#kind.ids + 1] = id
          if began > kind.began then kind.began = began end
        end
        local result = sub(said, 26)
        if #said > 24 then rest = rest + 4 end
        if #result > LARGE then
          far[#far + 1], far[#far + 2] = id, result
          rest, result = rest + 16, ''
        end
        done[#done + 1], done[#done + 2] = id, '\6' .. sub(raw, 2, 3) .. string.char(rest)
          .. sub(raw, 5, 34) .. NOW_PACKED .. sub(raw, 43, 98) .. owner .. kind.text
          .. sub(raw, group_at + #kind.text) .. result
        gone[#gone + 1] = id
        ended[#ended + 1], ended[#ended + 2] = now, id
      else
        others[#others + 1] = said
      end
    end
  end
  for _, each in pairs(kinds) do
    groups[each.group] = (groups[each.group] or 0) + each.n
    if each.buckets then leave_buckets(each) end
  end
  move_counts(groups, '\5', '\6')
  spread('SREM', named('running', worker), gone)
  spread('HSET', JOBS, done)
  spread('HSET', RESULTS, far)
  spread('ZADD', DONE, ended)
  return others
end

-- Applies acks of `worker`: `plain` successes from argument `first` on, then the others. Returns already and stale.
local function settle_all(worker, plain, first)
  local already, stale = {}, {}
  local others = settle_plain(worker, first, first + plain - 1)
  if #others > 0 or #ARGV >= first + plain then pass_when_full() end
  for _, said in ipairs(others) do
    local id, token = sub(said, 1, 16), (struct.unpack('>d', said, 17))
    settle_one(id, token, worker, SUCCESS, #said > 24 and sub(said, 26), nil, already, stale)
  end
  for n = first + plain, #ARGV, 2 do
    local ack = cmsgpack.unpack(ARGV[n])
    local id, token, result, error = struct.unpack('>c16dI4c0I4c0', ARGV[n + 1])
    settle_one(id, token, worker, ack, ack[9] and result, ack[10] and error, already, stale)
  end
  if hear_all then hear_all() end
  return already, stale
end
