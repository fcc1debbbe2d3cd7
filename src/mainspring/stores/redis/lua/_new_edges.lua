-- new_edges: the edges of a job that is enqueued, or retried with its flow. Needs common, rows, flows.
-- gives: split_edges, add_before, settle

-- The edges of a new job in two parts: those to its parents, and the jobs that wait for it.
local function split_edges(text)
  for first = 1, #text, {EDGE_BYTES} do
    if byte(text, first + {ID_BYTES}) == {EDGE_CODE_MEMBER} then
      local targets = {}
      for at = first, #text, {EDGE_BYTES} do targets[#targets + 1] = sub(text, at, at + {ID_BYTES} - 1) end
      return sub(text, 1, first - 1), targets
    end
  end
  return text, {}
end

-- Returns whether there was no such edge before. An edge of a member stays one.
local function add_edge(parent, child, code)
  local key, is_new = named('children', parent), call('ZADD', named('parents', child), 0, parent) == 1
  heads[parent][CHILDREN], changed[parent], changed[child] = true, true, true
  if is_new then
    heads[child][DEPS] = heads[child][DEPS] + 1
  elseif code ~= {EDGE_CODE_MEMBER} or tonumber(call('ZSCORE', key, child)) == code then
    return false
  end
  call('ZADD', key, code, child)
  return true
end

-- Makes each of these blocked jobs wait for a job as well: a join counts it as a member.
local function add_before(id, targets)
  for _, target in ipairs(targets) do
    local head = live(target)
    if head and head[STATE] == {BLOCKED} then
      local join = head[MORE].j
      local is_new = add_edge(id, target, join and {EDGE_CODE_MEMBER} or {EDGE_CODE_FAIL})
      if join and is_new then join[{JOIN_TOTAL}] = join[{JOIN_TOTAL}] + 1 end
    end
  end
end

-- The parents in a text of edges, in their order, with the codes of their policies. Of two edges to one parent, the
-- policy fail counts.
local function parents_in(edges)
  local parents, codes = {}, {}
  for first = 1, #edges, {EDGE_BYTES} do
    local parent, code = sub(edges, first, first + {ID_BYTES} - 1), byte(edges, first + {ID_BYTES})
    if not codes[parent] then parents[#parents + 1] = parent end
    if not codes[parent] or code == {EDGE_CODE_FAIL} then codes[parent] = code end
  end
  return parents, codes
end

-- What a parent does to a new child, if it has ended before; STAY if the child has to wait for it.
local function effect_now(parent, code)
  local head = anywhere(parent)
  local join = head[MORE].j
  if code == {EDGE_CODE_DEAD} and join and join[{JOIN_DEAD}] > 0 then return GO_ON end
  return live(parent) and STAY or flows.effect_of(head, code)
end

-- A new blocked job, with one dependency too many so that nothing ended it before, waits for its parents. Returns
-- whether it waits for no job and is not a join. Adds to `ending` the job if it ends at once.
local function settle(id, head, edges, ending)
  local parents, codes = parents_in(edges)
  head[DEPS], changed[id] = head[DEPS] - 1, true
  local waits, reason = {}, nil
  for _, parent in ipairs(parents) do
    local effect = effect_now(parent, codes[parent])
    if effect == FAIL or effect == BYPASS and not reason then reason = effect == FAIL and {PARENT} or {BYPASSED} end
    if effect == STAY then waits[#waits + 1] = parent end
  end
  if reason then
    ending[#ending + 1] = {id, head, {CANCELLED}, reason}
    return false
  end
  for _, parent in ipairs(waits) do add_edge(parent, id, codes[parent]) end
  if head[MORE].j then flows.end_join(id, head, ending) end
  return head[DEPS] == 0 and not head[MORE].j
end
