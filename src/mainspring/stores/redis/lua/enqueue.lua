-- uses: common, schedules*, heads, settings*, wake, parts*, lines, rooms*, parking*, moves, places, uniq, latest*
-- enqueue of any batch: (new) -> ready | scheduled | blocked | cancelled (parent), all of it or nothing
-- args: now, limits that are made if there are none [name, kind, size, per, burst] or empty, [whether it was accepted
--       before, settings that are declared if there are none [queue, JSON], whether it is forced] and the exchange of a
--       schedule's row or empty, each with its length in front, or empty; then for each job: id and job (see heads.py),
--       and beside it, each with its length in front: times [delay, run_at, expires_in, conflict, window; of a key with a
--       mode also its mode, max_wait or keep, print], edges (parent and `f` or `i`, 17 bytes each), follow-up jobs, a
--       record that lies apart
-- returns for each job 1: made now, 0: found, or the id of the job that holds its key. Instead, for what stands in the
-- way of the whole batch: draining and the queue; disabled, the queue and by whom; full, the queue, how many may wait,
-- what it does then, how many wait, how many are too many, for how long the first has waited; taken, the task and the
-- holder; conflict, the task, the holder and the job; nobody, the child and the parent.
-- With an exchange it returns what swap.lua does, and behind that the replies.
local RETURN, FAIL = 0, 1
local jobs = (#ARGV - 3) / 2
local ids, said, plans, late, losers, taken, prints, batch = {}, {}, {}, {}, {}, {}, {}, {}
local stored, tight, dropped, moving, staying = {}, {}, {}, {}, {}
local accepted, forced, swap = false, false, nil

-- Whether the job that holds a key that is kept stands for another request.
local function is_other(key, print)
  local _, _, more = key_entry(key)
  local _, _, stored = more_of(more)
  stored = prints[key] or stored
  return print and stored and stored ~= print
end

-- What a new job's key says: the holder that answers for it, or nil; and why the batch is refused.
local function ask_for_key(plan)
  local key, conflict, mode, print = plan.head[MORE].u, plan.times[4], plan.times[6], plan.times[8]
  if not key then return nil end
  if mode and mode ~= KEPT then
    with_latest()
    return latest_of(plan, late)
  end
  local holder, expired = taken[key], nil
  if not holder then holder, expired = holder_of(key) end
  if expired then late[#late + 1] = expired end
  if mode then
    if holder and is_other(key, print) then return nil, {'conflict', task_of(plan.head), holder, plan.id} end
    if not holder then prints[key] = print end
  end
  if holder and conflict == FAIL then return nil, {'taken', task_of(plan.head), holder} end
  if holder and conflict == RETURN then return holder end
  if holder then losers[#losers + 1] = holder end
  taken[key] = plan.id
end

-- What is stored of a queue: [kept, settings].
local function stored_of(queue)
  if not stored[queue] then
    local kept = kept_of(queue)
    stored[queue] = {kept, settings_of(kept)}
  end
  return unpack(stored[queue])
end

-- What its queue makes of a new job, or of one that replaces another: in the same queue that is none. Returns what
-- refuses the batch.
local function take_in(plan, queue)
  with_settings()
  local kept, settings = stored_of(queue)
  if kept.mode == 'draining' then return {'draining', queue} end
  if kept.how == 'reject' then return {'disabled', queue, kept.by} end
  place_new(plan.head, settings)
  if plan.stays then return nil end
  if kept.how == 'skip' then
    plan.head[MORE].d = nil
    plan.note = "queue '" .. queue .. "' is disabled" .. (kept.by ~= '' and ' by ' .. kept.by or '')
  elseif plan.head[MORE].d and not accepted then
    tight[queue] = (tight[queue] or 0) + 1
  end
end

-- Room for `n` new jobs of a queue: who loses its key to one of them, goes to another queue or has expired gives up its
-- place; then the oldest are dropped, if that is what the queue does, but none that this batch speaks of. Returns what
-- refuses the batch.
local function make_room(queue, n)
  local _, settings = stored_of(queue)
  local key, leaving, going = named('depth', queue), {}, 0
  for _, list in ipairs({losers, moving, late}) do
    for _, id in ipairs(list) do
      if not leaving[id] and call('ZSCORE', key, id) then leaving[id], going = true, going + 1 end
    end
  end
  local depth, most = call('ZCARD', key), settings.max_depth
  local excess = depth - going + n - most
  if excess <= 0 then return nil end
  local note, old = "dropped: queue '" .. queue .. "' was full (max_depth " .. most .. ')', {}
  if settings.on_full == 'drop_oldest' and n <= most then
    for _, id in ipairs(call('ZRANGE', key, 0, excess + going + #staying - 1)) do
      if not leaving[id] and not staying[id] and #old < excess then old[#old + 1] = {id, note} end
    end
  end
  if #old < excess then
    local first = call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
    return {'full', queue, most, settings.on_full or 'error', depth, excess, first and NOW - first or 0}
  end
  for _, each in ipairs(old) do dropped[#dropped + 1] = each end
end

-- the row of a schedule, and settings that come along; a store that is full refuses here
if ARGV[3] ~= '' then
  local settings, exchanged = struct.unpack('>I4c0I4c0', ARGV[3])
  if exchanged ~= '' then
    with_schedules()
    swap = read_swap(exchanged)
    local refusal = refusal_of(swap)
    if refusal then return refusal end
  end
  local declared
  accepted, declared, forced = unpack(cmsgpack.unpack(settings))
  if #declared > 0 then with_settings() end
  for _, pair in ipairs(declared) do
    local kept = kept_of(pair[1])
    if not kept.declared then
      kept.declared = pair[2]
      keep(pair[1], kept)
    end
  end
end

-- checks
for n = 1, jobs do ids[n] = sub(ARGV[2 * n + 2], 1, 16) end
local known = jobs > 0 and call('ZMSCORE', IDS, unpack(ids)) or {}
local asked = {}
for n = 1, jobs do asked[queue_of(load_head(sub(ARGV[2 * n + 2], 17)))] = true end
local draining = queues_in('draining', asked)
for n, id in ipairs(ids) do
  said[n] = 0
  if not known[n] and not batch[id] then
    local times, edges, follows, record = struct.unpack('>I4c0I4c0I4c0I4c0', ARGV[2 * n + 3])
    times = cmsgpack.unpack(times)
    local plan = {id = id, times = times, edges = edges, follows = follows, record = record}
    plan.head = new_head(sub(ARGV[2 * n + 2], 17), times)
    local holder, refused = ask_for_key(plan)
    if refused then return refused end
    if holder then
      said[n] = holder
    else
      local queue, old = queue_of(plan.head), plan.old
      plan.stays = old and queue_of(live(old)) == queue
      if plan.stays then
        staying[#staying + 1], staying[old] = old, true
      elseif old then
        moving[#moving + 1] = old
      end
      local word = draining and draining[queue]
      local refusal = word == true and {'draining', queue} or word and take_in(plan, queue)
      if refusal then return refusal end
      said[n], batch[id], plans[#plans + 1] = plan.old or 1, not plan.old, plan
    end
  end
end
for _, plan in ipairs(plans) do
  for first = 1, #plan.edges, 17 do
    local parent = sub(plan.edges, first, first + 15)
    local there = parent ~= plan.id and (batch[parent] or anywhere(parent))
    if not there then return {'nobody', plan.id, parent} end
  end
end
for queue, n in pairs(tight) do
  local refusal = make_room(queue, n)
  if refusal then return refusal end
end

-- writes; the first one needs memory, so that a full store refuses here
local entries = {}
for n, plan in ipairs(plans) do entries[2 * n - 1], entries[2 * n] = 0, plan.old or plan.id end
spread('ZADD', IDS, entries)
if ARGV[2] ~= '' then
  with_rooms()
  declare_missing(ARGV[2])
end
for _, id in ipairs(late) do
  local head = live(id)
  if head and is_waiting(head) then finish(id, head, CANCELLED, 'expired') end
end
for _, plan in ipairs(plans) do
  if plan.old then take_out(plan) end
  local id, head, window, mode = plan.id, plan.head, plan.times[5], plan.times[6]
  put_beside(id, head, plan.record)
  if plan.follows ~= '' then call('HSET', FOLLOWS, id, plan.follows) end
  if mode == KEPT then
    take_key(head[MORE].u, id, 0, pack_more(KEPT, plan.times[7], plan.times[8]))
  elseif mode then
    take_latest(plan)
  elseif head[MORE].u then
    take_key(head[MORE].u, id, window > 0 and NOW + window or 0)
  end
  enter(id, head, BLOCKED)
end

-- Its parents and its part: those that live are waited for; a parent that has ended badly may end it at once.
local function settle_new(plan)
  local id, head, parents, ends = plan.id, plan.head, {}, false
  for first = 1, #plan.edges, 17 do
    local parent, policy = sub(plan.edges, first, first + 15), sub(plan.edges, first + 16, first + 16)
    local found = anywhere(parent)
    if found[STATE] > RUNNING then
      ends = ends or (policy == 'f' and found[STATE] ~= SUCCEEDED)
    elseif parents[parent] ~= 'fail' then
      if not parents[parent] then parents[#parents + 1] = parent end
      parents[parent] = policy == 'f' and 'fail' or 'ignore'
    end
  end
  if ends then return finish(id, head, CANCELLED, 'parent') end
  for _, parent in ipairs(parents) do
    call('HSET', named('children', parent), id, parents[parent])
    heads[parent][CHILDREN], changed[parent] = true, true
  end
  head[DEPS] = #parents
  if #parents > 0 then call('HSET', PARENTS, id, table.concat(parents)) end
  if not plan.note and (plan.old and plan.was[1] or head[OF_PART]) then
    with_parts()
    if plan.old then parts.hold_again(id, head, forced, plan.was) else parts.hold_back(id, head, forced) end
  end
  if head[DEPS] == 0 then
    leave(id, head)
    if plan.seq and (head[DUE] == NONE or head[DUE] <= NOW) then resume(plan) else enter_line(id, head) end
  end
end

for _, plan in ipairs(plans) do
  if plan.head[STATE] == BLOCKED then settle_new(plan) end
end
for _, id in ipairs(losers) do
  local head = live(id)
  if head and is_waiting(head) then finish(id, head, CANCELLED, 'superseded') end
end
for _, pair in ipairs(dropped) do
  local head = live(pair[1])
  if head and is_waiting(head) then finish(pair[1], head, CANCELLED, 'superseded', pair[2]) end
end
for _, plan in ipairs(plans) do
  if plan.note and is_waiting(plan.head) then finish(plan.id, plan.head, CANCELLED, 'skipped', plan.note) end
end
local swapped = swap and exchange(swap)
flush()
if not swap then return said end
wake_up('')
swapped[6] = said
return swapped
