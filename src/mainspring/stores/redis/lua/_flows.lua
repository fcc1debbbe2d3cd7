-- flows: edges between jobs, and joins. Needs common, rows, lanes, moves, follow_ups.
-- An edge is in the sorted set `children` of the parent, by the code of its policy, and in the sorted set `parents` of
-- the child. It counts while it is in both: a child that stops waiting deletes its own side, and what is left of the
-- other says nothing.
-- A join is a blocked job with numbers of its members (JOIN_FIELDS in driver/constants.py). The edges of its members
-- have a code of their own.
-- Its functions are in one table: each name that a script declares costs every call of the script.
-- gives: flows
local flows = {}
local RELEASING = TAG .. 'releasing'
local GO_ON, FAIL, BYPASS, STAY = 1, 2, 3, 4

-- What the end of a parent does to its child: well, badly, dead.
local EFFECTS = {
  [{EDGE_CODE_FAIL}] = {GO_ON, FAIL, FAIL},
  [{EDGE_CODE_IGNORE}] = {GO_ON, GO_ON, GO_ON},
  [{EDGE_CODE_SKIP}] = {GO_ON, BYPASS, BYPASS},
  [{EDGE_CODE_WAIT}] = {GO_ON, FAIL, STAY},
  [{EDGE_CODE_FAILED}] = {BYPASS, GO_ON, GO_ON},
  [{EDGE_CODE_DEAD}] = {BYPASS, BYPASS, GO_ON}, -- a join is never dead: see free_callbacks()
  [{EDGE_CODE_MEMBER}] = {GO_ON, GO_ON, GO_ON},
}

-- How an ended job ended, for its children.
local function verdict_of(head)
  if head[STATE] == {SUCCEEDED} or head[MORE].r == {BYPASSED} then return {ENDED_WELL} end
  return head[STATE] == {DEAD} and {ENDED_DEAD} or {ENDED_BADLY}
end

-- What a parent that has ended does to a child.
function flows.effect_of(head, code) return EFFECTS[code][verdict_of(head)] end

-- The number of a join that counts the end of this member.
local function counted_as(head, verdict)
  if verdict == {ENDED_WELL} then return head[STATE] == {SUCCEEDED} and {JOIN_SUCCEEDED} or {JOIN_BYPASSED} end
  local join = head[MORE].j
  if verdict == {ENDED_DEAD} or (join and join[{JOIN_DEAD}] > 0) then return {JOIN_DEAD} end
  return {JOIN_CANCELLED}
end

-- ---- the end of a parent

-- A join whose last member has ended, and that is not open, ends.
function flows.end_join(id, head, ending)
  local join = head[MORE].j
  if head[DEPS] > 0 or join[{JOIN_OPEN}] == 1 then return end
  if join[{JOIN_LENIENT}] == 1 or join[{JOIN_DEAD}] + join[{JOIN_CANCELLED}] == 0 then
    ending[#ending + 1] = {id, head, {SUCCEEDED}, nil, nil, true}
  else
    ending[#ending + 1] = {id, head, {CANCELLED}, {PARENT}, nil, true}
  end
end

-- The child waits for one job less. Returns its head, or nil if it does not wait for this parent.
local function loosen(parent, id)
  local head = live(id)
  if not head or head[STATE] ~= {BLOCKED} or call('ZREM', named('parents', id), parent) == 0 then return nil end
  head[DEPS], changed[id] = head[DEPS] - 1, true
  return head
end

-- A child goes on if it waits for no further job.
local function go_on(id, head, ending)
  if head[DEPS] > 0 then return end
  if head[MORE].j then return flows.end_join(id, head, ending) end
  leave(id, head)
  enter_line(id, head)
end

-- The first member of a join is dead: its children with the policy dead need not wait any longer.
local function free_callbacks(id, ending)
  local key = named('children', id)
  for _, child in ipairs(call('ZRANGEBYSCORE', key, {EDGE_CODE_DEAD}, {EDGE_CODE_DEAD})) do
    call('ZREM', key, child)
    local head = loosen(id, child)
    if head then go_on(child, head, ending) end
  end
end

local function count_member(id, head, counted, ending)
  local join = head[MORE].j
  join[counted] = join[counted] + 1
  if counted == {JOIN_DEAD} and join[counted] == 1 and head[CHILDREN] then free_callbacks(id, ending) end
end

-- A child ends with its parent, once. If other parents in `ending` bypass it, a parent that cancels it decides.
local function end_child(id, head, effect, ending)
  local found, reason = ending[id], effect == FAIL and {PARENT} or {BYPASSED}
  if not found then
    ending[id] = {id, head, {CANCELLED}, reason}
    ending[#ending + 1] = ending[id]
  elseif effect == FAIL then
    found[4] = reason
  end
end

-- Resolves edges [child, code, child, code, ...] of a parent. Adds to `ending` the children that end with it. Returns
-- the edges that stay [code, child, ...].
local function resolve_edges(parent, edges, verdict, counted, ending)
  local children, stay = {}, {}
  for n = 1, #edges, 2 do children[#children + 1] = edges[n] end
  if #children > 1 then preload(children) end
  for n = 1, #edges, 2 do
    local id, code = edges[n], tonumber(edges[n + 1])
    local effect = EFFECTS[code][verdict]
    if effect == STAY then
      stay[#stay + 1], stay[#stay + 2] = code, id
    else
      local head = loosen(parent, id)
      if head and code == {EDGE_CODE_MEMBER} then count_member(id, head, counted, ending) end
      if head and effect == GO_ON then
        go_on(id, head, ending)
      elseif head then
        end_child(id, head, effect, ending)
      end
    end
  end
  return stay
end

-- The first children of a join with many; promote() resolves the others. They are kept under another name: the join may
-- be retried meanwhile.
local function first_children(id, head, key, verdict, counted)
  local edges = call('ZPOPMIN', key, {CHILDREN_AT_ONCE})
  if call('EXISTS', key) == 1 then
    local entry = id .. struct.pack('>I4BB', head[EPOCH], verdict, counted)
    call('RENAME', key, named('children_left', entry))
    call('ZADD', RELEASING, NOW, entry)
  end
  return edges
end

-- Resolves the edges of a parent that ended or is deleted. Adds to `ending` the children that end with it.
function flows.resolve(id, head, verdict, ending)
  local key, counted, edges = named('children', id), counted_as(head, verdict), nil
  if head[MORE].j then
    edges = first_children(id, head, key, verdict, counted)
  else
    edges = call('ZRANGE', key, 0, -1, 'WITHSCORES')
    call('DEL', key)
  end
  local stay = resolve_edges(id, edges, verdict, counted, ending)
  head[CHILDREN] = #stay > 0
  spread('ZADD', key, stay)
end

-- Resolves up to `limit` edges of joins that ended with many children. Adds to `ending` the children that end with
-- them.
function flows.release_children(limit, ending)
  for _, entry in ipairs(call('ZRANGE', RELEASING, 0, limit - 1)) do
    local join, _, verdict, counted = struct.unpack('>c16I4BB', entry)
    local key, edges = named('children_left', entry), {}
    local popped = call('ZPOPMIN', key, limit)
    local again = live(join) and named('children', join) -- it was retried: children with a new edge wait again
    for n = 1, #popped, 2 do
      if not again or not call('ZSCORE', again, popped[n]) then
        edges[#edges + 1], edges[#edges + 2] = popped[n], popped[n + 1]
      end
    end
    if call('EXISTS', key) == 0 then call('ZREM', RELEASING, entry) end
    resolve_edges(join, edges, verdict, counted, ending)
    limit = limit - #popped / 2
    if limit <= 0 then return end
  end
end

-- ---- the end of a flow

-- The root of a flow ended before its members, or is deleted: promote() cancels the jobs of the flow, or deletes them
-- too. See _sweep.lua.
function flows.sweep_flow(id, deleted)
  if call('EXISTS', named('mark', {FLOW_MARK} .. hex_of(id))) == 0 then return end
  call('ZADD', TAG .. 'swept', NOW, id)
  call('HSET', TAG .. 'sweeps', id, struct.pack('>BB', deleted and 1 or 0, 0))
end

-- What the end of a job does to other jobs. Adds to `ending` the children that end with it. A join that does not end
-- `by_members` takes no more of them, and the jobs of its flow end with it.
function flows.end_in_flow(id, head, ending, by_members)
  if head[CHILDREN] then flows.resolve(id, head, verdict_of(head), ending) end
  if head[MORE].j and not by_members then
    head[MORE].j[{JOIN_OPEN}] = 0
    flows.sweep_flow(id, false)
  end
end
