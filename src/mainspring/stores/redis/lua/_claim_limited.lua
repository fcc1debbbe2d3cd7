-- claim_limited: claims from lanes with limits. Needs common, rows, limits, lanes, moves, claim.
-- gives: may_enter, take_limited, take_from_set
with_limits()

-- Whether this worker may claim from a lane set: it knows the task of a parked lane.
local function may_enter(set, worker)
  local task = string.match(set, '^[^/]*/[^!?]*!?%?(.*)$')
  return not task or knows(worker, task)
end

-- A bucket of the lane is full. A full keyed bucket makes the lane wait. A full unkeyed limit closes the whole lane set
-- for this turn. Returns whether the lane set is closed.
local function give_way(set, lane)
  local name, moment = full.name, full.moment
  if moment and (not soonest or moment < soonest) then soonest = moment end
  if not is_unkeyed(name) then
    made_wait = made_wait + 1
    make_wait(lane, known_buckets[lane], name, moment)
    return false
  end
  note_waiting(set, name)
  local queue = string.match(set, '^[^/]*')
  if not full_queues[queue] then full_queues[#full_queues + 1], full_queues[queue] = queue, true end
  return true
end

-- The unkeyed limits in the name of a lane without keys, with a cost of 1: the name does not say the cost. nil if a
-- name is shortened.
local function unkeyed_in(lane)
  local buckets = {}
  for label in string.gmatch(string.match(lane, '#([^!?]*)'), '[^,]+') do
    if sub(label, 1, 1) == '~' then return nil end
    buckets[#buckets + 1] = {label, '', 1}
  end
  return buckets
end

-- Claims from one line of a lane with limits. Returns the number of jobs, and whether the lane set is closed for this
-- turn; 'needs slot' if it is closed because its next job is not claimed ahead of a free slot.
local function take_limited(set, lane, line, n, bound, worker)
  if is_free(set) then
    known_buckets[lane] = {}
  elseif lane == set then
    known_buckets[lane] = known_buckets[lane] or unkeyed_in(lane)
  end
  local source = source_of(named('index', lane), line, lane)
  source.needs_slot = ahead and is_fair(set) and not is_free(set)
  local taken, stuck = take_from_line(source, n, bound, worker)
  local closed = stuck == 'needs slot' and stuck or stuck and give_way(set, lane)
  settle_lanes()
  return taken, closed
end

-- Claims from the first lane of a lane set.
local function take_from_set(candidate, n, bound, worker)
  local lane = candidate.line
  local lines = call('ZRANGE', named('index', lane), 0, 1, 'WITHSCORES')
  opened[lane] = true
  if not lines[1] then -- the index disagrees with its lane and is repaired
    pending[lane] = {}
    settle_lanes()
    return 0, false
  end
  bound = math.min(bound, tonumber(lines[4]) or math.huge)
  local taken, closed = take_limited(candidate.set, lane, lines[1], n, bound, worker)
  if closed == 'needs slot' and lane ~= candidate.set then candidate.keyless, closed = true, false end
  return taken, closed
end
