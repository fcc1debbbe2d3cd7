-- claim_order: from which line the next job comes: by priority (highest first), then by seq. Only the first entries of
-- lines are compared. Needs common, rows, limits, lanes, moves, lanes_moved, claim, claim_limited, fair.
-- A candidate is the first line of one index: of a root, or of a lane set once the turn has come to it.
-- gives: claim

-- The line of the oldest job by seq alone in these roots, and the place up to which its jobs are older than all others.
local function oldest_of(roots, without, worker)
  local best, best_seq, bound = nil, math.huge, math.huge
  for _, root in ipairs(roots) do
    local key = named('index', root)
    local lines = call('ZRANGE', key, 0, -1, 'WITHSCORES')
    for n = 1, #lines, 2 do
      local line, lane, set, seq, after = lines[n], nil, nil, tonumber(lines[n + 1]) % {SEQ_SPAN}, math.huge
      if without[line] then
        line = nil
      elseif sub(line, 1, 1) == '#' then
        set = sub(line, 2)
        line, lane, seq = nil, nil, nil
        with_claim_limited()
        if may_enter(set, worker) then line, lane, seq, after = oldest_in(set) end
      end
      if line and seq < best_seq then
        bound = math.min(best_seq, after)
        best, best_seq = {key = key, line = line, lane = lane, set = set}, seq
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
    if best.set then
      taken, stuck = take_limited(best.set, best.lane, best.line, n - got, best.bound, worker)
      if is_fair(best.set) then charge_aged(best.set, best.lane, best.priority, taken) end
      settle_lane_sets()
    else
      taken, stuck = take_from_line(source_of(best.key, best.line), n - got, best.bound, worker)
    end
    got = got + taken
    if stuck then without[best.set and '#' .. best.set or best.line] = true end
  end
  return got
end

-- Finds the next line of a candidate after its floor, and the place at which the line after it begins.
local function look_at(candidate)
  if candidate.fair then return look_at_fair(candidate) end
  if candidate.is_over then
    candidate.line, candidate.at, candidate.after = nil, math.huge, math.huge
    return
  end
  if candidate.keyless then -- only the lane that has the name of its lane set
    local at = call('ZSCORE', candidate.index, candidate.set)
    candidate.line, candidate.at, candidate.after = at and candidate.set, tonumber(at) or math.huge, math.huge
    return
  end
  local lines = call('ZRANGEBYSCORE', candidate.index, candidate.floor, '+inf', 'WITHSCORES', 'LIMIT', 0, 2)
  candidate.line, candidate.mark = lines[1], lines[2]
  candidate.at, candidate.after = tonumber(lines[2]) or math.huge, tonumber(lines[4]) or math.huge
end

local function candidate_of(name, set)
  local candidate = {index = named(set and 'lanes' or 'index', name), floor = '-inf', set = set}
  if set and is_fair(set) then candidate.fair = string.match(set, '^[^/]*') end
  look_at(candidate)
  return candidate
end

local function claim_in_order(roots, n, worker)
  local candidates, by_name, got, fair = {}, {}, 0, false
  local function add(name, set)
    by_name[name] = candidate_of(name, set)
    candidates[#candidates + 1] = by_name[name]
    fair = fair or by_name[name].fair
  end
  for _, root in ipairs(roots) do add(root) end
  while got < n and not is_enough() do
    local best, bound, at = nil, math.huge, nil
    if fair then hide_later(candidates) end
    for m, candidate in ipairs(candidates) do
      local is_open = candidate.line and not candidate.hidden
      if is_open and (not best or candidate.at < best.at) then best, at = candidate, m end
    end
    if not best then break end
    for _, candidate in ipairs(candidates) do
      if not candidate.hidden then bound = math.min(bound, candidate == best and candidate.after or candidate.at) end
    end
    local taken, stuck = 0, false
    if best.fair then
      taken, stuck = take_fair(best, n - got, bound, worker)
      if stuck then table.remove(candidates, at) end
    elseif best.set then
      taken, stuck = take_from_set(best, n - got, bound, worker)
      if stuck then table.remove(candidates, at) end
    elseif sub(best.line, 1, 1) == '#' then
      with_claim_limited()
      best.floor, best.is_over = '(' .. best.mark, best.after == math.huge
      local is_single = not is_fair(sub(best.line, 2)) -- all lane sets of fair keys have the same place
      for _, line in ipairs(is_single and {best.line} or call('ZRANGEBYSCORE', best.index, best.mark, best.mark)) do
        local set = sub(line, 2)
        if not by_name[set] and may_enter(set, worker) then add(set, set) end
      end
    else
      taken, stuck = take_from_line(source_of(best.index, best.line), n - got, bound, worker)
      if stuck then best.floor = '(' .. call('ZSCORE', best.index, best.line) end
    end
    got = got + taken
    if got < n then look_at(best) end
  end
  if settle_lane_sets then settle_lane_sets() end
  return got
end

-- The lanes of a want, each once and without those of paused queues; and the lanes of their suspects.
local function lanes_of(want, paused)
  local plain, suspect, twice = {}, {}, {}
  for _, lane in ipairs(want[1]) do
    if not twice[lane] and not (paused and paused[string.match(lane, '^[^/]*')]) then
      twice[lane] = true
      plain[#plain + 1] = lane
      suspect[#suspect + 1] = lane .. '!'
    end
  end
  return plain, suspect
end

-- For each want: suspects first while the worker may run one, then `oldest` jobs by age, then by priority and seq.
local function claim(worker, number, suspects, wants)
  local asked = {}
  for _, want in ipairs(wants) do
    for _, lane in ipairs(want[1]) do asked[string.match(lane, '^[^/]*')] = true end
  end
  local paused = #wants > 0 and queues_in({QUEUE_PAUSED}, asked)
  if #wants > 0 then return_overdue() end
  if next(pending) then
    with_limits()
    settle_lanes()
    settle_lane_sets()
  end
  begin(worker, number)
  for _, want in ipairs(wants) do
    local n, oldest = want[2], want[3]
    local plain, suspect = lanes_of(want, paused)
    allowed = want[4] or math.huge
    if n > 0 and suspects > 0 then
      local got = claim_in_order(suspect, math.min(n, suspects), worker)
      suspects, n = suspects - got, n - got
    end
    if n > 0 and oldest > 0 then n = n - claim_oldest(plain, math.min(n, oldest), worker) end
    if n > 0 then claim_in_order(plain, n, worker) end
  end
  move_counts(groups, {READY}, {RUNNING})
  spread('HSET', JOBS, writes)
  spread('SADD', named('worker_jobs', worker), running)
end
