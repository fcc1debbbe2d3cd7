-- uses: jobs, keys, history, sweep*, holders
-- promote: waiting -> cancelled (expired); scheduled | retrying -> ready, in order of due; frees holds that are over;
-- opens lanes whose moment has come; sees that the clock was set back; resolves further children of joins with many;
-- cancels the jobs of flows whose root ended before them
-- args: now, limit
-- returns now, number of promoted jobs, their queues, the next due moment or false, ids that expired
with_limits()
note_time()
local limit, expired, queues, seen = tonumber(ARGV[2]), {}, {}, {}
local late = call('ZRANGEBYSCORE', EXPIRING, '-inf', NOW, 'LIMIT', 0, limit)
preload(late)
for _, id in ipairs(late) do
  if live(id) then -- else it ended together with an expired parent
    finish(id, heads[id], {CANCELLED}, {EXPIRED})
    expired[#expired + 1] = id
  end
end
local due = call('ZRANGEBYSCORE', DUE_JOBS, '-inf', NOW, 'LIMIT', 0, limit)
preload(due)
for _, id in ipairs(due) do
  local head = heads[id]
  local queue = queue_of(head)
  leave(id, head)
  enter(id, head, {READY})
  if not seen[queue] then
    seen[queue] = true
    queues[#queues + 1] = queue
  end
end
if call('EXISTS', TAG .. 'releasing') == 1 then
  local ending = {}
  with_flows()
  flows.release_children(limit, ending)
  finish_all(ending)
end
if call('EXISTS', TAG .. 'swept') == 1 then
  with_flows()
  with_sweep()
  sweep_flows(limit)
end
for _, holder in ipairs(call('ZRANGEBYSCORE', HOLDERS, '-inf', NOW, 'LIMIT', 0, limit)) do release_holder(holder) end
open_due_lanes(limit)
local left = recheck_buckets()
flush()
local soonest = left > 0 and NOW
for _, key in ipairs({DUE_JOBS, EXPIRING, WAITING_UNTIL, HOLDERS, TAG .. 'releasing', TAG .. 'swept'}) do
  local first = tonumber(call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
  if first and (not soonest or first < soonest) then soonest = first end
end
return {NOW, #due, queues, soonest, expired}
