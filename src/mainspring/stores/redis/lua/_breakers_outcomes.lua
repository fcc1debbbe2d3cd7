-- breakers_outcomes: what the outcomes of jobs, and of work outside of jobs, do to breakers. Needs common, limits.
-- Outcomes are collected for each breaker in the script, and apply_outcomes() writes them: successes before failures.
-- gives: note_outcome, add_successes, note_lost_worker, apply_outcomes
local outcomes = {}

local function outcomes_of(name)
  outcomes[name] = outcomes[name] or {bad = 0, good = 0}
  return outcomes[name]
end

local function breakers_in(buckets)
  local names = {}
  for _, bucket in ipairs(buckets or {}) do
    if is_breaker_name(name_of(bucket)) then names[#names + 1] = name_of(bucket) end
  end
  return names
end

-- An attempt that began at that moment has ended. `fault`: the text of the failure; nil: it has succeeded.
local function note_outcome(buckets, began, fault)
  for _, name in ipairs(breakers_in(buckets)) do
    local ends = outcomes_of(name)
    if fault then
      ends.failed, ends.bad, ends.error = math.max(ends.failed or 0, began), ends.bad + 1, fault
    else
      ends.succeeded = math.max(ends.succeeded or 0, began)
    end
  end
end

-- Adds numbers of successes [[breaker, number], ...].
local function add_successes(good)
  for _, pair in ipairs(good) do outcomes_of(pair[1]).good = outcomes_of(pair[1]).good + pair[2] end
end

-- A worker that ran these jobs [id, head] is gone: one failure for each breaker that they name.
local function note_lost_worker(held, cause)
  local lost = {}
  for _, pair in ipairs(held) do
    for _, name in ipairs(breakers_in(pair[2][MORE].b)) do lost[name] = math.max(lost[name] or 0, pair[2][STARTED]) end
  end
  for name, began in pairs(lost) do
    note_outcome({ {name, '', 1} }, began, 'its worker ' .. (cause == {LOST} and 'is ' or 'has ') .. cause)
  end
end

local function open_breaker(breaker, limit)
  breaker.till, breaker.opened, breaker.half, breaker.tripped, breaker.counts = NOW + limit.per, NOW, false, false, {}
end

-- Counts the outcomes of a closed breaker. Returns whether they open it.
local function count_outcomes(breaker, ends, limit)
  if limit.share == 0 then
    if ends.succeeded or ends.good > 0 then breaker.failures = 0 end
    breaker.failures, breaker.calls, breaker.counts = breaker.failures + ends.bad, 0, {}
    return breaker.failures >= limit.burst
  end
  local piece = math.max(math.floor(limit.span / {BREAKER_PIECES}), 1)
  breaker.counts[#breaker.counts + 1] = {NOW - NOW % piece, ends.good, ends.bad}
  narrow_window(breaker, limit)
  return breaker.calls >= limit.burst and breaker.failures * {SHARE_WHOLE} >= limit.share * breaker.calls
end

-- Applies outcomes to one breaker. Returns whether it has to be written.
local function apply(breaker, ends, limit)
  local was_open = breaker.till > 0
  local latest = math.max(ends.succeeded or 0, ends.failed or 0)
  if was_open and (breaker.till > NOW or latest < breaker.till) then return false end
  if was_open and (ends.succeeded or 0) < breaker.till then
    breaker.error = ends.error
    open_breaker(breaker, limit)
    return true
  end
  if was_open then close_breaker(breaker) end
  if ends.bad == 0 and not was_open then
    if limit.share > 0 and ends.good == 0 or limit.share == 0 and breaker.failures == 0 then return false end
  end
  local opens = count_outcomes(breaker, ends, limit)
  breaker.error = ends.error or breaker.error
  if opens and ends.bad > 0 then open_breaker(breaker, limit) end
  return true
end

-- Applies all collected outcomes. A success changes nothing of a closed breaker that counts no failure.
local function apply_outcomes()
  for name, ends in pairs(outcomes) do
    local breaker = breaker_of(name)
    local limit = (breaker or ends.bad > 0 or ends.good > 0) and capacity_of(name).limit
    if limit and limit.kind == {LIMIT_BREAKER} then
      breaker = breaker or close_breaker({})
      local before = breaker.till
      if apply(breaker, ends, limit) then put_breaker(name, breaker) end
      if breaker.till ~= before then
        report_change(name)
        wake_for_unkeyed(name)
        capacity_of(name).running = nil
      end
    end
  end
  outcomes = {}
end
