-- relane: a job that is handed back names buckets that it did not name. Needs common, heads, settings, wake, lines, moves,
-- places.
-- gives: unspent, relane

-- What an attempt that never began has cost, by limit.
local function unspent(buckets)
  local spent = {}
  for n, bucket in ipairs(buckets) do spent[n] = {bucket[1], 0} end
  return spent
end

-- Ready at the place that it had, which is not the end of a list.
local function relane(id, head, more, park)
  with_settings()
  widen(head, more)
  if park then set_lane(head, true) end
  enter(id, head, READY)
  arrivals[#arrivals], arriving[id] = nil, nil
  put_in_place(id, head)
  wake_up(queue_of(head))
end
