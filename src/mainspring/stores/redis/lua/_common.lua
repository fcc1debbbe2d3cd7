-- common: keys and time. Part of every script.
-- KEYS[1] is the meta key. Scripts choose lanes, buckets and dependents themselves, so the other keys cannot be
-- declared; all of them carry the hash tag of KEYS[1]. Catalogue: keys.py.
-- ARGV[1] is the time in microseconds, or empty for the server's clock.
local call, sub, byte, find = redis.call, string.sub, string.byte, string.find
local META = KEYS[1]
local TAG = sub(META, 1, -5)
local JOBS, RECORDS, IDS, COUNTS = TAG .. 'jobs', TAG .. 'records', TAG .. 'ids', TAG .. 'counts'
local RESULTS = TAG .. 'results'

local function named(kind, name) return TAG .. kind .. ':' .. name end

local NOW = tonumber(ARGV[1])
if not NOW then
  local time = call('TIME')
  NOW = time[1] * 1000000 + time[2]
end
local NOW_PACKED = struct.pack('>d', NOW)

-- The same command with many arguments, a bounded number at a time: Lua's stack is small.
local function spread(command, key, arguments)
  for first = 1, #arguments, 1000 do
    call(command, key, unpack(arguments, first, math.min(first + 999, #arguments)))
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

-- Which of these queues (a set) are in a mode (paused, draining), as a set, or nil when none is. One of which more is
-- stored, and that matters to who asks, stands there too, with a word: special (see _settings.lua).
local function queues_in(mode, queues)
  if call('EXISTS', TAG .. 'modes') == 0 then return nil end
  local set
  for queue in pairs(queues) do
    local word, marks = string.match(call('HGET', TAG .. 'modes', queue) or '', '^(%a*)([!+]*)')
    if word == mode or string.find(marks, mode == 'paused' and '!' or '+', 1, true) then
      set = set or {}
      set[queue] = marks == '' or 'special'
    end
  end
  return set
end

-- Where a job stands in the line of its group: by priority, then by seq.
local SPAN = 17592186044416
local function place(priority, seq) return (100 - priority) * SPAN + seq end

-- Adds to the numbers by state, queue and task; what comes to nothing goes.
local function add_counts(changes)
  for field, n in pairs(changes) do
    if n ~= 0 and call('HINCRBY', COUNTS, field, n) == 0 then call('HDEL', COUNTS, field) end
  end
end
