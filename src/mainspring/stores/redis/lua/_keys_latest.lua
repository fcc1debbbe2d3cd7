-- keys_latest: the modes of unique keys in which the newest enqueue replaces the waiting job. Needs common, rows,
-- lanes, moves, lanes_moved, keys.
-- gives: plan_latest, replace_waiting, store_latest, resume

-- Plans a new job that replaces the waiting job of its key.
local function plan_replacement(plan, last, head, before, was)
  local window, mode, max_wait = plan.times[5], plan.times[6], plan.times[7]
  plan.old, plan.said, plan.before = last, plan.id, before
  if head[STATE] == {BLOCKED} and was == {KEY_KEEP_LAST} and before and live(before) then
    plan.edges = before .. string.char({EDGE_CODE_IGNORE})
  end
  if mode == {KEY_DEBOUNCE} then
    plan.head[DUE] = NOW + window
    if max_wait > 0 then plan.head[DUE] = math.min(plan.head[DUE], head[ENQUEUED] + max_wait) end
  elseif mode == {KEY_THROTTLE} then
    plan.head[DUE] = head[DUE]
  end
end

-- Plans a new job beside a job of its key that was started before, or as the first of its key.
local function plan_next(plan, last, head, before)
  local window, mode = plan.times[5], plan.times[6]
  if mode == {KEY_DEBOUNCE} then
    plan.head[DUE] = NOW + window
  elseif mode == {KEY_KEEP_LAST} then
    local ahead = head and last or before
    if ahead and live(ahead) then plan.before, plan.edges = ahead, ahead .. string.char({EDGE_CODE_IGNORE}) end
  else
    for _, id in ipairs({last or false, before or false}) do
      local found = id and anywhere(id)
      if found and found[TOKEN] > 0 and not plan.before then
        plan.before = id
        if found[STARTED] ~= {NONE} then plan.head[DUE] = math.min(found[STARTED], NOW) + window end
      end
    end
  end
end

-- Plans a new job. Returns the id of the job that answers for it, if this enqueue is a repeat; else fills into the plan
-- the job that it replaces, its due time, its parents, and the job of the key that was started last. An expired job of
-- the key is added to `expired`: it has to end first.
local function plan_latest(plan, expired)
  local last, _, more = key_entry(plan.head[MORE].u)
  local was, _, _, before, said = unpack_more(more)
  if said == plan.id then return last end
  local head = last and live(last)
  if head and is_expired(head) then
    expired[#expired + 1] = last
    head = nil
  end
  if head and head[TOKEN] == 0 and head[STATE] < {RUNNING} then
    plan_replacement(plan, last, head, before, was)
  else
    plan_next(plan, last, head, before)
  end
end

-- The waiting job leaves its place, with its record, follow-up jobs and marks. The new job takes its id and its place.
local function replace_waiting(plan)
  local id, old, new = plan.old, live(plan.old), plan.head
  leave(id, old)
  if old[RECORD_APART] then call('HDEL', RECORDS, id) end
  if old[FOLLOWED] then call('HDEL', FOLLOW_UPS, id) end
  for _, mark in ipairs(old[MORE].m or {}) do call('ZREM', named('mark', mark), id) end
  new[ENQUEUED], new[CHILDREN], new[EPOCH] = old[ENQUEUED], old[CHILDREN], old[EPOCH]
  plan.id, plan.seq = id, old[STATE] == {READY} and plan.stays and old[SEQ]
  if plan.seq and old[LANE] ~= new[LANE] then -- two entries with the same place would hide each other
    call('LREM', named('line', line_of(old[LANE], old[PRIORITY])), 1, id .. struct.pack('>d', plan.seq))
  end
end

local function store_latest(plan)
  local window, mode = plan.times[5], plan.times[6]
  local span = mode == {KEY_THROTTLE} and window or 0
  take_key(plan.head[MORE].u, plan.id, 0, pack_more(mode, span, nil, plan.before, plan.said))
end

-- blocked -> ready at the place that the replaced job had.
local function resume(plan)
  local id, head = plan.id, plan.head
  head[STATE], head[SEQ], head[DUE] = {READY}, plan.seq, {NONE}
  heads[id], changed[id] = head, true
  count(head, 1)
  if head[EXPIRES] ~= {NONE} then call('ZADD', EXPIRING, head[EXPIRES], id) end
  if head[MORE].d then call('ZADD', named('depth', queue_of(head)), head[ENQUEUED], id) end
  put_in_place(id, head)
  if head[MORE].b then
    with_limits()
    recheck_lane(head[LANE])
  end
  wake_up(queue_of(head))
end
