-- ack: what workers report of their attempts. Needs common, rows, wakeups, limits, lanes, moves, finish, limits_spent,
-- ack_handback, take_back.
-- A plain success is one argument: id, token, the microseconds that the body ran, and `+` and the result if there is
-- one. Any other ack is two arguments: a packed [outcome, to, reason, delay, due, refund, park, label, has a result, has
-- an error, slow, spent [limit, cost], buckets [limit, key, cost, label], unstarted, the microseconds that the body
-- ran, delays after crashes], where false stands for a missing value; and id, token, result, error, each of the last two
-- after its length.
-- gives: apply_acks

-- Whether this worker has sent this ack of this attempt before. Every ended attempt has a row except a plain success,
-- after which the head names its worker until the next claim.
local function is_repeated(id, token, worker, outcome)
  for _, entry in ipairs(call('LRANGE', named('attempts', id), 0, -1)) do
    local row = cmsgpack.unpack((struct.unpack('>I4c0', entry)))
    if row[1] == token then return row[8] and row[4] == worker and row[7] == outcome end
  end
  local head = outcome == {OUTCOME_SUCCEEDED} and anywhere(id)
  return head and head[TOKEN] == token and head[WORKER] == worker and head[STATE] ~= {RUNNING}
end

-- Counts the real cost of the attempt in the rates of the job.
local function correct_rates(buckets, ack)
  with_limits()
  with_limits_spent()
  if ack[13] then with_take_back() end
  correct_costs(buckets, ack[13] and unspent(buckets) or ack[12], ack[11])
end

local ended, ended_now = {}, {} -- jobs that finish() gets together when all acks were read; the outcome of each

-- Keeps the error and the run time of an attempt that ends its job.
local function keep_end(id, head, ack, error)
  if error then call('HSET', ERRORS, id, error) end
  head[ERROR], head[RAN], ended_now[id] = error and true, ack[15], ack[1]
end

-- The job crashed in a process of its own: a crash for which no other job can be charged.
local function apply_crash(id, head, ack, error)
  with_take_back()
  take_back_job(id, head, {true, true, ack[16], ack[3], ack[2] == {DEAD}}, function(to)
    keep_end(id, head, ack, error)
    if to == {DEAD} then head[MORE].e = ack[8] or nil end
  end, ended)
end

-- The attempt ends the job. `order`: the reason of a cancel order, which decides against any other end.
local function end_job(id, head, ack, result, error, order)
  local to, reason, label = ack[2], ack[3], ack[8]
  keep_end(id, head, ack, error)
  if order then
    ended[#ended + 1] = {id, head, {CANCELLED}, {BY_USER}, order ~= '' and order}
    return
  end
  if to == {DEAD} then head[MORE].e = label or nil end
  head[RESULT_APART] = result and #result > {LARGE}
  if head[RESULT_APART] then call('HSET', RESULTS, id, result) end
  head[RESULT] = head[RESULT_APART] and '' or result
  ended[#ended + 1] = {id, head, to, reason}
end

local function apply_ack(id, head, ack, result, error)
  local outcome, to, delay, due, refund, park = ack[1], ack[2], ack[4], ack[5], ack[6], ack[7]
  local order, buckets = head[MORE].o, head[MORE].b
  if buckets and ack[11] then correct_rates(buckets, ack) end
  if order or to ~= {SUCCEEDED} then keep_attempt(id, head, outcome, true, error, ack[15]) end
  if outcome == {OUTCOME_CRASHED} then return apply_crash(id, head, ack, error) end
  if refund then head[ATTEMPT] = head[ATTEMPT] - 1 end
  if order or to > {RUNNING} then return end_job(id, head, ack, result, error, order) end
  leave(id, head)
  head[DUE] = due or (NOW + delay)
  if not ack[14] then head[EXPIRES] = {NONE} end -- the job has started: it cannot expire any more
  if to == {READY} and ack[13] then
    with_take_back()
    return hand_back(id, head, ack[13], park)
  end
  if to == {READY} and park then set_lane(head, true) end
  enter(id, head, to)
end

local function check_and_apply(id, token, worker, ack, result, error, already, stale)
  local head = live(id)
  if ended_now[id] then
    local list = head[TOKEN] == token and ended_now[id] == ack[1] and already or stale
    list[#list + 1] = {id, token}
  elseif head and head[STATE] == {RUNNING} and head[TOKEN] == token and head[WORKER] == worker then
    apply_ack(id, head, ack, result, error)
  else
    local list = is_repeated(id, token, worker, ack[1]) and already or stale
    list[#list + 1] = {id, token}
  end
end

-- The fields of a plain success as those of any other ack.
local function success(ran)
  return {{OUTCOME_SUCCEEDED}, {SUCCEEDED}, false, 0, false, false, false, false, false, false, false, false, false,
    false, ran}
end

-- Jobs of one kind have the same queue and task; of jobs with limits all fields up to the buckets are the same. `ids`
-- are collected only where a bucket has a sorted set of its jobs.
local function kind_of(raw, ends, group_at, kinds)
  local buckets, text
  if ends == {FLAG_LIMITED} then
    with_limits()
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
    kind = {text = text, ends = ends, group = group, buckets = buckets, n = 0, ids = false}
    for _, bucket in ipairs(buckets or {}) do
      if bucket[2] ~= '' or is_breaker_name(bucket[1]) and not is_closed(bucket[1]) then kind.ids = {} end
    end
    kinds[text] = kind
  end
  return kind
end

-- The succeeded jobs of a kind leave their buckets.
local function leave_buckets(kind)
  for _, bucket in ipairs(kind.buckets) do free_capacity(name_of(bucket), kind.n, kind.ids) end
end

-- Applies plain successes of jobs whose end has nothing else to look at: their heads are changed in place.
-- Returns the arguments of the other successes.
local function apply_plain(worker, first, last)
  local ids, others = {}, {}
  for n = first, last do ids[n - first + 1] = sub(ARGV[n], 1, {ID_BYTES}) end
  if #ids == 0 then return others end
  local owner, succeeded = string.char(#worker) .. worker, string.char({SUCCEEDED})
  local group_at = {NAMES_AT} + #worker
  local done, apart, gone, ended, twice, groups, now = {}, {}, {}, {}, {}, {}, whole(NOW)
  local kinds, kind = {}, nil
  for from = 1, #ids, {ARGUMENTS} do
    local raws = call('HMGET', JOBS, unpack(ids, from, math.min(from + {ARGUMENTS} - 1, #ids)))
    for n, raw in ipairs(raws) do
      local id, said = ids[from + n - 1], ARGV[first + from + n - 2]
      local state, ends, _, rest
      if raw then state, ends, _, rest = byte(raw, 1, 4) end
      if
        state == {RUNNING} and (ends == 0 or ends == {FLAG_LIMITED}) and not twice[id]
        and sub(raw, {TOKEN_AT}, {TOKEN_END}) == sub(said, {ID_BYTES} + 1, {LEASE_BYTES})
        and find(raw, owner, {WORKER_SIZE_AT}, true) == {WORKER_SIZE_AT}
      then
        twice[id] = true
        if not kind or kind.ends ~= ends or find(raw, kind.text, group_at, true) ~= group_at then
          kind = kind_of(raw, ends, group_at, kinds)
        end
        kind.n = kind.n + 1
        if kind.ids then kind.ids[#kind.ids + 1] = id end
        local result = sub(said, {SUCCESS_BYTES} + 2)
        if #said > {SUCCESS_BYTES} then rest = rest + {FLAG_RESULT} end
        if #result > {LARGE} then
          apart[#apart + 1], apart[#apart + 2] = id, result
          rest, result = rest + {FLAG_RESULT_APART}, ''
        end
        done[#done + 1], done[#done + 2] = id, succeeded .. sub(raw, {ENDS_AT}, {CLAIMS_END}) .. string.char(rest)
          .. sub(raw, {SEQ_AT}, {TURN_END}) .. NOW_PACKED .. sub(said, {LEASE_BYTES} + 1, {SUCCESS_BYTES})
          .. sub(raw, {CRASHES_AT}, {TOKEN_END}) .. owner .. kind.text .. sub(raw, group_at + #kind.text) .. result
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
  move_counts(groups, {RUNNING}, {SUCCEEDED})
  spread('SREM', named('worker_jobs', worker), gone)
  spread('HSET', JOBS, done)
  spread('HSET', RESULTS, apart)
  spread('ZADD', DONE, ended)
  return others
end

-- Applies the acks of a worker: `plain` successes from argument `first` on, then the others. Returns the leases of acks
-- that were applied before, and of acks whose lease is not valid any more.
local function apply_acks(worker, plain, first)
  local already, stale = {}, {}
  local others = apply_plain(worker, first, first + plain - 1)
  if #others > 0 or #ARGV >= first + plain then pass_when_full() end
  for _, said in ipairs(others) do
    local id, token, ran = struct.unpack('>c16dd', said)
    local result = #said > {SUCCESS_BYTES} and sub(said, {SUCCESS_BYTES} + 2)
    check_and_apply(id, token, worker, success(ran), result, nil, already, stale)
  end
  for n = first + plain, #ARGV, 2 do
    local ack = cmsgpack.unpack(ARGV[n])
    local id, token, result, error = struct.unpack('>c16dI4c0I4c0', ARGV[n + 1])
    check_and_apply(id, token, worker, ack, ack[9] and result, ack[10] and error, already, stale)
  end
  finish_all(ended)
  return already, stale
end
