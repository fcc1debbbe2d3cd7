-- relane: a job that is handed back names buckets that it did not name, or a part. Needs common, heads, settings, wake, parts,
-- lines, moves, places.
-- gives: unspent, relane

-- What an attempt that never began has cost, by limit.
local function unspent(buckets)
  local spent = {}
  for n, bucket in ipairs(buckets) do spent[n] = {bucket[1], 0} end
  return spent
end

-- A job that was of no part is of this one. Whether it has to wait for others; else it is the next start of its part.
local function joins(id, head, part)
  local mark = '^@' .. part
  head[MORE].m = head[MORE].m or {}
  head[MORE].m[#head[MORE].m + 1], head[OF_PART] = mark, true
  call('ZADD', named('mark', mark), 0, id)
  with_parts()
  parts.hold_back(id, head, false, head[MORE].s and SPAN - head[SEQ] or head[SEQ])
  return head[DEPS] > 0
end

-- Ready at the place that it had, which is not the end of a list; or blocked, if its part has to wait.
local function relane(id, head, more, part, park)
  with_settings()
  if #more > 0 then widen(head, more) end
  if park then set_lane(head, true) end
  if part and not head[OF_PART] and joins(id, head, part) then
    head[DUE] = NONE
    return enter(id, head, BLOCKED)
  end
  enter(id, head, READY)
  arrivals[#arrivals], arriving[id] = nil, nil
  put_in_place(id, head)
  wake_up(queue_of(head))
end
