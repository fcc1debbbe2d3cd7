-- breakers: what ends of jobs, and of other work, mean to them. Needs common, rooms, parking.
-- gives: end_of, hear_numbers, hear_loss, hear_all
local told = {}
local PARTS = 10 -- of a window

local function told_of(name)
  told[name] = told[name] or {bad = 0, good = 0}
  return told[name]
end

local function guards_in(buckets)
  local names = {}
  for _, bucket in ipairs(buckets or {}) do
    if is_guard(name_of(bucket)) then names[#names + 1] = name_of(bucket) end
  end
  return names
end

-- An attempt that began then is over: it has failed (what, in words) or succeeded.
local function end_of(buckets, began, fault)
  for _, name in ipairs(guards_in(buckets)) do
    local ends = told_of(name)
    if fault then
      ends.failed, ends.bad, ends.error = math.max(ends.failed or 0, began), ends.bad + 1, fault
    else
      ends.succeeded = math.max(ends.succeeded or 0, began)
    end
  end
end

-- Successes in numbers, by breaker.
local function hear_numbers(good)
  for _, pair in ipairs(good) do told_of(pair[1]).good = told_of(pair[1]).good + pair[2] end
end

-- A worker is gone that ran these jobs [id, head]: one failure for each breaker that they name.
local function hear_loss(held, cause)
  local lost = {}
  for _, pair in ipairs(held) do
    for _, name in ipairs(guards_in(pair[2][MORE].b)) do lost[name] = math.max(lost[name] or 0, pair[2][STARTED]) end
  end
  for name, began in pairs(lost) do
    end_of({{name, '', 1}}, began, 'its worker ' .. (cause == 'lost' and 'is ' or 'has ') .. cause)
  end
end

local function open_it(switch, limit)
  switch.till, switch.opened, switch.half, switch.tripped, switch.counts = NOW + limit.per, NOW, false, false, {}
end

-- Whether the breaker is to be written.
local function hear(switch, ends, limit)
  local was_open = switch.till > 0
  if was_open and (switch.till > NOW or math.max(ends.succeeded or 0, ends.failed or 0) < switch.till) then return false end
  if was_open and (ends.succeeded or 0) < switch.till then
    switch.error = ends.error
    open_it(switch, limit)
    return true
  end
  if was_open then close_switch(switch) end
  if ends.bad == 0 and not was_open then
    if limit.share > 0 and ends.good == 0 or limit.share == 0 and switch.failures == 0 then return false end
  end
  local opens
  if limit.share > 0 then
    local part = math.max(math.floor(limit.span / PARTS), 1)
    switch.counts[#switch.counts + 1] = {NOW - NOW % part, ends.good, ends.bad}
    narrow(switch, limit)
    opens = switch.calls >= limit.burst and switch.failures * 1000000 >= limit.share * switch.calls
  else
    if ends.succeeded or ends.good > 0 then switch.failures = 0 end
    switch.failures, switch.calls, switch.counts = switch.failures + ends.bad, 0, {}
    opens = switch.failures >= limit.burst
  end
  switch.error = ends.error or switch.error
  if opens and ends.bad > 0 then open_it(switch, limit) end
  return true
end

-- Of one that is closed, and has nothing to forget, a success changes nothing.
local function hear_all()
  for name, ends in pairs(told) do
    local switch = switch_of(name)
    local limit = (switch or ends.bad > 0 or ends.good > 0) and room_of(name).limit
    if limit and limit.kind == 'breaker' then
      switch = switch or close_switch({})
      local before = switch.till
      if hear(switch, ends, limit) then put_switch(name, switch) end
      if switch.till ~= before then
        tell_news(name)
        wake_waiting(name)
        room_of(name).running = nil
      end
    end
  end
  told = {}
end
