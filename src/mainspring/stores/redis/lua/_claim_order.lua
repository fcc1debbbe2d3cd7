-- fronts: from which line the next job comes: by (priority descending, seq), looking at the heads of lines only. Needs
-- common, heads, rooms, lines, parking, moves, places, claims, limited.
-- A front is what is looked at of one index: a root, or a group of lanes with limits once the turn has come to it.
-- gives: claim

-- The line with the first by seq alone of all that stands in these roots, priority apart, and how far it goes on before
-- the turn of another comes.
local function oldest_of(roots, without, worker)
  local best, best_seq, bound = nil, math.huge, math.huge
  for _, root in ipairs(roots) do
    local key = named('heads', root)
    local lines = call('ZRANGE', key, 0, -1, 'WITHSCORES')
    for n = 1, #lines, 2 do
      local line, lane, group, seq, after = lines[n], nil, nil, tonumber(lines[n + 1]) % SPAN, math.huge
      if without[line] then
        line = nil
      elseif sub(line, 1, 1) == '#' then
        group = sub(line, 2)
        line, lane, seq = nil, nil, nil
        with_limited()
        if may_enter(group, worker) then line, lane, seq, after = oldest_in(group) end
      end
      if line and seq < best_seq then
        bound = math.min(best_seq, after)
        best, best_seq = {key = key, line = line, lane = lane, group = group}, seq
      elseif line then
        bound = math.min(bound, seq)
      end
    end
  end
  if best then
    best.priority = string.match(best.line, '^~?(-?%d+):')
    best.bound = place(best.priority, bound)
  end
  return best
end

local function claim_oldest(roots, n, worker)
  local got, without = 0, {}
  while got < n and not is_enough() do
    local best = oldest_of(roots, without, worker)
    if not best then break end
    local taken, stuck
    if best.group then
      taken, stuck = draw_limited(best.group, best.lane, best.line, n - got, best.bound, worker)
      if is_fair(best.group) then charge_aged(best.group, best.lane, best.priority, taken) end
      settle_groups()
    else
      taken, stuck = draw(source_of(best.key, best.line), n - got, best.bound, worker)
    end
    got = got + taken
    if stuck then without[best.group and '#' .. best.group or best.line] = true end
  end
  return got
end

-- The next line of a front behind its floor and the place where the one after it begins.
local function look_at(front)
  if front.fair then return look_at_fair(front) end
  if front.is_over then
    front.line, front.at, front.after = nil, math.huge, math.huge
    return
  end
  if front.keyless then -- the lane that has the name of its group
    local at = call('ZSCORE', front.heads, front.group)
    front.line, front.at, front.after = at and front.group, tonumber(at) or math.huge, math.huge
    return
  end
  local lines = call('ZRANGEBYSCORE', front.heads, front.floor, '+inf', 'WITHSCORES', 'LIMIT', 0, 2)
  front.line, front.at, front.after = lines[1], tonumber(lines[2]) or math.huge, tonumber(lines[4]) or math.huge
  front.mark = lines[2]
end

local function front_of(name, group)
  local front = {heads = named(group and 'lanes' or 'heads', name), floor = '-inf', group = group}
  if group and is_fair(group) then front.fair = string.match(group, '^[^/]*') end
  look_at(front)
  return front
end

local function claim_merged(roots, n, worker)
  local fronts, by_name, got, fair = {}, {}, 0, false
  local function add(name, group)
    by_name[name] = front_of(name, group)
    fronts[#fronts + 1] = by_name[name]
    fair = fair or by_name[name].fair
  end
  for _, root in ipairs(roots) do add(root) end
  while got < n and not is_enough() do
    local best, bound, at = nil, math.huge, nil
    if fair then hide_later(fronts) end
    for m, front in ipairs(fronts) do
      if front.line and not front.hidden and (not best or front.at < best.at) then best, at = front, m end
    end
    if not best then break end
    for _, front in ipairs(fronts) do
      if not front.hidden then bound = math.min(bound, front == best and front.after or front.at) end
    end
    local taken, stuck = 0, false
    if best.fair then
      taken, stuck = draw_fair(best, n - got, bound, worker)
      if stuck then table.remove(fronts, at) end
    elseif best.group then
      taken, stuck = draw_from(best, n - got, bound, worker)
      if stuck then table.remove(fronts, at) end
    elseif sub(best.line, 1, 1) == '#' then
      with_limited()
      best.floor, best.is_over = '(' .. best.mark, best.after == math.huge
      local is_one = not is_fair(sub(best.line, 2)) -- else all of them stand at one place
      for _, line in ipairs(is_one and {best.line} or call('ZRANGEBYSCORE', best.heads, best.mark, best.mark)) do
        local group = sub(line, 2)
        if not by_name[group] and may_enter(group, worker) then add(group, group) end
      end
    else
      taken, stuck = draw(source_of(best.heads, best.line), n - got, bound, worker)
      if stuck then best.floor = '(' .. call('ZSCORE', best.heads, best.line) end
    end
    got = got + taken
    if got < n then look_at(best) end
  end
  if settle_groups then settle_groups() end
  return got
end

-- For each want: suspects first while allowed, then `oldest` by age, then by priority and seq.
local function claim(worker, number, suspects, wants)
  local asked = {}
  for _, want in ipairs(wants) do
    for _, lane in ipairs(want[1]) do asked[string.match(lane, '^[^/]*')] = true end
  end
  local paused = #wants > 0 and queues_in('paused', asked)
  if #wants > 0 then bring_back() end
  if next(pending) then
    with_rooms()
    settle_lanes()
    settle_groups()
  end
  begin(worker, number)
  for _, want in ipairs(wants) do
    local lanes, n, oldest = want[1], want[2], want[3]
    local plain, crashed, twice = {}, {}, {}
    allowed = want[4] or math.huge
    for _, lane in ipairs(lanes) do
      if not twice[lane] and not (paused and paused[string.match(lane, '^[^/]*')]) then
        twice[lane] = true
        plain[#plain + 1] = lane
        crashed[#crashed + 1] = lane .. '!'
      end
    end
    if n > 0 and suspects > 0 then
      local got = claim_merged(crashed, math.min(n, suspects), worker)
      suspects, n = suspects - got, n - got
    end
    if n > 0 and oldest > 0 then n = n - claim_oldest(plain, math.min(n, oldest), worker) end
    if n > 0 then claim_merged(plain, n, worker) end
  end
  move_counts(groups, '\4', '\5')
  spread('HSET', JOBS, writes)
  spread('SADD', named('running', worker), held)
end
