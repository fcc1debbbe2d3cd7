-- forget: a job and all that is kept of it go. Needs common, heads, moves, uniq.
local PROGRESS = TAG .. 'progress'

-- The job is in no state any more; its indexes were left before.
local function forget(id, head)
  call('HDEL', JOBS, id)
  call('ZREM', IDS, id)
  if head[APART] then call('HDEL', RECORDS, id) end
  if head[ERROR] then call('HDEL', ERRORS, id) end
  if head[FAR] then call('HDEL', RESULTS, id) end
  if head[FOLLOWED] then call('HDEL', FOLLOWS, id) end
  for _, mark in ipairs(head[MORE].m or {}) do call('ZREM', named('mark', mark), id) end
  drop_key(id, head)
  call('HDEL', PROGRESS, id)
  call('UNLINK', named('attempts', id), named('logs', id), named('items', id))
  heads[id], changed[id] = false, nil
end

local function leave_history(id, head)
  count(head, -1)
  if head[MORE].u then call('ZREM', HELD, id) end
  if head[STATE] == DEAD then
    call('ZREM', DIED, id)
  elseif head[MORE].k then
    call('ZREM', DROPS, id)
  else
    call('ZREM', DONE, id)
  end
end
