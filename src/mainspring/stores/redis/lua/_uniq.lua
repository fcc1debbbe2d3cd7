-- uniq: unique keys. Needs common, heads, moves.
-- A key's entry names the job that took it last and the end of its window. Whether that job still holds it is read off
-- when somebody asks: it does while it is live, and to the end of its window.
local UNIQUE = TAG .. 'unique'

local function key_entry(key)
  local entry = call('HGET', UNIQUE, key)
  if entry then return sub(entry, 1, 16), (struct.unpack('>d', entry, 17)) end
end

local function take_key(key, id, until_)
  local last = key_entry(key)
  if last and call('ZREM', HELD, last) == 1 then enter_history(last, anywhere(last)) end -- its window is over
  call('HSET', UNIQUE, key, id .. struct.pack('>d', until_))
end

-- The job that holds the key now, and the one that took it last but has expired while it waited: it is to end.
local function holder_of(key)
  local id, until_ = key_entry(key)
  if not id then return nil end
  local head = live(id)
  local late = head and is_late(head)
  return ((head and not late) or until_ > NOW) and id or nil, late and id or nil
end

-- The end of the job's own window, if that is running.
local function window_of(id, head)
  if not head[MORE].u then return nil end
  local last, until_ = key_entry(head[MORE].u)
  return last == id and until_ > NOW and until_ or nil
end

local function drop_key(id, head)
  if head[MORE].u and key_entry(head[MORE].u) == id then call('HDEL', UNIQUE, head[MORE].u) end
end
