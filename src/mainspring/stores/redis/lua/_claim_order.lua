-- claim_order: from which line the next job comes: the one whose first entry has the lowest place. Only the first
-- entries of lines are compared. Needs common, rows, limits, lanes, moves, lanes_moved, claim, claim_limited, fair.
-- A candidate is the first line of one index: of a root, or of a lane set once the turn has come to it. A lane set of
-- fair keys has a candidate for each priority.
-- gives: claim

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

-- Adds the candidates of a lane set of fair keys: one for each priority that has none yet.
local function add_fair(candidates, known, set)
  local queue = string.match(set, '^[^/]*')
  for _, priority in ipairs(call('ZRANGE', named('lanes', set), 0, -1)) do
    local level = priority .. ':' .. set
    if not known[level] then
      known[level] = true
      candidates[#candidates + 1] = {set = set, fair = queue, priority = priority, level = priority .. ':' .. queue}
      look_at(candidates[#candidates])
    end
  end
end

local function add_candidate(candidates, known, name, set)
  known[set or name] = true
  if set and is_fair(set) then
    candidates.fair = true
    return add_fair(candidates, known, set)
  end
  candidates[#candidates + 1] = {index = named(set and 'lanes' or 'index', name), floor = '-inf', set = set}
  look_at(candidates[#candidates])
end

-- A lane set is closed for this turn.
local function remove_set(candidates, set)
  for at = #candidates, 1, -1 do
    if candidates[at].set == set then table.remove(candidates, at) end
  end
end

-- Claims from the lane set or line of a candidate, which comes before `bound`. Returns the number of jobs.
local function take_from(candidates, known, best, n, bound, worker)
  if best.fair then
    local taken, closed = take_fair(best, n, bound, worker)
    if closed then
      remove_set(candidates, best.set)
    else
      add_fair(candidates, known, best.set)
      for _, candidate in ipairs(candidates) do -- the lane may wait now, at every priority
        if candidate ~= best and candidate.set == best.set then look_at(candidate) end
      end
    end
    return taken
  end
  if best.set then
    local taken, closed = take_from_set(best, n, bound, worker)
    if closed then remove_set(candidates, best.set) end
    return taken
  end
  if sub(best.line, 1, 1) ~= '#' then
    local taken, stuck = take_from_line(source_of(best.index, best.line), n, bound, worker)
    if stuck then best.floor = '(' .. call('ZSCORE', best.index, best.line) end
    return taken
  end
  with_claim_limited()
  best.floor, best.is_over = '(' .. best.mark, best.after == math.huge
  local is_single = not is_fair(sub(best.line, 2)) -- all lane sets of fair keys have the same place
  for _, line in ipairs(is_single and {best.line} or call('ZRANGEBYSCORE', best.index, best.mark, best.mark)) do
    local set = sub(line, 2)
    if not known[set] and may_enter(set, worker) then add_candidate(candidates, known, set, set) end
  end
  return 0
end

local function claim_in_order(roots, n, worker)
  local candidates, known, got = {}, {}, 0
  for _, root in ipairs(roots) do add_candidate(candidates, known, root) end
  while got < n and not is_enough() do
    local best, bound = nil, math.huge
    if candidates.fair then hide_later(candidates) end
    for _, candidate in ipairs(candidates) do
      local is_open = candidate.line and not candidate.hidden
      if is_open and (not best or candidate.at < best.at) then best = candidate end
    end
    if not best then break end
    for _, candidate in ipairs(candidates) do
      if not candidate.hidden then bound = math.min(bound, candidate == best and candidate.after or candidate.at) end
    end
    got = got + take_from(candidates, known, best, n - got, bound, worker)
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

-- For each want: suspects first while the worker may run one, then all others by their places.
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
  local last, missing -- the lanes of the last want, and how many jobs it did not get
  for _, want in ipairs(wants) do
    local n = want[2]
    local lanes = table.concat(want[1], ' ')
    if want[3] and lanes == last and missing > 0 then n = 0 end -- it would get nothing
    local plain, suspect = lanes_of(want, paused)
    ahead = want[3]
    if n > 0 and suspects > 0 then
      local got = claim_in_order(suspect, math.min(n, suspects), worker)
      suspects, n = suspects - got, n - got
    end
    if n > 0 then n = n - claim_in_order(plain, n, worker) end
    last, missing = lanes, n
  end
  move_counts(groups, {READY}, {RUNNING})
  spread('HSET', JOBS, writes)
  spread('SADD', named('worker_jobs', worker), running)
end
