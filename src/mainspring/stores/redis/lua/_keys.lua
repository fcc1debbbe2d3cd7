-- keys: unique keys. Needs common, rows, finish.
-- The entry of a key has the job that took it last and the end of its window. Whether that job still holds the key is
-- decided when a caller asks for it: a job holds its key while it is live, and until the end of its window. Some keys
-- have more fields: the mode; for how long after its success (mode KEPT) or its start (mode THROTTLE) the job counts;
-- the print of its arguments; the job of the key that was started before; and the enqueue that replaced it last. Zeros
-- stand for a missing value.
-- gives: key_entry, pack_more, unpack_more, take_key, holder_of, window_of, drop_key
local UNIQUE_KEYS = TAG .. 'unique_keys'
local NO_ID = string.rep('\0', {ID_BYTES})

local function key_entry(key)
  local entry = call('HGET', UNIQUE_KEYS, key)
  if not entry then return end
  return sub(entry, 1, {ID_BYTES}), (struct.unpack('>d', entry, {ID_BYTES} + 1)), sub(entry, {LEASE_BYTES} + 1)
end

local function pack_more(mode, span, print, before, said)
  return struct.pack('>Bd', mode, span) .. (print or NO_ID .. NO_ID) .. (before or NO_ID) .. (said or NO_ID)
end

local function unpack_more(more)
  if not more or more == '' then return 0, 0 end
  local mode, span, print, before, said = struct.unpack('>Bdc32c16c16', more)
  return mode, span, print ~= NO_ID .. NO_ID and print, before ~= NO_ID and before, said ~= NO_ID and said
end

local function take_key(key, id, until_, more)
  local last = key_entry(key)
  if last and call('ZREM', KEY_UNTIL, last) == 1 then enter_history(last, anywhere(last)) end -- its window is over
  call('HSET', UNIQUE_KEYS, key, id .. struct.pack('>d', until_) .. (more or ''))
end

-- Until when the key counts for the ended job that took it last.
local function counts_until(head, until_, more)
  local mode, span = unpack_more(more)
  if mode == {KEY_KEPT} and head[STATE] == {SUCCEEDED} then return math.max(until_, head[ENDED] + span) end
  if mode == {KEY_THROTTLE} and head[STARTED] ~= {NONE} then return math.max(until_, head[STARTED] + span) end
  return until_
end

-- The holder of a key whose last job is not live and has no window: that job, or the running job before it.
local function held_after(id, until_, more)
  local mode, _, _, before = unpack_more(more)
  if mode == {KEY_KEEP_LAST} then return before and live(before) and before or nil end
  local head = mode == {KEY_KEPT} and anywhere(id)
  return head and head[STATE] > {RUNNING} and counts_until(head, until_, more) > NOW and id or nil
end

-- The job that holds the key now; and the job that took it last if that has expired while it waited: it has to end.
local function holder_of(key)
  local id, until_, more = key_entry(key)
  if not id then return nil end
  local head = live(id)
  local expired = head and is_expired(head)
  local holds = (head and not expired) or until_ > NOW
  return holds and id or held_after(id, until_, more), expired and id or nil
end

-- The end of the job's own window, if the window is not over.
local function window_of(id, head)
  if not head[MORE].u then return nil end
  local last, until_, more = key_entry(head[MORE].u)
  if last ~= id then return nil end
  until_ = counts_until(head, until_, more)
  return until_ > NOW and until_ or nil
end

-- A deleted job gives up its key: to the job that was started before it under this key, if that exists.
local function drop_key(id, head)
  local key = head[MORE].u
  if not key then return end
  local last, _, more = key_entry(key)
  if last ~= id then return end
  local mode, span, _, before = unpack_more(more)
  if before and anywhere(before) then
    call('HSET', UNIQUE_KEYS, key, before .. struct.pack('>d', 0) .. pack_more(mode, span))
  else
    call('HDEL', UNIQUE_KEYS, key)
  end
end
