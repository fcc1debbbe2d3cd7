-- fair: which lane of fair keys is next. Needs common, rows, limits, lanes, moves, claim, claim_limited. Self-clocked
-- fair queuing: a lane has a virtual time (vtime) for its next claim. The lane with the lowest vtime is served, and its
-- vtime grows by 1 / weight: one step. The clock of the queue is the vtime that was served last. A lane that appears
-- begins one step after the clock. An empty lane need not be remembered: its vtime is before the clock.
-- gives: charge_aged, look_at_fair, hide_later, take_fair

-- `taken` jobs of a lane were claimed by age, out of their turn: the clock does not move.
local function charge_aged(set, lane, priority, taken)
  local key = level_of(set, priority)
  local vtime = taken > 0 and call('ZSCORE', key, lane)
  if vtime then call('ZADD', key, vtime + taken * step_of(lane), lane) end
end

-- `taken` jobs of a lane were claimed in its turn. A lane that has become empty is not stored any more.
local function charge(candidate, lane, taken)
  if taken == 0 then return end
  local clock = clock_of(candidate.fair, candidate.priority)
  local last = math.max(candidate.vtime, clock) + (taken - 1) * candidate.step
  if opened[lane] then call('ZADD', level_of(candidate.set, candidate.priority), 'XX', last + candidate.step, lane) end
  if last > clock then set_clock(candidate.fair, candidate.priority, last) end
end

-- Finds the lane of a lane set that is next, and the vtime of the lane after it.
local function look_at_fair(candidate)
  local priority = call('ZRANGE', candidate.index, 0, 0)[1]
  candidate.line, candidate.at, candidate.after = nil, math.huge, math.huge
  if not priority then return end
  local lanes = call('ZRANGE', level_of(candidate.set, priority), 0, 1, 'WITHSCORES')
  candidate.line, candidate.priority = lanes[1], priority
  candidate.vtime, candidate.step = tonumber(lanes[2]), step_of(lanes[1])
  candidate.next = tonumber(lanes[4]) or math.huge
  candidate.lines = call('ZRANGE', named('index', lanes[1]), 0, 1, 'WITHSCORES')
  candidate.at = tonumber(candidate.lines[2]) or place(priority, 0)
end

local function comes_before(one, other)
  if one.priority ~= other.priority then return tonumber(one.priority) > tonumber(other.priority) end
  if one.vtime ~= other.vtime then return one.vtime < other.vtime end
  return one.at < other.at
end

-- Of the lane sets of fair keys of a queue only the one that is next is a candidate: the others are hidden.
local function hide_later(candidates)
  local first = {}
  for _, candidate in ipairs(candidates) do
    if candidate.fair and candidate.line then
      candidate.hidden, candidate.limit = true, math.huge
      local best = first[candidate.fair]
      if not best or comes_before(candidate, best) then first[candidate.fair] = candidate end
    end
  end
  for _, candidate in ipairs(candidates) do
    local best = candidate.fair and candidate.line and first[candidate.fair]
    if best == candidate then
      candidate.hidden = false
    elseif best and candidate.priority == best.priority then
      best.limit = math.min(best.limit, candidate.vtime)
    end
  end
end

-- Claims from the lane that is next, for as long as it is next.
local function take_fair(candidate, n, bound, worker)
  local lane, line, line_bound = candidate.line, candidate.lines[1], tonumber(candidate.lines[4]) or math.huge
  opened[lane] = true
  if not line or string.match(line, '^~?(-?%d+):') ~= candidate.priority then -- the index disagrees with its lane
    pending[lane] = {}
    looked = looked + 1
    settle_lanes()
    return 0, false
  end
  local from = math.max(candidate.vtime, clock_of(candidate.fair, candidate.priority))
  local most = 1 + math.max(0, math.floor((math.min(candidate.next, candidate.limit) - from) / candidate.step))
  local taken, closed = take_limited(candidate.set, lane, line, math.min(n, most), math.min(bound, line_bound), worker)
  charge(candidate, lane, taken)
  return taken, closed
end
