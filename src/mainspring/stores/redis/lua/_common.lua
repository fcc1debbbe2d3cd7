-- common: key names, the time, and helpers. A part of every script.
-- KEYS[1] is the meta key. A script finds the lanes, buckets and dependents itself, so its other keys cannot be
-- declared. All of them have the hash tag of KEYS[1]. driver/catalogue.py lists all keys.
-- ARGV[1] is the time in microseconds, or empty: then the clock of the server is used.
local call, sub, byte, find = redis.call, string.sub, string.byte, string.find
local META = KEYS[1]
local TAG = sub(META, 1, -5)
local JOBS, RECORDS, IDS, COUNTS = TAG .. 'jobs', TAG .. 'records', TAG .. 'ids', TAG .. 'counts'
local RESULTS = TAG .. 'results'

local function named(key, of) return TAG .. key .. ':' .. of end

local NOW = tonumber(ARGV[1])
if not NOW then
  local time = call('TIME')
  NOW = time[1] * {SECOND} + time[2]
end
local NOW_PACKED = struct.pack('>d', NOW)

-- One command with many arguments, sent in several commands: the stack of Lua is small.
local function spread(command, key, arguments)
  for first = 1, #arguments, {ARGUMENTS} do
    call(command, key, unpack(arguments, first, math.min(first + {ARGUMENTS} - 1, #arguments)))
  end
end

local function whole(number) return string.format('%.0f', number) end

-- At maxmemory the server refuses a script at its first command that may need memory, unless the script has deleted
-- something before. The deletion of a field that does not exist is enough. Scripts that must work in a full store
-- (acks, heartbeats, rescues) call this first.
local passed = false
local function pass_when_full()
  if not passed then call('HDEL', META, '') end
  passed = true
end

-- The queues of a set that are in a mode (paused or draining), as a set, or nil if there is none. A queue with other
-- settings that the caller has to read is in the result as well, with the value 'settings' (see _queues.lua).
local function queues_in(mode, queues)
  if call('EXISTS', TAG .. 'queues') == 0 then return nil end
  local set
  for queue in pairs(queues) do
    local word, marks = string.match(call('HGET', TAG .. 'queues', queue) or '', '^(%a*)([!+]*)')
    if word == mode or string.find(marks, mode == {QUEUE_PAUSED} and '!' or '+', 1, true) then
      set = set or {}
      set[queue] = marks == '' or {REFUSED_SETTINGS}
    end
  end
  return set
end

-- The place of a job among all jobs that may be claimed: order_key() in mainspring/jobs/records.py.
local function place(priority, seq) return seq - priority * {PRIORITY_STEP} end

-- Takes `n` values of seq in a row. Returns the value before the first. The counter follows the clock, and never goes
-- back.
local function take_seqs(n)
  local last, now = call('HINCRBY', META, 'seq', n), {SEQ_FIRST} + NOW
  if last < now - {SEQ_BEHIND} then
    last = now + n
    call('HSET', META, 'seq', whole(last))
  end
  return last - n
end

-- Adds to the numbers of jobs by state, queue and task, and of live jobs by the mark of their flow. A number that becomes
-- 0 is deleted.
local function add_counts(changes)
  for field, n in pairs(changes) do
    if n ~= 0 then
      local key = sub(field, 1, 1) == {FLOW_MARK} and TAG .. 'flow_jobs' or COUNTS
      if call('HINCRBY', key, field, n) == 0 then call('HDEL', key, field) end
    end
  end
end
