-- retry: an ended job gets a new epoch. Needs common, rows, queues, moves, finish, keys, history.
-- gives: rival, renew
local bounded = {}

-- Another job that holds the key of this job, and a job of the key that has expired and must end first.
local function rival(id, head)
  if not head[MORE].u then return nil end
  local holder, expired = holder_of(head[MORE].u)
  return holder ~= id and holder or nil, expired ~= id and expired or nil
end

-- Whether the queue has a max_depth.
local function is_bounded(queue)
  if bounded[queue] == nil then
    with_queues()
    bounded[queue] = (settings_in(row_of(queue)).max_depth or 0) > 0
  end
  return bounded[queue]
end

-- A new epoch that cannot expire, in the lane of a job that never crashed. The token goes on growing and the last
-- worker stays readable. The caller enters the job into a state. Returns the job that holds its key, if there is one.
local function renew(id, head)
  local holder, expired = rival(id, head)
  if holder then return holder end
  if expired then finish(expired, live(expired), {CANCELLED}, {EXPIRED}) end
  local last, _, rest = key_entry(head[MORE].u or '')
  if head[MORE].u and last ~= id then
    local mode = unpack_more(rest)
    take_key(head[MORE].u, id, 0, mode ~= {KEY_KEPT} and mode > 0 and pack_more(mode, 0))
  end
  leave_history(id, head)
  if head[ERROR] then call('HDEL', ERRORS, id) end
  if head[RESULT_APART] then call('HDEL', RESULTS, id) end
  call('HDEL', PROGRESS, id)
  call('UNLINK', named('items', id))
  local more = head[MORE]
  more.r, more.e, more.n, more.d = nil, nil, nil, not more.j and is_bounded(queue_of(head)) or nil
  head[EPOCH], head[ATTEMPT], head[CRASHES], head[STARTED] = head[EPOCH] + 1, 0, 0, {NONE}
  head[ENDED], head[RAN], head[RESULT], head[ERROR], head[RESULT_APART] = {NONE}, {NONE}, false, false, false
  head[EXPIRES] = {NONE}
  set_lane(head, false)
end
