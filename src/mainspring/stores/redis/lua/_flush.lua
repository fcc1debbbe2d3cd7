-- flush: the end of every script that moved jobs. Needs common, rows, lanes, limits, moves.
-- gives: flush

-- Writes all that the script has changed, then wakes listeners. A turn passes `goes_on`: it claims next, and writes the
-- capacity and wakes listeners itself when the claims have taken theirs.
local function flush(goes_on)
  line_up()
  local writes = {}
  for id in pairs(changed) do
    writes[#writes + 1], writes[#writes + 2] = id, dump_head(heads[id])
  end
  changed = {}
  spread('HSET', JOBS, writes)
  close_gaps()
  if next(pending) then with_limits() end
  if settle_lanes then
    settle_lanes()
    settle_lane_sets()
    if not goes_on then
      write_capacities()
      wake_waiting_queues()
    end
  end
  add_counts(counts)
  counts = {}
end
