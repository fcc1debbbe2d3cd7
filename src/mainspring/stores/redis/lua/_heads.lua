-- heads: what the store itself knows of a job, with its record and result behind it. Needs common. Layout: heads.py.
-- Heads are read once and written once in a script, by flush() in _moves.lua. All states are in one hash.
local BLOCKED, SCHEDULED, RETRYING, READY, RUNNING, SUCCEEDED, DEAD, CANCELLED = 1, 2, 3, 4, 5, 6, 7, 8
local NONE = -4611686018427387904
local FORMAT = '>BBBBdhI4dddI4I4I4I4dddI4I4dBc0Hc0Hc0'

local STATE, SEQ, PRIORITY, ATTEMPT, STARTED, TURN, ENDED, CRASHES, CRASH_LIMIT, EPOCH = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
local DEPS, ENQUEUED, DUE, EXPIRES, TOKEN, WORKER, GROUP, LANE, MORE = 11, 12, 13, 14, 15, 16, 17, 18, 19
local RECORD, RESULT, CHILDREN, FOLLOWED, PARKED, EARLY, APART, ERROR, FAR, OF_PART = 20, 21, 22, 23, 24, 25, 26, 27, 28, 29
local LARGE = 1024
local LIMITED = 4 -- among what an end and what a claim must look at

local band = bit.band

local function load_head(raw)
  local state, ends, claims, rest, seq, priority, attempt, started, turn, ended, crashes, limit, epoch, deps, enqueued,
    due, expires, record, more, token, worker, group, lane, at = struct.unpack(FORMAT, raw)
  return {
    state, seq, priority, attempt, started, turn, ended, crashes, limit, epoch,
    deps, enqueued, due, expires, token, worker, group, lane,
    more > 0 and cmsgpack.unpack(sub(raw, at, at + more - 1)) or {},
    sub(raw, at + more, at + more + record - 1),
    band(rest, 4) > 0 and sub(raw, at + more + record),
    band(ends, 1) > 0, band(ends, 8) > 0, band(claims, 2) > 0, band(rest, 1) > 0, band(rest, 2) > 0, band(rest, 8) > 0,
    band(rest, 16) > 0, band(ends, 32) > 0,
  }
end

local function dump_head(head)
  local more, result = head[MORE], head[RESULT]
  local packed = next(more) and cmsgpack.pack(more) or ''
  local limited = more.b and LIMITED or 0
  return struct.pack(
    FORMAT, head[STATE],
    (head[CHILDREN] and 1 or 0) + (more.o and 2 or 0) + limited + (head[FOLLOWED] and 8 or 0) + (more.k and 16 or 0)
      + (head[OF_PART] and 32 or 0),
    (head[EXPIRES] ~= NONE and 1 or 0) + (head[PARKED] and 2 or 0) + limited + (more.d and 8 or 0),
    (head[EARLY] and 1 or 0) + (head[APART] and 2 or 0) + (result and 4 or 0) + (head[ERROR] and 8 or 0)
      + (head[FAR] and 16 or 0),
    head[SEQ], head[PRIORITY], head[ATTEMPT], head[STARTED], head[TURN], head[ENDED], head[CRASHES], head[CRASH_LIMIT],
    head[EPOCH], head[DEPS], head[ENQUEUED], head[DUE], head[EXPIRES], #head[RECORD], #packed, head[TOKEN],
    #head[WORKER], head[WORKER], #head[GROUP], head[GROUP], #head[LANE], head[LANE]
  ) .. packed .. head[RECORD] .. (result or '')
end

-- The name of a lane as it stands in a head.
local function packed_lane(lane) return struct.pack('>Hc0', #lane, lane) end

-- Whether a job, as it is stored, is one of this lane: one that changed its lane and kept its seq left its entry behind.
local function is_in(raw, packed)
  local owner = byte(raw, 99)
  local high, low = byte(raw, 100 + owner, 101 + owner)
  local at = 102 + owner + high * 256 + low
  return find(raw, packed, at, true) == at -- unlike sub() it makes no string of what it looks at
end

local heads, changed = {}, {}

-- The head of a job in whatever state, or false.
local function anywhere(id)
  local head = heads[id]
  if head == nil then
    local raw = call('HGET', JOBS, id)
    head = raw and load_head(raw)
    heads[id] = head
  end
  return head
end

local function live(id)
  local head = anywhere(id)
  return head and head[STATE] <= RUNNING and head
end

local function preload(ids)
  for first = 1, #ids, 1000 do
    local last = math.min(first + 999, #ids)
    local raws = call('HMGET', JOBS, unpack(ids, first, last))
    for n = first, last do
      local raw = raws[n - first + 1]
      if heads[ids[n]] == nil then heads[ids[n]] = raw and load_head(raw) end
    end
  end
end

local function queue_of(head) return (string.match(head[GROUP], '^[^%z]*')) end
local function task_of(head) return (string.match(head[GROUP], '%z(.*)$')) end
local function is_waiting(head) return head[STATE] < RUNNING end
local function is_late(head) return is_waiting(head) and head[EXPIRES] ~= NONE and head[EXPIRES] <= NOW end
