-- rows: a stored job, as a table of its fields (a head). Needs common. rows.py explains the layout.
-- A script reads each head once and writes it once, in flush() of _flush.lua. All states are in one hash.
local FORMAT = {JOB_FORMAT}

local STATE, SEQ, PRIORITY, ATTEMPT, STARTED, TURN, ENDED, RAN, CRASHES, CRASH_LIMIT = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
local EPOCH, DEPS, ENQUEUED, DUE, EXPIRES, TOKEN, WORKER, GROUP, LANE, MORE = 11, 12, 13, 14, 15, 16, 17, 18, 19, 20
local RECORD, RESULT, CHILDREN, FOLLOWED, PARKED, EARLY = 21, 22, 23, 24, 25, 26
local RECORD_APART, ERROR, RESULT_APART = 27, 28, 29

local band = bit.band

local function load_head(raw)
  local state, ends, claims, rest, seq, priority, attempt, started, turn, ended, ran, crashes, limit, epoch, deps,
    enqueued, due, expires, record, more, token, worker, group, lane, at = struct.unpack(FORMAT, raw)
  return {
    state, seq, priority, attempt, started, turn, ended, ran, crashes, limit,
    epoch, deps, enqueued, due, expires, token, worker, group, lane,
    more > 0 and cmsgpack.unpack(sub(raw, at, at + more - 1)) or {},
    sub(raw, at + more, at + more + record - 1),
    band(rest, {FLAG_RESULT}) > 0 and sub(raw, at + more + record),
    band(ends, {FLAG_CHILDREN}) > 0, band(ends, {FLAG_FOLLOWED}) > 0, band(claims, {FLAG_PARKED}) > 0,
    band(rest, {FLAG_EARLY}) > 0, band(rest, {FLAG_RECORD_APART}) > 0, band(rest, {FLAG_ERROR}) > 0,
    band(rest, {FLAG_RESULT_APART}) > 0,
  }
end

local function dump_head(head)
  local more, result = head[MORE], head[RESULT]
  local packed = next(more) and cmsgpack.pack(more) or ''
  local limited = more.b and {FLAG_LIMITED} or 0
  return struct.pack(
    FORMAT, head[STATE],
    (head[CHILDREN] and {FLAG_CHILDREN} or 0) + (more.o and {FLAG_ORDERED} or 0) + limited
      + (head[FOLLOWED] and {FLAG_FOLLOWED} or 0) + ((more.k or more.f) and {FLAG_KEEP} or 0),
    (head[EXPIRES] ~= {NONE} and {FLAG_EXPIRES} or 0) + (head[PARKED] and {FLAG_PARKED} or 0) + limited
      + (more.d and {FLAG_COUNTED} or 0),
    (head[EARLY] and {FLAG_EARLY} or 0) + (head[RECORD_APART] and {FLAG_RECORD_APART} or 0)
      + (result and {FLAG_RESULT} or 0) + (head[ERROR] and {FLAG_ERROR} or 0)
      + (head[RESULT_APART] and {FLAG_RESULT_APART} or 0),
    head[SEQ], head[PRIORITY], head[ATTEMPT], head[STARTED], head[TURN], head[ENDED], head[RAN], head[CRASHES],
    head[CRASH_LIMIT], head[EPOCH], head[DEPS], head[ENQUEUED], head[DUE], head[EXPIRES], #head[RECORD], #packed, head[TOKEN],
    #head[WORKER], head[WORKER], #head[GROUP], head[GROUP], #head[LANE], head[LANE]
  ) .. packed .. head[RECORD] .. (result or '')
end

-- The name of a lane as it is written in a stored job.
local function packed_lane(lane) return struct.pack('>Hc0', #lane, lane) end

-- Whether a stored job is in this lane. A job that changed its lane and kept its seq left its entry in the old line.
local function is_in(raw, packed)
  local owner = byte(raw, {WORKER_SIZE_AT})
  local high, low = byte(raw, {NAMES_AT} + owner, {NAMES_AT} + 1 + owner)
  local at = {NAMES_AT} + 2 + owner + high * 256 + low
  return find(raw, packed, at, true) == at -- find() makes no new string, sub() would
end

local heads, changed = {}, {}

-- The head of a job in any state, or false.
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
  return head and head[STATE] <= {RUNNING} and head
end

local function preload(ids)
  for first = 1, #ids, {ARGUMENTS} do
    local last = math.min(first + {ARGUMENTS} - 1, #ids)
    local raws = call('HMGET', JOBS, unpack(ids, first, last))
    for n = first, last do
      local raw = raws[n - first + 1]
      if heads[ids[n]] == nil then heads[ids[n]] = raw and load_head(raw) end
    end
  end
end

-- A group is queue, NUL, task.
local function queue_of(head) return (string.match(head[GROUP], '^[^%z]*')) end
local function task_of(head) return (string.match(head[GROUP], '%z(.*)$')) end
local function is_waiting(head) return head[STATE] < {RUNNING} end
local function is_expired(head) return is_waiting(head) and head[EXPIRES] ~= {NONE} and head[EXPIRES] <= NOW end
