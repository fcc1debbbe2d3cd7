-- uses: jobs, new_edges*, keys, history, retry
-- retry_flow: dead | cancelled -> blocked, and from there as a new job: ready, blocked, cancelled or succeeded
-- args: now, then for each job two arguments: its id, and its edges (see enqueue.lua)
-- returns ids done, refused [id, state], held [id, holder]; or a refusal of all: {REFUSED_NO_PARENT}, child, parent
local retried, done, refused, held = {}, {}, {}, {}

local function can_retry(head) return head[STATE] == {DEAD} or head[STATE] == {CANCELLED} end

local function check_parents(id, edges)
  local head, parents = anywhere(id), split_edges(edges)
  local is_retried = head and can_retry(head) and not rival(id, head)
  for first = 1, is_retried and #parents or 0, {EDGE_BYTES} do
    local parent = sub(parents, first, first + {ID_BYTES} - 1)
    if parent == id or not anywhere(parent) then return {{REFUSED_NO_PARENT}, id, parent} end
  end
end

-- A join keeps the members that ended well, and forgets the others.
local function renew_join(id, join)
  join[{JOIN_OPEN}] = 0
  join[{JOIN_TOTAL}] = join[{JOIN_SUCCEEDED}] + join[{JOIN_BYPASSED}]
  join[{JOIN_DEAD}], join[{JOIN_CANCELLED}] = 0, 0
  call('ZREM', TAG .. 'swept', id)
  call('HDEL', TAG .. 'sweeps', id)
end

-- The job waits, with one dependency too many until settle().
local function block(id, head)
  if head[MORE].j then renew_join(id, head[MORE].j) end
  head[DEPS] = 1
  enter(id, head, {BLOCKED})
end

local function retry(id, edges)
  local head = anywhere(id)
  if not head then return end
  if not can_retry(head) then
    refused[#refused + 1] = {id, head[STATE]}
    return
  end
  local holder = renew(id, head)
  if holder then
    held[#held + 1] = {id, holder}
    return
  end
  block(id, head)
  local parents, targets = split_edges(edges)
  retried[#retried + 1], done[#done + 1] = {id, head, parents, targets}, id
end

-- The job waits for its parents and members, or leaves blocked at once.
local function place(id, head, parents)
  local ending = {}
  if head[STATE] ~= {BLOCKED} then return end -- it ended with a parent
  if settle(id, head, parents, ending) then
    leave(id, head)
    enter_line(id, head)
  end
  finish_all(ending)
end

-- checks
with_flows()
with_new_edges()
for n = 2, #ARGV, 2 do
  local refusal = check_parents(ARGV[n], ARGV[n + 1])
  if refusal then return refusal end
end

-- writes
pass_when_full()
for n = 2, #ARGV, 2 do retry(ARGV[n], ARGV[n + 1]) end
for _, each in ipairs(retried) do add_before(each[1], each[4]) end
for _, each in ipairs(retried) do place(unpack(each, 1, 3)) end
flush()
return {done, refused, held}
