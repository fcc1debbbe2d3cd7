-- uses: common, heads, settings*, wake, parts*, lines, rooms*, parking*, moves, uniq, forget
-- prune: ended jobs past their retention go, the oldest first, a bounded number at a time
-- args: now, which (held, drops, done, died), keep, keep_count, keep_at_least, how many to look at
-- returns how many went, and whether there may be more
-- One whose unique window is running is held until that is over, out of the way of the others, and then comes back.
local which, keep, most_kept, at_least = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local limit, key = tonumber(ARGV[6]), TAG .. which

-- Jobs that ended before this go: by age, or because there are too many, but none that is too young.
local function horizon()
  local crowd = 0
  if most_kept <= 0 then
    crowd = NOW + 1
  else
    crowd = tonumber(call('ZREVRANGE', key, whole(most_kept - 1), whole(most_kept - 1), 'WITHSCORES')[2]) or 0
  end
  return '(' .. whole(math.min(math.max(NOW - keep, crowd), NOW - at_least))
end

local before = (which == 'drops' or which == 'held') and whole(NOW) or horizon()
local ids = call('ZRANGEBYSCORE', key, '-inf', before, 'LIMIT', 0, limit)
local gone = 0
preload(ids)
for _, id in ipairs(ids) do
  local head = heads[id]
  local held = window_of(id, head)
  if which == 'held' then
    call('ZREM', HELD, id)
    enter_history(id, head)
  elseif held then
    call('ZREM', key, id)
    call('ZADD', HELD, held, id)
  else
    leave_history(id, head)
    forget(id, head)
    gone = gone + 1
  end
end
flush()
return {gone, #ids == limit and 1 or 0}
