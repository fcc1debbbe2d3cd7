-- uses: common, moves
-- promote: waiting -> cancelled (expired); scheduled | retrying -> ready, in order of due
-- args: now, limit
-- returns now, promoted, expired, queues, next due or false
local limit, expired, queues, seen = tonumber(ARGV[2]), 0, {}, {}
local late = call('ZRANGEBYSCORE', EXPIRING, '-inf', NOW, 'LIMIT', 0, limit)
preload(late)
for _, id in ipairs(late) do
  local head = heads[id]
  if head then -- else its parent was late as well and took it along
    finish(id, head, 'cancelled', 'expired')
    expired = expired + 1
  end
end
local due = call('ZRANGEBYSCORE', LATER, '-inf', NOW, 'LIMIT', 0, limit)
preload(due)
for _, id in ipairs(due) do
  local head = heads[id]
  leave(id, head)
  enter(id, head, 'ready')
  if not seen[head[QUEUE]] then
    seen[head[QUEUE]] = true
    queues[#queues + 1] = head[QUEUE]
  end
end
flush()
local soonest = false
for _, key in ipairs({LATER, EXPIRING}) do
  local first = tonumber(call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
  if first and (not soonest or first < soonest) then soonest = first end
end
return {NOW, #due, expired, queues, soonest}
