-- uses: jobs, keys, history
-- prune: deletes ended jobs past their retention, the oldest first, a bounded number in one script
-- args: now, which set (key_until, keep_until, done, died), keep, keep_count, keep_at_least, how many jobs to look at
-- returns the number of deleted jobs, and whether there may be more
-- A job whose unique key still counts moves to key_until, out of the way of the others, and comes back when its window
-- is over. So does the root of a flow with live jobs, or with jobs whose keys still count.
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
local gone, is_cut = 0, false

-- Deletes the ended jobs of a flow before its root. Returns until when the root has to stay because of the others.
local function prune_flow(root)
  local mark, stays = flow_mark(root), nil
  if live_jobs_of(mark) > 0 then return NOW end
  local members = call('ZRANGE', named('mark', mark), 0, limit - gone)
  preload(members)
  for _, id in ipairs(members) do
    local window = window_of(id, heads[id])
    if id ~= root and window then
      stays = math.max(stays or NOW, window)
    elseif id ~= root and gone < limit then
      remove(id, heads[id])
      gone = gone + 1
    end
  end
  is_cut = not stays and call('ZCARD', named('mark', mark)) > (heads[root][MORE].f and 1 or 0)
  return stays
end

local function prune_job(id, head)
  local stays = window_of(id, head)
  if not stays and head[MORE].j then
    with_flows()
    stays = prune_flow(id)
  end
  if stays then
    call('ZREM', key, id)
    call('ZADD', KEY_UNTIL, stays, id)
  elseif gone < limit and not is_cut then
    remove(id, head)
    gone = gone + 1
  else
    is_cut = true
  end
end

preload(ids)
for _, id in ipairs(ids) do
  if key == KEY_UNTIL then
    call('ZREM', KEY_UNTIL, id)
    enter_history(id, heads[id])
  elseif not is_cut then
    prune_job(id, heads[id])
  end
end
flush()
return {gone, (is_cut or #ids == limit) and 1 or 0}
