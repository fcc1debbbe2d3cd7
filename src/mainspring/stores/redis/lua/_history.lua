-- history: an ended job leaves history, or is deleted with all that is stored of it. Needs common, rows, moves, finish,
-- keys.
local PROGRESS = TAG .. 'progress'

-- Deletes a job. It has left its indexes before.
local function forget(id, head)
  call('HDEL', JOBS, id)
  call('ZREM', IDS, id)
  if head[RECORD_APART] then call('HDEL', RECORDS, id) end
  if head[ERROR] then call('HDEL', ERRORS, id) end
  if head[RESULT_APART] then call('HDEL', RESULTS, id) end
  if head[FOLLOWED] then call('HDEL', FOLLOW_UPS, id) end
  for _, mark in ipairs(head[MORE].m or {}) do call('ZREM', named('mark', mark), id) end
  drop_key(id, head)
  call('HDEL', PROGRESS, id)
  call('UNLINK', named('attempts', id), named('logs', id), named('items', id))
  heads[id], changed[id] = false, nil
end

local function leave_history(id, head)
  count(head, -1)
  if head[MORE].u then call('ZREM', KEY_UNTIL, id) end
  if head[STATE] == {DEAD} then
    call('ZREM', DIED, id)
  elseif head[MORE].k then
    call('ZREM', KEEP_UNTIL, id)
  else
    call('ZREM', DONE, id)
  end
end
