-- common: keys, time, heads. Part of every script.
-- KEYS[1] is the meta key. Scripts choose lanes, buckets and dependents themselves, so the other keys cannot be
-- declared; all of them carry the hash tag of KEYS[1]. Catalogue: keys.py.
-- ARGV[1] is the time in microseconds, or empty for the server's clock.
local call = redis.call
local META = KEYS[1]
local TAG = string.sub(META, 1, -5)
local JOBS, RECORDS, FINISHED, IDS = TAG .. 'jobs', TAG .. 'records', TAG .. 'finished', TAG .. 'ids'
local RESULTS, ERRORS, COUNTS = TAG .. 'results', TAG .. 'errors', TAG .. 'counts'
local LATER, EXPIRING, OVERDUE, WORKERS = TAG .. 'later', TAG .. 'expiring', TAG .. 'overdue', TAG .. 'workers'

local function named(kind, name) return TAG .. kind .. ':' .. name end

local NOW = tonumber(ARGV[1])
if not NOW then
  local time = call('TIME')
  NOW = time[1] * 1000000 + time[2]
end

-- A head is what the store itself knows of a live or ended job: one array, `false` for nothing (nil would make a
-- hole and the array a map). Places beyond the last are kept as they are: a later version may have put them there.
local STATE, TASK, QUEUE, LANE, PRIORITY, SEQ, ATTEMPT, EPOCH, CRASHES, CRASH_LIMIT = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
local EARLY, TOKEN, WORKER, TURN, ENQUEUED, DUE, EXPIRES, STARTED, ENDED, DEPS = 11, 12, 13, 14, 15, 16, 17, 18, 19, 20
local ORDER, REASON, BUCKETS, CHILDREN = 21, 22, 23, 24

-- Heads are read once and written once in a script, by flush() in _moves.lua.
local heads, changed, finished = {}, {}, {}

local function live(id)
  local head = heads[id]
  if head == nil then
    local raw = call('HGET', JOBS, id)
    head = raw and cmsgpack.unpack(raw)
    heads[id] = head
  end
  return head
end

local function ended(id)
  if finished[id] then return finished[id] end
  local raw = call('HGET', FINISHED, id)
  return raw and cmsgpack.unpack(raw)
end

-- The same command with many arguments, a bounded number at a time: Lua's stack is small.
local function spread(command, key, arguments)
  for first = 1, #arguments, 1000 do
    call(command, key, unpack(arguments, first, math.min(first + 999, #arguments)))
  end
end

-- Writes that the same script does not read: gathered, sent many at a time (a fifth of the cost of one by one).
-- Only for commands whose order does not matter: a member never gets two of them before they are sent.
local gathered, senders = {}, {}

local function gather(command, key, member, value)
  local name = command .. key
  local list = gathered[name]
  if not list then
    list = {}
    gathered[name] = list
    senders[#senders + 1] = {command, key, list}
  end
  list[#list + 1] = member
  if value then list[#list + 1] = value end
end

local function send_gathered()
  for _, sender in ipairs(senders) do spread(unpack(sender)) end
  gathered, senders = {}, {}
end

local function preload(ids)
  for first = 1, #ids, 1000 do
    local last = math.min(first + 999, #ids)
    local raws = call('HMGET', JOBS, unpack(ids, first, last))
    for n = first, last do
      local raw = raws[n - first + 1]
      if heads[ids[n]] == nil then heads[ids[n]] = raw and cmsgpack.unpack(raw) end
    end
  end
end

local function whole(number) return string.format('%.0f', number) end

-- At maxmemory a script is refused at its first command that may need memory, unless it has deleted something
-- before; a deletion of nothing counts. For what must go on when the store is full: acks, beats, rescues.
local passed = false
local function pass_when_full()
  if not passed then call('HDEL', META, '') end
  passed = true
end
