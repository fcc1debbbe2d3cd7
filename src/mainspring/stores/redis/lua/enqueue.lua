-- uses: common, schedules*, jobs, new_edges*, lanes_moved, keys, keys_latest*
-- enqueue of any batch: (new) -> ready | scheduled | blocked | cancelled (parent), all jobs of the batch or none
-- args: now, limits to declare if they are missing [name, kind, size, per, burst, share, span] or empty; empty, or each
--       after its length: [whether the batch was accepted before, settings to declare if there are none [queue, JSON]] and
--       the swap of a schedule's row or empty; then for each job two arguments: id and stored job (see rows.py); and, each after its length: times [delay, run_at, expires_in, conflict, window; of a key
--       with a mode also the mode, max_wait or keep, print], edges (parent and code of the policy, {EDGE_BYTES} bytes
--       each; behind them the blocked jobs that wait for this job, with the code of a member), follow-up jobs, a large
--       record
-- returns for each job 1: new, 0: found, or the id of the job that holds its key. Or a refusal of the whole batch:
--   {REFUSED_DRAINING}, queue
--   {REFUSED_DISABLED}, queue, by whom
--   {REFUSED_FULL}, queue, max_depth, on_full, depth, number of jobs that are too many, age of the first waiting job
--   {REFUSED_TAKEN}, task, holder
--   {REFUSED_CONFLICT}, task, holder, job
--   {REFUSED_NO_PARENT}, child, parent
--   {REFUSED_CLOSED}, the job that was to wait for new jobs
-- With a swap it returns the reply of swap_schedule.lua, and after that the replies for the jobs.
local jobs = (#ARGV - 3) / 2
local ids, said, plans, expired, losers, taken, prints, batch = {}, {}, {}, {}, {}, {}, {}, {}
local stored, tight, dropped, moving, staying = {}, {}, {}, {}, {}
local accepted, swap = false, nil

-- Whether the holder of a key with a print was enqueued with other arguments.
local function has_other_print(key, print)
  local _, _, more = key_entry(key)
  local _, _, stored_print = unpack_more(more)
  stored_print = prints[key] or stored_print
  return print and stored_print and stored_print ~= print
end

-- Asks for the key of a new job. Returns the holder that answers for the job, or nil; and a refusal of the batch.
local function ask_for_key(plan)
  local key, conflict, mode, print = plan.head[MORE].u, plan.times[4], plan.times[6], plan.times[8]
  if not key then return nil end
  if mode and mode ~= {KEY_KEPT} then
    with_keys_latest()
    return plan_latest(plan, expired)
  end
  local holder, late = taken[key], nil
  if not holder then holder, late = holder_of(key) end
  if late then expired[#expired + 1] = late end
  if mode then
    if holder and has_other_print(key, print) then
      return nil, {{REFUSED_CONFLICT}, task_of(plan.head), holder, plan.id}
    end
    if not holder then prints[key] = print end
  end
  if holder and conflict == {CONFLICT_ERROR} then return nil, {{REFUSED_TAKEN}, task_of(plan.head), holder} end
  if holder and conflict == {CONFLICT_RETURN} then return holder end
  if holder then losers[#losers + 1] = holder end
  taken[key] = plan.id
end

-- The stored row and the settings of a queue.
local function stored_of(queue)
  if not stored[queue] then
    local row = row_of(queue)
    stored[queue] = {row, settings_in(row)}
  end
  return unpack(stored[queue])
end

-- Applies mode and settings of a queue to a new job, or to a job that replaces another: in the same queue that one is
-- not new. Returns a refusal of the batch or nil.
local function enter_queue(plan, queue)
  with_queues()
  local row, settings = stored_of(queue)
  if row.mode == {QUEUE_DRAINING} then return {{REFUSED_DRAINING}, queue} end
  if row.how == {DISABLED_REJECT} then return {{REFUSED_DISABLED}, queue, row.by} end
  apply_settings(plan.head, settings)
  if plan.head[MORE].j then plan.head[MORE].d = nil end
  if plan.stays then return nil end
  if row.how == {DISABLED_SKIP} then
    plan.head[MORE].d = nil
    plan.note = "queue '" .. queue .. "' is disabled" .. (row.by ~= '' and ' by ' .. row.by or '')
  elseif plan.head[MORE].d and not accepted then
    tight[queue] = (tight[queue] or 0) + 1
  end
end

-- The jobs of a queue that will leave it in this script: they lose their key, go to another queue, or have expired.
local function leaving_from(key)
  local leaving, n = {}, 0
  for _, list in ipairs({losers, moving, expired}) do
    for _, id in ipairs(list) do
      if not leaving[id] and call('ZSCORE', key, id) then leaving[id], n = true, n + 1 end
    end
  end
  return leaving, n
end

-- Checks the depth for `n` new jobs in a queue with max_depth: with on_full "drop_oldest", the oldest jobs are dropped, but no job
-- that this batch names. Returns a refusal of the batch or nil.
local function make_room(queue, n)
  local _, settings = stored_of(queue)
  local key = named('depth', queue)
  local leaving, going = leaving_from(key)
  local depth, most = call('ZCARD', key), settings.max_depth
  local excess = depth - going + n - most
  if excess <= 0 then return nil end
  local note, old = "dropped: queue '" .. queue .. "' was full (max_depth " .. most .. ')', {}
  if settings.on_full == {FULL_DROP_OLDEST} and n <= most then
    for _, id in ipairs(call('ZRANGE', key, 0, excess + going + #staying - 1)) do
      if not leaving[id] and not staying[id] and #old < excess then old[#old + 1] = {id, note} end
    end
  end
  if #old < excess then
    local first = call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
    return {{REFUSED_FULL}, queue, most, settings.on_full or {FULL_ERROR}, depth, excess, first and NOW - first or 0}
  end
  for _, each in ipairs(old) do dropped[#dropped + 1] = each end
end

-- Reads the third argument: a swap, and settings that are declared here. A full store refuses here. Returns the reply
-- of a swap that is refused.
local function read_settings()
  local settings, swap_text = struct.unpack('>I4c0I4c0', ARGV[3])
  if swap_text ~= '' then
    with_schedules()
    swap = read_swap(swap_text)
    local refusal = refusal_of(swap)
    if refusal then return refusal end
  end
  local declared
  accepted, declared = unpack(cmsgpack.unpack(settings))
  if #declared > 0 then with_queues() end
  for _, pair in ipairs(declared) do
    local row = row_of(pair[1])
    if not row.declared then
      row.declared = pair[2]
      put_row(pair[1], row)
    end
  end
end

-- Plans one new job. Returns a refusal of the batch or nil.
local function plan_job(n, id, draining)
  local times, edges, follow_ups, record = struct.unpack('>I4c0I4c0I4c0I4c0', ARGV[2 * n + 3])
  times = cmsgpack.unpack(times)
  local plan = {id = id, times = times, edges = edges, follow_ups = follow_ups, record = record}
  if edges ~= '' then
    with_flows()
    with_new_edges()
    plan.edges, plan.targets = split_edges(edges)
  end
  plan.head = new_head(sub(ARGV[2 * n + 2], {ID_BYTES} + 1), times)
  local holder, refused = ask_for_key(plan)
  if refused then return refused end
  if holder then
    said[n] = holder
    return nil
  end
  local queue, old = queue_of(plan.head), plan.old
  plan.stays = old and queue_of(live(old)) == queue
  if plan.stays then
    staying[#staying + 1], staying[old] = old, true
  elseif old then
    moving[#moving + 1] = old
  end
  local word = draining and draining[queue]
  local refusal = word == true and {{REFUSED_DRAINING}, queue} or word and enter_queue(plan, queue)
  if refusal then return refusal end
  said[n], batch[id], plans[#plans + 1] = plan.old or 1, not plan.old, plan
end

local function plan_jobs()
  for n = 1, jobs do ids[n] = sub(ARGV[2 * n + 2], 1, {ID_BYTES}) end
  local known = jobs > 0 and call('ZMSCORE', IDS, unpack(ids)) or {}
  local asked = {}
  for n = 1, jobs do asked[queue_of(load_head(sub(ARGV[2 * n + 2], {ID_BYTES} + 1)))] = true end
  local draining = queues_in({QUEUE_DRAINING}, asked)
  for n, id in ipairs(ids) do
    said[n] = 0
    local refusal = not known[n] and not batch[id] and plan_job(n, id, draining)
    if refusal then return refusal end
  end
end

local function check_parents()
  for _, plan in ipairs(plans) do
    for first = 1, #plan.edges, {EDGE_BYTES} do
      local parent = sub(plan.edges, first, first + {ID_BYTES} - 1)
      local exists = parent ~= plan.id and (batch[parent] or anywhere(parent))
      if not exists then return {{REFUSED_NO_PARENT}, plan.id, parent} end
    end
  end
end

-- A job that is to wait for new jobs is new too, or it is blocked; a join is open, or the batch was accepted before.
local function check_before()
  for _, plan in ipairs(plans) do
    for _, target in ipairs(not plan.old and plan.targets or {}) do
      local head = not batch[target] and live(target)
      local waits = head and head[STATE] == {BLOCKED}
      local takes = waits and (accepted or not head[MORE].j or head[MORE].j[{JOIN_OPEN}] == 1)
      if target == plan.id or not (batch[target] or takes) then return {{REFUSED_CLOSED}, target} end
    end
  end
end

local function check_depth()
  for queue, n in pairs(tight) do
    local refusal = make_room(queue, n)
    if refusal then return refusal end
  end
end

-- Stores a planned job as blocked, with its key and all that is stored beside it.
local function insert_job(plan)
  if plan.old then replace_waiting(plan) end
  local id, head, window, mode = plan.id, plan.head, plan.times[5], plan.times[6]
  put_beside(id, head, plan.record)
  if plan.follow_ups ~= '' then call('HSET', FOLLOW_UPS, id, plan.follow_ups) end
  if mode == {KEY_KEPT} then
    take_key(head[MORE].u, id, 0, pack_more({KEY_KEPT}, plan.times[7], plan.times[8]))
  elseif mode then
    store_latest(plan)
  elseif head[MORE].u then
    take_key(head[MORE].u, id, window > 0 and NOW + window or 0)
  end
  head[DEPS] = 1 -- until settle_job()
  enter(id, head, {BLOCKED})
end

-- A new job waits for its parents and for its members, or leaves blocked at once.
local function settle_job(plan)
  local id, head = plan.id, plan.head
  if plan.edges == '' and head[DEPS] == 1 and not head[MORE].j then
    head[DEPS] = 0
  else
    with_flows()
    with_new_edges()
    local ending = {}
    local is_free = settle(id, head, plan.edges, ending)
    finish_all(ending)
    if not is_free then return end
  end
  leave(id, head)
  if plan.seq and (head[DUE] == {NONE} or head[DUE] <= NOW) then resume(plan) else enter_line(id, head) end
end

local function cancel_waiting(id, reason, note)
  local head = live(id)
  if head and is_waiting(head) then finish(id, head, {CANCELLED}, reason, note) end
end

-- checks: apart from settings that are declared here nothing is written before all of them have passed
local refusal = ARGV[3] ~= '' and read_settings() or plan_jobs() or check_parents() or check_before() or check_depth()
if refusal then return refusal end

-- writes; the first one needs memory, so a full store refuses here
local entries = {}
for n, plan in ipairs(plans) do entries[2 * n - 1], entries[2 * n] = 0, plan.old or plan.id end
spread('ZADD', IDS, entries)
if ARGV[2] ~= '' then
  with_limits()
  declare_missing(ARGV[2])
end
for _, id in ipairs(expired) do cancel_waiting(id, {EXPIRED}) end
for _, plan in ipairs(plans) do insert_job(plan) end
for _, plan in ipairs(plans) do
  if plan.targets and not plan.old then add_before(plan.id, plan.targets) end
end
for _, plan in ipairs(plans) do
  if plan.head[STATE] == {BLOCKED} then settle_job(plan) end
end
for _, id in ipairs(losers) do cancel_waiting(id, {SUPERSEDED}) end
for _, pair in ipairs(dropped) do cancel_waiting(pair[1], {SUPERSEDED}, pair[2]) end
for _, plan in ipairs(plans) do
  if plan.note and is_waiting(plan.head) then finish(plan.id, plan.head, {CANCELLED}, {SKIPPED}, plan.note) end
end
local swapped = swap and replace_row(swap)
flush()
if not swap then return said end
wake_up('')
swapped[6] = said
return swapped
