-- limited: draws from lanes with limits. Needs common, heads, rooms, lines, parking, moves, claims.
-- gives: may_enter, draw_limited, oldest_in, draw_from
with_rooms()

-- Whether lanes with the marks of this group are for this worker.
local function may_enter(group, worker)
  local task = string.match(group, '^[^/]*/[^!?]*!?%?(.*)$')
  return (allowed > 0 or is_free(group)) and (not task or knows(worker, task))
end

-- What a lane lacks room in: a lane with keys is parked if it is a key's; a gate closes its whole group. Returns whether.
local function give_way(group, lane)
  local name, moment = lack.name, lack.moment
  if moment and (not soonest or moment < soonest) then soonest = moment end
  if not is_gate(name) then
    parks = parks + 1
    park(lane, known_buckets[lane], name, moment)
    return false
  end
  note(group, name)
  local queue = string.match(group, '^[^/]*')
  if not crowded[queue] then crowded[#crowded + 1], crowded[queue] = queue, true end
  return true
end

-- Draws from one line of a lane with limits. Returns how many, and whether its group is closed to this turn.
local function draw_limited(group, lane, line, n, bound, worker)
  local free = is_free(group)
  if free then known_buckets[lane] = {} end
  local taken, stuck = draw(source_of(named('heads', lane), line, lane), free and n or math.min(n, allowed), bound, worker)
  if not free then allowed = allowed - taken end
  local closed = stuck and give_way(group, lane)
  settle_lanes()
  return taken, closed
end

-- The first by seq alone of a group: its line, lane and seq.
local function oldest_in(group)
  local lane = call('ZRANGE', named('ages', group), 0, 0)[1]
  local lines, best, best_seq = lane and call('ZRANGE', named('heads', lane), 0, -1, 'WITHSCORES') or {}, nil, nil
  for n = 1, #lines, 2 do
    local seq = tonumber(lines[n + 1]) % SPAN
    if not best or seq < best_seq then best, best_seq = lines[n], seq end
  end
  return best, lane, best_seq
end

-- Draws from the lane that stands first in a group.
local function draw_from(front, n, bound, worker)
  local lane = front.line
  local lines = call('ZRANGE', named('heads', lane), 0, 1, 'WITHSCORES')
  opened[lane] = true
  if not lines[1] then -- the index disagrees with its lane; mend it
    pending[lane] = {}
    settle_lanes()
    return 0, false
  end
  return draw_limited(front.group, lane, lines[1], n, math.min(bound, tonumber(lines[4]) or math.huge), worker)
end
