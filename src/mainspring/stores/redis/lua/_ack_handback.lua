-- ack_handback: an ack that gives a job back with buckets that it did not name, or with a schedule. Needs common, rows,
-- queues, wakeups, dependencies, lanes, moves, lanes_moved.
-- gives: unspent, hand_back

-- The cost of an attempt that never began: 0 for each limit.
local function unspent(buckets)
  local spent = {}
  for n, bucket in ipairs(buckets) do spent[n] = {bucket[1], 0} end
  return spent
end

-- A job without a schedule becomes a job of this schedule. Returns whether it has to wait for dependencies; else it is
-- the next start of the schedule.
local function joins(id, head, schedule)
  local mark = {PART} .. schedule
  head[MORE].m = head[MORE].m or {}
  head[MORE].m[#head[MORE].m + 1], head[DEPENDENT] = mark, true
  call('ZADD', named('mark', mark), 0, id)
  with_dependencies()
  dependencies.hold_back(id, head, false, head[MORE].s and {SEQ_SPAN} - head[SEQ] or head[SEQ])
  return head[DEPS] > 0
end

-- running -> ready at the place that the job had, or blocked if its schedule has to wait.
local function hand_back(id, head, more, schedule, park)
  with_queues()
  if #more > 0 then add_buckets(head, more) end
  if park then set_lane(head, true) end
  if schedule and not head[DEPENDENT] and joins(id, head, schedule) then
    head[DUE] = {NONE}
    return enter(id, head, {BLOCKED})
  end
  enter(id, head, {READY})
  arrivals[#arrivals], arriving[id] = nil, nil
  put_in_place(id, head)
  wake_up(queue_of(head))
end
