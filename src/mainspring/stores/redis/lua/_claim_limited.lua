-- limited: draws from lanes with limits. Needs common, heads, rooms, lines, parking, moves, claims.
-- gives: may_enter, draw_limited, oldest_in, draw_from
with_rooms()

-- Whether lanes with the marks of this group are for this worker. Where there is no gate all buckets have keys.
local function may_enter(group, worker)
  local task = string.match(group, '^[^/]*/[^!?]*!?%?(.*)$')
  local has_gates = string.find(group, '^[^/]*/[^#!?]*#%**,?[^!?*,]')
  return (allowed > 0 or has_gates or is_free(group)) and (not task or knows(worker, task))
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

-- The gates of a lane without keys, as far as its name tells them: what it costs to pass them is not known.
local function gates_of(lane)
  local gates = {}
  for label in string.gmatch(string.match(lane, '#([^!?]*)'), '[^,]+') do
    if sub(label, 1, 1) == '~' then return nil end
    gates[#gates + 1] = {label, '', 1}
  end
  return gates
end

-- Draws from one line of a lane with limits. Returns how many, and whether its group is closed to this turn; if that is so
-- because the want may have no more in short buckets, 'short'.
local function draw_limited(group, lane, line, n, bound, worker)
  local keyed = lane ~= group
  if keyed and allowed <= 0 and not is_fair(group) then return 0, 'short' end
  if is_free(group) then
    known_buckets[lane] = {}
  elseif not keyed then
    known_buckets[lane] = known_buckets[lane] or gates_of(lane)
  end
  local taken, stuck = draw(source_of(named('heads', lane), line, lane), n, bound, worker)
  local closed = stuck == 'short' and stuck or stuck and give_way(group, lane)
  settle_lanes()
  return taken, closed
end

-- The first by seq alone of a group: its line, lane and seq; and the seq of the first that is of another line.
local function oldest_in(group)
  local ages = call('ZRANGE', named('ages', group), 0, 1, 'WITHSCORES')
  local lane, after = ages[1], tonumber(ages[4]) or math.huge
  local lines, best, best_seq = lane and call('ZRANGE', named('heads', lane), 0, -1, 'WITHSCORES') or {}, nil, math.huge
  for n = 1, #lines, 2 do
    local seq = tonumber(lines[n + 1]) % SPAN
    if seq < best_seq then
      best, best_seq, after = lines[n], seq, math.min(after, best_seq)
    else
      after = math.min(after, seq)
    end
  end
  return best, lane, best_seq, after
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
  bound = math.min(bound, tonumber(lines[4]) or math.huge)
  local taken, closed = draw_limited(front.group, lane, lines[1], n, bound, worker)
  if closed == 'short' and lane ~= front.group then front.keyless, closed = true, false end
  return taken, closed
end
