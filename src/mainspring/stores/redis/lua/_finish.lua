-- finish: the one way into a final state. Needs common, rows, dependencies, moves, follow_ups.
-- A job that ends moves to history; its children are freed or end with it; its follow-up jobs are inserted; a success
-- is recorded for the schedules that wait for it.
-- gives: DONE, DIED, KEEP_UNTIL, KEY_UNTIL, ERRORS, resolve, enter_history, finish_all, finish, keep_attempt
local DONE, DIED, KEEP_UNTIL, KEY_UNTIL = TAG .. 'done', TAG .. 'died', TAG .. 'keep_until', TAG .. 'key_until'
local ERRORS = TAG .. 'errors'

-- Frees the children of a job that ended. Adds to `ending` the children that end with it.
local function resolve(id, head, succeeded, ending)
  if not head[CHILDREN] then return end
  local edges = call('HGETALL', named('children', id))
  call('DEL', named('children', id))
  head[CHILDREN] = false
  for n = 1, #edges, 2 do
    local child = live(edges[n])
    if child and child[STATE] == {BLOCKED} then
      if edges[n + 1] == {EDGE_FAIL} and not succeeded then
        child[DEPS], changed[edges[n]] = child[DEPS] - 1, true
        ending[#ending + 1] = {edges[n], child, {CANCELLED}, {PARENT}}
      else
        unblock(edges[n], child)
      end
    end
  end
end

-- The sorted set in which prune() finds an ended job.
local function enter_history(id, head)
  if head[STATE] == {DEAD} then
    call('ZADD', DIED, head[ENDED], id)
  elseif head[MORE].k then
    call('ZADD', KEEP_UNTIL, whole(head[ENDED] + head[MORE].k), id)
  else
    call('ZADD', DONE, head[ENDED], id)
  end
end

-- Ends each job of `ending` [id, head, state, reason, note], and the children that end with it. A list instead of a
-- recursion: a chain of children may be long.
local function finish_all(ending)
  local at = 1
  while ending[at] do
    local id, head, state, reason, note = unpack(ending[at], 1, 5)
    at = at + 1
    if head[STATE] <= {RUNNING} then
      local more = head[MORE]
      leave(id, head)
      more.r, more.n, more.o = reason or nil, note or nil, nil
      head[STATE], head[ENDED], head[DEPS], head[DUE] = state, NOW, 0, {NONE}
      heads[id], changed[id] = head, true
      count(head, 1)
      enter_history(id, head)
      if head[FOLLOWED] then insert_follow_ups(id, head, state) end
      resolve(id, head, state == {SUCCEEDED}, ending)
      if head[DEPENDENT] and state == {SUCCEEDED} then
        with_dependencies()
        for _, freed in ipairs(dependencies.record_success(head)) do unblock(freed, live(freed)) end
      end
    end
  end
end

local function finish(id, head, state, reason, note) finish_all({ {id, head, state, reason, note} }) end

-- Keeps the row of an ended attempt. `acked`: true if its worker acknowledged it, false after a rescue or a retirement.
local function keep_attempt(id, head, outcome, acked, error)
  local key = named('attempts', id)
  local packed = cmsgpack.pack({
    head[TOKEN], head[EPOCH], head[ATTEMPT], head[WORKER], head[STARTED], NOW, outcome, acked, error and true or false,
  })
  local n = call('RPUSH', key, struct.pack('>I4c0', #packed, packed) .. (error or ''))
  if n > {ATTEMPTS_KEPT} then call('LPOP', key) end
end
