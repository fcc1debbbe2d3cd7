-- uses: common, heads, wake, lines, moves
-- promote: waiting -> cancelled (expired); scheduled | retrying -> ready, in order of due
-- args: now, limit
-- returns now, promoted, queues, next due or false, ids that expired
local limit, expired, queues, seen = tonumber(ARGV[2]), {}, {}, {}
local late = call('ZRANGEBYSCORE', EXPIRING, '-inf', NOW, 'LIMIT', 0, limit)
preload(late)
for _, id in ipairs(late) do
  if live(id) then -- else its parent was late as well and took it along
    finish(id, heads[id], CANCELLED, 'expired')
    expired[#expired + 1] = id
  end
end
local due = call('ZRANGEBYSCORE', LATER, '-inf', NOW, 'LIMIT', 0, limit)
preload(due)
for _, id in ipairs(due) do
  local head = heads[id]
  local queue = queue_of(head)
  leave(id, head)
  enter(id, head, READY)
  if not seen[queue] then
    seen[queue] = true
    queues[#queues + 1] = queue
  end
end
flush()
local soonest = false
for _, key in ipairs({LATER, EXPIRING}) do
  local first = tonumber(call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
  if first and (not soonest or first < soonest) then soonest = first end
end
return {NOW, #due, queues, soonest, expired}
