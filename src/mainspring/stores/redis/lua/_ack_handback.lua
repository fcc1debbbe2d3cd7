-- ack_handback: an ack that gives a job back with buckets that it did not name. Needs common, rows, queues, wakeups, lanes,
-- moves, lanes_moved.
-- gives: unspent, hand_back

-- The cost of an attempt that never began: 0 for each limit.
local function unspent(buckets)
  local spent = {}
  for n, bucket in ipairs(buckets) do spent[n] = {bucket[1], 0} end
  return spent
end

-- running -> ready at the place that the job had.
local function hand_back(id, head, more, park)
  with_queues()
  add_buckets(head, more)
  if park then set_lane(head, true) end
  enter(id, head, {READY})
  arrivals[#arrivals], arriving[id] = nil, nil
  put_in_place(id, head)
  wake_up(queue_of(head))
end
