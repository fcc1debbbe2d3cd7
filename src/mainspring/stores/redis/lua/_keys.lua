-- uniq: unique keys. Needs common, heads, moves.
-- A key's entry names the job that took it last and the end of its window. Whether that job still holds it is read off
-- when somebody asks: it does while it is live, and to the end of its window. Behind that stands, of some keys, their
-- mode; for how long after it succeeded (KEPT) or was started (THROTTLE) the job counts; what its arguments are compared
-- by; the job of the key that was started before it; and the enqueue that replaced it last. Zeros stand for nothing.
local UNIQUE = TAG .. 'unique'
local DEBOUNCE, THROTTLE, KEEP_LAST, KEPT = 1, 2, 3, 4
local NOBODY = string.rep('\0', 16)

local function key_entry(key)
  local entry = call('HGET', UNIQUE, key)
  if entry then return sub(entry, 1, 16), (struct.unpack('>d', entry, 17)), sub(entry, 25) end
end

local function pack_more(mode, span, print, before, said)
  return struct.pack('>Bd', mode, span) .. (print or NOBODY .. NOBODY) .. (before or NOBODY) .. (said or NOBODY)
end

local function more_of(more)
  if not more or more == '' then return 0, 0 end
  local mode, span, print, before, said = struct.unpack('>Bdc32c16c16', more)
  return mode, span, print ~= NOBODY .. NOBODY and print, before ~= NOBODY and before, said ~= NOBODY and said
end

local function take_key(key, id, until_, more)
  local last = key_entry(key)
  if last and call('ZREM', HELD, last) == 1 then enter_history(last, anywhere(last)) end -- its window is over
  call('HSET', UNIQUE, key, id .. struct.pack('>d', until_) .. (more or ''))
end

-- How long the key counts for the ended job that took it last.
local function counts_until(head, until_, more)
  local mode, span = more_of(more)
  if mode == KEPT and head[STATE] == SUCCEEDED then return math.max(until_, head[ENDED] + span) end
  if mode == THROTTLE and head[STARTED] ~= NONE then return math.max(until_, head[STARTED] + span) end
  return until_
end

-- Who holds a key whose last job is not live and has no window: that job, or the one that runs before it.
local function held_after(id, until_, more)
  local mode, _, _, before = more_of(more)
  if mode == KEEP_LAST then return before and live(before) and before or nil end
  local head = mode == KEPT and anywhere(id)
  return head and head[STATE] > RUNNING and counts_until(head, until_, more) > NOW and id or nil
end

-- The job that holds the key now, and the one that took it last but has expired while it waited: it is to end.
local function holder_of(key)
  local id, until_, more = key_entry(key)
  if not id then return nil end
  local head = live(id)
  local late = head and is_late(head)
  local holds = (head and not late) or until_ > NOW
  return holds and id or held_after(id, until_, more), late and id or nil
end

-- The end of the job's own window, if that is running.
local function window_of(id, head)
  if not head[MORE].u then return nil end
  local last, until_, more = key_entry(head[MORE].u)
  if last ~= id then return nil end
  until_ = counts_until(head, until_, more)
  return until_ > NOW and until_ or nil
end

-- The key is that of the job before it again, if that was started under it.
local function drop_key(id, head)
  local key = head[MORE].u
  if not key then return end
  local last, _, more = key_entry(key)
  if last ~= id then return end
  local mode, span, _, before = more_of(more)
  if before and anywhere(before) then
    call('HSET', UNIQUE, key, before .. struct.pack('>d', 0) .. pack_more(mode, span))
  else
    call('HDEL', UNIQUE, key)
  end
end
