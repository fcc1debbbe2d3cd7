-- uses: common, rows
-- waits_for: the unresolved edges of a blocked job
-- args: now, id, limit
-- returns the parents, in order of their ids, and the codes of the policies
local id, edges = ARGV[2], {}

-- The code of the policy of an unresolved edge.
local function policy_of(parent, child)
  local code = call('ZSCORE', named('children', parent), child)
  if code then return tonumber(code) end
  for _, entry in ipairs(call('ZRANGE', TAG .. 'releasing', 0, -1)) do
    code = sub(entry, 1, {ID_BYTES}) == parent and call('ZSCORE', named('children_left', entry), child)
    if code then return tonumber(code) end
  end
  return {EDGE_CODE_FAIL}
end

local head = live(id)
if not head or head[STATE] ~= {BLOCKED} then return edges end
for _, parent in ipairs(call('ZRANGE', named('parents', id), 0, tonumber(ARGV[3]) - 1)) do
  edges[#edges + 1], edges[#edges + 2] = parent, policy_of(parent, id)
end
return edges
