-- uses: jobs, lanes_moved, keys, history, retry, query
-- act: cancel, retry, run_now, reprioritise or delete jobs by hand, as states.py allows
-- args: now, action, query, ids or the id to continue after, limit, reason, priority, how many jobs to look at
-- returns ids done, refused [id, state], held [id, holder], and the id to continue after or false
-- Only a query by ids gets refusals. Any other query means the jobs that the action can change and has not changed yet.
local action, query, limit, reason = ARGV[2], cmsgpack.unpack(ARGV[3]), tonumber(ARGV[5]), ARGV[6]
local priority, most = tonumber(ARGV[7]), tonumber(ARGV[8])
local by_ids, done, refused, held, chosen = query[1], {}, {}, {}, {}

-- The jobs that an action can change; and the jobs that it has not changed yet, so that a repeated call by a filter
-- ends.
local able = {
  cancel = function(head) return head[STATE] <= {RUNNING} end,
  retry = function(head) return head[STATE] > {RUNNING} and not head[MORE].j end,
  run_now = function(head) return head[STATE] == {SCHEDULED} or head[STATE] == {RETRYING} end,
  reprioritise = is_waiting,
  delete = function(head) return head[STATE] ~= {RUNNING} end,
}
local untouched = {
  cancel = function(_, head) return not head[MORE].o end,
  retry = function(id, head) return not rival(id, head) end,
  reprioritise = function(_, head) return head[PRIORITY] ~= priority end,
}

local doing = {}

function doing.cancel(id, head)
  if head[STATE] ~= {RUNNING} then return finish(id, head, {CANCELLED}, {BY_USER}, reason ~= '' and reason) end
  if not head[MORE].o then
    head[MORE].o, changed[id] = reason, true
    call('HSET', named('worker_orders', head[WORKER]), id, reason)
  end
end

function doing.run_now(id, head)
  leave(id, head)
  enter(id, head, {READY})
end

function doing.reprioritise(id, head)
  if head[STATE] == {READY} then leave_line(id, head) end
  head[PRIORITY], changed[id] = priority, true
  if head[STATE] == {READY} then put_in_place(id, head) end
end

function doing.retry(id, head)
  local holder = renew(id, head)
  if not holder then enter(id, head, {READY}) end
  return holder
end

function doing.delete(id, head) remove(id, head) end

local after = visit_jobs(query, ARGV[4], most, function(id, raw)
  local head = load_head(raw)
  heads[id] = head
  if not able[action](head) then
    if by_ids then refused[#refused + 1] = {id, head[STATE]} end
  elseif by_ids or not untouched[action] or untouched[action](id, head) then
    chosen[#chosen + 1] = id
  end
  return #chosen + #refused == limit
end)
pass_when_full()
for _, id in ipairs(chosen) do
  local head = anywhere(id)
  if head and able[action](head) then
    local holder = doing[action](id, head)
    if holder then held[#held + 1] = {id, holder} else done[#done + 1] = id end
  elseif head and by_ids then -- it ended together with a parent in this script
    refused[#refused + 1] = {id, head[STATE]}
  end
end
flush()
return {done, refused, held, after}
