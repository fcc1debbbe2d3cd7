-- uses: common, moves
-- enqueue: (new) -> ready | scheduled | blocked | cancelled (parent), all of the batch or nothing
-- args: now, then for each job: id, new [task, queue, lane, priority, delay, run_at, expires_in, crashes, early,
--       buckets], record, edges (16 bytes of the parent's id and `f` or `i` for its policy, again and again)
-- returns 1 or 0 for each job: made now, or found. An error CONFLICT for a parent that is nowhere.
local jobs = (#ARGV - 1) / 4
local created, batch, ids = {}, {}, {}

local function checked_edges(edges)
  local parents, cancelled = {}, false
  for first = 1, #edges, 17 do
    local parent, policy = string.sub(edges, first, first + 15), string.sub(edges, first + 16, first + 16)
    if batch[parent] or live(parent) then
      if parents[parent] ~= 'fail' then parents[parent] = policy == 'f' and 'fail' or 'ignore' end
    else
      local head = ended(parent)
      if not head then return nil, parent end
      cancelled = cancelled or (policy == 'f' and head[STATE] ~= 'succeeded')
    end
  end
  return parents, cancelled
end

local function hex(bytes)
  return (string.gsub(bytes, '.', function(byte) return string.format('%02x', string.byte(byte)) end))
end

local function new_head(new, parents)
  local deps, due = 0, new[6] or (new[5] > 0 and NOW + new[5]) or false
  for _ in pairs(parents) do deps = deps + 1 end
  return {
    '', new[1], new[2], new[3], new[4], 0, 0, 1, 0, new[8], new[9], 0, false, 0, NOW, due and due > NOW and due or false,
    new[7] and NOW + new[7] or false, false, false, deps, false, false, new[10], false,
  }
end

-- checks
for n = 1, jobs do ids[n] = ARGV[4 * n - 2] end
local known = jobs > 0 and call('ZMSCORE', IDS, unpack(ids)) or {}
for n, id in ipairs(ids) do
  created[n] = (known[n] or batch[id]) and 0 or 1
  if created[n] == 1 then batch[id] = true end
end
local plans, records, entries = {}, {}, {}
for n, id in ipairs(ids) do
  if created[n] == 1 then
    local parents, cancelled = checked_edges(ARGV[4 * n + 1])
    if not parents then return redis.error_reply('CONFLICT parent ' .. hex(cancelled)) end
    plans[#plans + 1] = {id, new_head(cmsgpack.unpack(ARGV[4 * n - 1]), parents), parents, cancelled}
    records[#records + 1], records[#records + 2] = id, ARGV[4 * n]
    entries[#entries + 1], entries[#entries + 2] = 0, id
  end
end
if #plans == 0 then return created end

-- writes; the first one needs memory, so that a full store refuses here
spread('HSET', RECORDS, records)
spread('ZADD', IDS, entries)
for _, plan in ipairs(plans) do
  local id, head = plan[1], plan[2]
  head[LANE] = lane_for(head, false)
  if head[DEPS] > 0 or plan[4] then enter(id, head, 'blocked') else enter_line(id, head) end
end
for _, plan in ipairs(plans) do
  for parent, policy in pairs(plan[3]) do
    call('HSET', named('children', parent), plan[1], policy)
    live(parent)[CHILDREN] = true
    changed[parent] = true
  end
end
for _, plan in ipairs(plans) do
  if plan[4] then finish(plan[1], plan[2], 'cancelled', 'parent') end
end
flush()
return created
