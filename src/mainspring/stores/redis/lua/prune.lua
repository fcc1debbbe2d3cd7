-- uses: jobs, keys, history
-- prune: deletes ended jobs past their retention, the oldest first, a bounded number in one script
-- args: now, which set (key_until, keep_until, done, died), keep, keep_count, keep_at_least, how many jobs to look at
-- returns the number of deleted jobs, and whether there may be more
-- A job whose unique key still counts moves to key_until, out of the way of the others, and comes back when its window
-- is over.
local which, keep, most_kept, at_least = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local limit, key = tonumber(ARGV[6]), TAG .. which

-- Jobs that ended before this moment are deleted: by age, or because there are too many, but never younger than
-- at_least.
local function horizon()
  local crowd = 0
  if most_kept <= 0 then
    crowd = NOW + 1
  else
    crowd = tonumber(call('ZREVRANGE', key, whole(most_kept - 1), whole(most_kept - 1), 'WITHSCORES')[2]) or 0
  end
  return '(' .. whole(math.min(math.max(NOW - keep, crowd), NOW - at_least))
end

local before = (key == KEEP_UNTIL or key == KEY_UNTIL) and whole(NOW) or horizon()
local ids = call('ZRANGEBYSCORE', key, '-inf', before, 'LIMIT', 0, limit)
local gone = 0
preload(ids)
for _, id in ipairs(ids) do
  local head = heads[id]
  local window = window_of(id, head)
  if key == KEY_UNTIL then
    call('ZREM', KEY_UNTIL, id)
    enter_history(id, head)
  elseif window then
    call('ZREM', key, id)
    call('ZADD', KEY_UNTIL, window, id)
  else
    leave_history(id, head)
    forget(id, head)
    gone = gone + 1
  end
end
flush()
return {gone, #ids == limit and 1 or 0}
