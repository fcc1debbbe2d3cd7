-- parts: jobs that wait until jobs of other parts have succeeded. Needs common, heads.
-- A part is a mark. One that waits has the names of the others in `links`, and each of those knows of it by `linked`.
-- `missing` are those of them of which no success is noted; `awaiting` are its jobs that wait, in the order in which they
-- came; a head says for which part its job waits, and `released` which job of a part was let go last, and its token then.
-- gives: parts
local parts = {}
local LINKS, RELEASED = TAG .. 'links', TAG .. 'released'

local function part_of(head)
  for _, mark in ipairs(head[MORE].m or {}) do
    if sub(mark, 1, 2) == '^@' then return sub(mark, 3) end
  end
end

-- The next start is that of this job: the notes are taken away.
local function release(part, id, head)
  call('HSET', RELEASED, part, id .. struct.pack('>d', head[TOKEN]))
  spread('SADD', named('missing', part), cmsgpack.unpack(call('HGET', LINKS, part)))
end

-- The job waits for its part no more.
local function let_go(part, id)
  call('ZREM', named('awaiting', part), id)
  local head = live(id)
  if head then head[MORE].w = nil end
  return head
end

-- The job that has waited longest, of those that have not expired meanwhile; or nil.
local function first_of(part)
  local key = named('awaiting', part)
  local start, ids = 0, nil
  repeat
    ids = call('ZRANGE', key, start, start + 99)
    preload(ids)
    for _, id in ipairs(ids) do
      local head = live(id)
      if head and not is_late(head) then return id end
    end
    start = start + 100
  until #ids < 100
end

-- Once all is noted that job is released: its id, or nil.
local function next_of(part)
  if call('EXISTS', named('missing', part)) == 1 then return nil end
  local id = first_of(part)
  if not id then return nil end
  release(part, id, let_go(part, id))
  return id
end

local function wait_for(part, place, id, head)
  call('ZADD', named('awaiting', part), place, id)
  head[MORE].w, head[DEPS] = part, head[DEPS] + 1
end

-- A new job has to wait for its part, if that has to: one more thing that it waits for. Or it is the next to start. `place`:
-- that of a job which was enqueued some time ago.
function parts.hold_back(id, head, forced, place)
  local part = part_of(head)
  if not part or call('HEXISTS', LINKS, part) == 0 then return end
  if not forced and (call('EXISTS', named('missing', part)) == 1 or first_of(part)) then
    wait_for(part, place or call('HINCRBY', META, 'seq', 1), id, head)
  else
    release(part, id, head)
  end
end

-- The same for one that replaces another: it waits if that did, in its place (part, place), or it does not.
function parts.hold_again(id, head, forced, was)
  if forced then
    parts.hold_back(id, head, forced)
  elseif was[1] then
    wait_for(was[1], was[2], id, head)
  end
end

-- A job has succeeded: that is noted for the parts that wait for its own, unless what they let go last has yet to start.
-- Returns the jobs that are released.
function parts.hear_success(head)
  local part, freed = part_of(head), {}
  local others = call('SMEMBERS', named('linked', part))
  table.sort(others)
  for _, other in ipairs(others) do
    local last = call('HGET', RELEASED, other)
    local id, token
    if last then id, token = struct.unpack('>c16d', last) end
    last = id and live(id)
    local is_to_start = last and is_waiting(last) and last[TOKEN] == token and not is_late(last)
    if not is_to_start then
      call('SREM', named('missing', other), part)
      freed[#freed + 1] = next_of(other)
    end
  end
  return freed
end

local function set_of(names)
  local set = {}
  for _, name in ipairs(names) do set[name] = true end
  return set
end

-- The part waits for nobody from now on. Returns the jobs that are released, a bounded number, and whether there are more:
-- then it waits as before.
local function unlink(part, old, most)
  local ids, freed = call('ZRANGE', named('awaiting', part), 0, most - 1), {}
  preload(ids)
  for _, id in ipairs(ids) do
    if let_go(part, id) then freed[#freed + 1] = id end
  end
  if call('EXISTS', named('awaiting', part)) == 1 then return freed, true end
  call('HDEL', LINKS, part)
  call('HDEL', RELEASED, part)
  call('DEL', named('missing', part))
  for _, name in ipairs(old) do call('SREM', named('linked', name), part) end
  return freed, false
end

-- The part waits for these from now on. Returns as unlink() does.
function parts.relink(part, after, most)
  local old = call('HGET', LINKS, part)
  old = old and cmsgpack.unpack(old) or {}
  if #after == 0 then return unlink(part, old, most) end
  local had, has = set_of(old), set_of(after)
  call('HSET', LINKS, part, cmsgpack.pack(after))
  for _, name in ipairs(after) do
    if not had[name] then
      call('SADD', named('missing', part), name)
      call('SADD', named('linked', name), part)
    end
  end
  for _, name in ipairs(old) do
    if not has[name] then
      call('SREM', named('missing', part), name)
      call('SREM', named('linked', name), part)
    end
  end
  return {next_of(part)}, false
end
