-- latest: keys under which the newest enqueue replaces the job that waits. Needs common, heads, parts, lines, moves,
-- places, uniq.
-- gives: latest_of, take_out, take_latest, resume

-- What becomes of a new job: the id of the one that speaks for it already; or, in its plan, the job that it replaces, when
-- it is due, what it waits for, and which job of the key was started last. `late` gets one that is to end first.
local function latest_of(plan, late)
  local key, window, mode = plan.head[MORE].u, plan.times[5], plan.times[6]
  local last, _, more = key_entry(key)
  local was, _, _, before, said = more_of(more)
  if said == plan.id then return last end
  local head = last and live(last)
  if head and is_late(head) then
    late[#late + 1] = last
    head = nil
  end
  if head and head[TOKEN] == 0 and head[STATE] < RUNNING then
    plan.old, plan.said, plan.before = last, plan.id, before
    if head[STATE] == BLOCKED and was == KEEP_LAST and before and live(before) then plan.edges = before .. 'i' end
    if mode == DEBOUNCE then
      plan.head[DUE] = NOW + window
      if plan.times[7] > 0 then plan.head[DUE] = math.min(plan.head[DUE], head[ENQUEUED] + plan.times[7]) end
    elseif mode == THROTTLE then
      plan.head[DUE] = head[DUE]
    end
    return nil
  end
  if mode == DEBOUNCE then
    plan.head[DUE] = NOW + window
  elseif mode == KEEP_LAST then
    local ahead = head and last or before
    if ahead and live(ahead) then plan.before, plan.edges = ahead, ahead .. 'i' end
  else
    for _, id in ipairs({last or false, before or false}) do
      local found = id and anywhere(id)
      if found and found[TOKEN] > 0 and not plan.before then
        plan.before = id
        if found[STARTED] ~= NONE then plan.head[DUE] = math.min(found[STARTED], NOW) + window end
      end
    end
  end
end

-- The job that waits leaves its place and all that was said of it; the new one stands there under its id.
local function take_out(plan)
  local id, old, new = plan.old, live(plan.old), plan.head
  local part = old[MORE].w
  plan.was = {part, part and call('ZSCORE', named('awaiting', part), id)}
  leave(id, old)
  if old[APART] then call('HDEL', RECORDS, id) end
  if old[FOLLOWED] then call('HDEL', FOLLOWS, id) end
  for _, mark in ipairs(old[MORE].m or {}) do call('ZREM', named('mark', mark), id) end
  new[ENQUEUED], new[CHILDREN], new[EPOCH] = old[ENQUEUED], old[CHILDREN], old[EPOCH]
  plan.id, plan.seq = id, old[STATE] == READY and plan.stays and old[SEQ]
  if plan.seq and old[LANE] ~= new[LANE] then -- two entries at one place would hide each other
    call('LREM', named('ready', line_of(old[LANE], old[PRIORITY])), 1, id .. struct.pack('>d', plan.seq))
  end
end

local function take_latest(plan)
  local window, mode = plan.times[5], plan.times[6]
  take_key(plan.head[MORE].u, plan.id, 0, pack_more(mode, mode == THROTTLE and window or 0, nil, plan.before, plan.said))
end

-- Ready again where it was ready: its place in the line is the one it had.
local function resume(plan)
  local id, head = plan.id, plan.head
  head[STATE], head[SEQ], head[DUE] = READY, plan.seq, NONE
  heads[id], changed[id] = head, true
  count(head, 1)
  if head[EXPIRES] ~= NONE then call('ZADD', EXPIRING, head[EXPIRES], id) end
  if head[MORE].d then call('ZADD', named('depth', queue_of(head)), head[ENQUEUED], id) end
  put_in_place(id, head)
  if head[MORE].b then
    with_rooms()
    look_again(head[LANE])
  end
  wake_up(queue_of(head))
end
