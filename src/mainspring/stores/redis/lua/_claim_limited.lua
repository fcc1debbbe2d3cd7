-- claim_limited: claims from lanes with limits. Needs common, rows, limits, lanes, moves, claim.
-- gives: may_enter, take_limited, oldest_in, take_from_set
with_limits()

-- Whether this worker may claim from a lane set: it knows the task of a parked lane, and the want may have more jobs in
-- scarce buckets. Keyed buckets are always scarce, so this holds for a lane set without unkeyed limits as well.
local function may_enter(set, worker)
  local task = string.match(set, '^[^/]*/[^!?]*!?%?(.*)$')
  local has_unkeyed = string.find(set, '^[^/]*/[^#!?]*#%**,?[^!?*,]')
  return (allowed > 0 or has_unkeyed or is_free(set)) and (not task or knows(worker, task))
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
-- turn; 'scarce' if it is closed because the want may have no more jobs in scarce buckets.
local function take_limited(set, lane, line, n, bound, worker)
  local keyed = lane ~= set
  if keyed and allowed <= 0 and not is_fair(set) then return 0, 'scarce' end
  if is_free(set) then
    known_buckets[lane] = {}
  elseif not keyed then
    known_buckets[lane] = known_buckets[lane] or unkeyed_in(lane)
  end
  local taken, stuck = take_from_line(source_of(named('index', lane), line, lane), n, bound, worker)
  local closed = stuck == 'scarce' and stuck or stuck and give_way(set, lane)
  settle_lanes()
  return taken, closed
end

-- The oldest job of a lane set by seq alone: its line, lane and seq, and the seq of the first job of another line.
local function oldest_in(set)
  local ages = call('ZRANGE', named('ages', set), 0, 1, 'WITHSCORES')
  local lane, after = ages[1], tonumber(ages[4]) or math.huge
  local lines, best, best_seq = lane and call('ZRANGE', named('index', lane), 0, -1, 'WITHSCORES') or {}, nil, math.huge
  for n = 1, #lines, 2 do
    local seq = tonumber(lines[n + 1]) % {SEQ_SPAN}
    if seq < best_seq then
      best, best_seq, after = lines[n], seq, math.min(after, best_seq)
    else
      after = math.min(after, seq)
    end
  end
  return best, lane, best_seq, after
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
  if closed == 'scarce' and lane ~= candidate.set then candidate.keyless, closed = true, false end
  return taken, closed
end
