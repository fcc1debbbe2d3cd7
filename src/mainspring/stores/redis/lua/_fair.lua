-- fair: which lane of fair keys is next. Needs common, rows, limits, lanes, moves, claim, claim_limited. Self-clocked
-- fair queuing: a lane has a virtual time (vtime) for its next claim. The lane with the lowest vtime is served, and its
-- vtime grows by 1 / weight: one step. The clock of the queue is the vtime that was served last. A lane that appears
-- begins one step after the clock. An empty lane need not be remembered: its vtime is before the clock.
-- gives: look_at_fair, hide_later, take_fair

-- `taken` jobs of a lane were claimed in its turn. A lane that has become empty is not stored any more.
local function charge(candidate, lane, taken)
  if taken == 0 then return end
  local clock = clock_of(candidate.fair, candidate.priority)
  local last = math.max(candidate.vtime, clock) + (taken - 1) * candidate.step
  if opened[lane] then call('ZADD', level_of(candidate.set, candidate.priority), 'XX', last + candidate.step, lane) end
  if last > clock then set_clock(candidate.fair, candidate.priority, last) end
end

-- The lines of a lane at one priority: the list and the sorted set beside it, the first of both first.
local function lines_at(lane, priority)
  local list = priority .. ':' .. lane
  local moved, index = '~' .. list, named('index', lane)
  local at, moved_at = call('ZSCORE', index, list), call('ZSCORE', index, moved)
  at, moved_at = tonumber(at or '') or math.huge, tonumber(moved_at or '') or math.huge
  if moved_at < at then return moved, moved_at, at end
  return at < math.huge and list or nil, at, moved_at
end

-- Finds the lane that is next in a lane set at the priority of the candidate, and the vtime of the lane after it.
local function look_at_fair(candidate)
  local lanes = call('ZRANGE', level_of(candidate.set, candidate.priority), 0, 1, 'WITHSCORES')
  candidate.line, candidate.at, candidate.after = lanes[1], math.huge, math.huge
  if not lanes[1] then return end
  candidate.vtime, candidate.step = tonumber(lanes[2]), step_of(lanes[1])
  candidate.next = tonumber(lanes[4]) or math.huge
  candidate.first, candidate.at, candidate.bound = lines_at(lanes[1], candidate.priority)
  if not candidate.first then candidate.at = {FAIR_PLACE} end
end

-- Of the lane sets of fair keys of a queue, at one priority only the one that is next is a candidate: the others are
-- hidden.
local function hide_later(candidates)
  local first = {}
  for _, candidate in ipairs(candidates) do
    if candidate.fair and candidate.line then
      candidate.hidden, candidate.limit = true, math.huge
      local best = first[candidate.level]
      if not best or candidate.vtime < best.vtime or (candidate.vtime == best.vtime and candidate.at < best.at) then
        first[candidate.level] = candidate
      end
    end
  end
  for _, candidate in ipairs(candidates) do
    local best = candidate.fair and candidate.line and first[candidate.level]
    if best == candidate then
      candidate.hidden = false
    elseif best then
      best.limit = math.min(best.limit, candidate.vtime)
    end
  end
end

-- Claims from the lane that is next, for as long as it is next.
local function take_fair(candidate, n, bound, worker)
  local lane = candidate.line
  opened[lane] = true
  if not candidate.first then -- the index disagrees with its lane
    pending[lane] = {}
    looked = looked + 1
    settle_lanes()
    return 0, false
  end
  local from = math.max(candidate.vtime, clock_of(candidate.fair, candidate.priority))
  local most = 1 + math.max(0, math.floor((math.min(candidate.next, candidate.limit) - from) / candidate.step))
  bound = math.min(bound, candidate.bound)
  local taken, closed = take_limited(candidate.set, lane, candidate.first, math.min(n, most), bound, worker)
  charge(candidate, lane, taken)
  return taken, closed
end
