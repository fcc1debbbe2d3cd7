-- uses: common, heads, settings*, wake, parts*, lines, rooms*, parking*, moves, guests
-- promote: waiting -> cancelled (expired); scheduled | retrying -> ready, in order of due; guests whose time is over go,
-- and lanes that waited for a moment are opened
-- args: now, limit
-- returns now, promoted, queues, next due or false, ids that expired
with_rooms()
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
for _, guest in ipairs(call('ZRANGEBYSCORE', GUESTS, '-inf', NOW, 'LIMIT', 0, limit)) do end_visit(guest) end
open_due(limit)
local left = reopen()
flush()
local soonest = left > 0 and NOW
for _, key in ipairs({LATER, EXPIRING, PARKED_UNTIL, GUESTS}) do
  local first = tonumber(call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
  if first and (not soonest or first < soonest) then soonest = first end
end
return {NOW, #due, queues, soonest, expired}
