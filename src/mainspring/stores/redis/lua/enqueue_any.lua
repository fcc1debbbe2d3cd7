-- uses: common, heads, wake, lines, rooms*, parking*, moves, places, uniq, latest*
-- enqueue of any batch: (new) -> ready | scheduled | blocked | cancelled (parent), all of it or nothing
-- args: now, limits that are made if there are none [name, kind, size, per, burst] or empty, then for each job: id and
--       job (see heads.py), and beside it, each with its length in front: times [delay, run_at, expires_in, conflict,
--       window; of a key with a mode also its mode, max_wait or keep, print], edges (parent and `f` or `i`, 17 bytes each), follow-up jobs, a record that lies apart
-- returns for each job 1: made now, 0: found, or the id of the job that holds its key. Instead, for what stands in the
-- way of the whole batch: draining and the queue; taken, the task and the holder; conflict, the task, the holder and the
-- job; nobody, the child and the parent.
local RETURN, FAIL = 0, 1
local jobs = (#ARGV - 2) / 2
local ids, said, plans, late, losers, taken, prints, batch = {}, {}, {}, {}, {}, {}, {}, {}

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

-- checks
for n = 1, jobs do ids[n] = sub(ARGV[2 * n + 1], 1, 16) end
local known = jobs > 0 and call('ZMSCORE', IDS, unpack(ids)) or {}
local asked = {}
for n = 1, jobs do asked[queue_of(load_head(sub(ARGV[2 * n + 1], 17)))] = true end
local draining = queues_in('draining', asked)
for n, id in ipairs(ids) do
  said[n] = 0
  if not known[n] and not batch[id] then
    local times, edges, follows, record = struct.unpack('>I4c0I4c0I4c0I4c0', ARGV[2 * n + 2])
    times = cmsgpack.unpack(times)
    local plan = {id = id, times = times, edges = edges, follows = follows, record = record}
    plan.head = new_head(sub(ARGV[2 * n + 1], 17), times)
    local holder, refused = ask_for_key(plan)
    if refused then return refused end
    if holder then
      said[n] = holder
    else
      local queue = queue_of(plan.head)
      if draining and draining[queue] then return {'draining', queue} end
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

-- Its parents: those that live are waited for; one that has ended badly may end it at once.
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
  if #parents > 0 then
    call('HSET', PARENTS, id, table.concat(parents))
  else
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
flush()
return said
