-- fair: whose turn it is among the lanes of fair keys. Needs common, heads, rooms, lines, parking, moves, claims, limited.
-- Self-clocked fair queuing: a lane has a vtime for its next claim. The lane with the least is served, and its vtime grows by
-- one over its weight; the clock of the queue is the vtime that was served last. A lane that appears is put one step behind
-- the clock, and nothing of one that is empty has to be remembered: what it was served lies before the clock.
-- gives: charge_aged, look_at_fair, hide_later, draw_fair

-- So many jobs of a lane were claimed out of turn, by age: the clock stands.
local function charge_aged(group, lane, priority, taken)
  local key = level_of(group, priority)
  local vtime = taken > 0 and call('ZSCORE', key, lane)
  if vtime then call('ZADD', key, vtime + taken * step_of(lane), lane) end
end

-- The same in its turn. A lane that is empty by now is gone, and nothing is left to be told of it.
local function charge(front, lane, taken)
  if taken == 0 then return end
  local clock = clock_of(front.fair, front.priority)
  local last = math.max(front.vtime, clock) + (taken - 1) * front.step
  if opened[lane] then call('ZADD', level_of(front.group, front.priority), 'XX', last + front.step, lane) end
  if last > clock then set_clock(front.fair, front.priority, last) end
end

-- The lane of a group whose turn it is, and the vtime of the one after it.
local function look_at_fair(front)
  local priority = call('ZRANGE', front.heads, 0, 0)[1]
  front.line, front.at, front.after = nil, math.huge, math.huge
  if not priority then return end
  local lanes = call('ZRANGE', level_of(front.group, priority), 0, 1, 'WITHSCORES')
  front.line, front.priority, front.vtime, front.step = lanes[1], priority, tonumber(lanes[2]), step_of(lanes[1])
  front.next = tonumber(lanes[4]) or math.huge
  front.lines = call('ZRANGE', named('heads', lanes[1]), 0, 1, 'WITHSCORES')
  front.at = tonumber(front.lines[2]) or place(priority, 0)
end

local function comes_before(one, other)
  if one.priority ~= other.priority then return tonumber(one.priority) > tonumber(other.priority) end
  if one.vtime ~= other.vtime then return one.vtime < other.vtime end
  return one.at < other.at
end

-- Of the groups of fair keys of a queue the one whose turn it is stands for all: the others are not seen.
local function hide_later(fronts)
  local first = {}
  for _, front in ipairs(fronts) do
    if front.fair and front.line then
      front.hidden, front.limit = true, math.huge
      local best = first[front.fair]
      if not best or comes_before(front, best) then first[front.fair] = front end
    end
  end
  for _, front in ipairs(fronts) do
    local best = front.fair and front.line and first[front.fair]
    if best == front then
      front.hidden = false
    elseif best and front.priority == best.priority then
      best.limit = math.min(best.limit, front.vtime)
    end
  end
end

-- Draws from the lane whose turn it is, as long as it is.
local function draw_fair(front, n, bound, worker)
  local lane, line, line_bound = front.line, front.lines[1], tonumber(front.lines[4]) or math.huge
  opened[lane] = true
  if not line or string.match(line, '^~?(-?%d+):') ~= front.priority then -- the index disagrees with its lane; mend it
    pending[lane] = {}
    looked = looked + 1
    settle_lanes()
    return 0, false
  end
  local from = math.max(front.vtime, clock_of(front.fair, front.priority))
  local most = 1 + math.max(0, math.floor((math.min(front.next, front.limit) - from) / front.step))
  local taken, closed = draw_limited(front.group, lane, line, math.min(n, most), math.min(bound, line_bound), worker)
  charge(front, lane, taken)
  return taken, closed
end
