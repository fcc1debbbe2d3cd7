-- finish: the one way into a final state. Needs common, rows, moves, follow_ups, flows.
-- A job that ends moves to history; its children are freed or end with it; its follow-up jobs are inserted.
-- gives: DONE, DIED, FLOW_DIED, KEEP_UNTIL, KEY_UNTIL, ERRORS, enter_history, finish_all, finish, keep_attempt
local DONE, DIED, KEEP_UNTIL, KEY_UNTIL = TAG .. 'done', TAG .. 'died', TAG .. 'keep_until', TAG .. 'key_until'
local FLOW_DIED, ERRORS = TAG .. 'flow_died', TAG .. 'errors'

-- The sorted set in which prune() finds an ended job. A job that is kept with its flow is found by its mark; queries
-- find dead jobs in a sorted set.
local function enter_history(id, head)
  if head[MORE].k == {FLOW_KEEP} then
    if head[STATE] == {DEAD} then call('ZADD', FLOW_DIED, head[ENDED], id) end
  elseif head[STATE] == {DEAD} then
    call('ZADD', DIED, head[ENDED], id)
  elseif head[MORE].k then
    call('ZADD', KEEP_UNTIL, whole(head[ENDED] + head[MORE].k), id)
  else
    call('ZADD', DONE, head[ENDED], id)
  end
end

-- Ends each job of `ending` [id, head, state, reason, note, whether a join ends by its members], and the children that
-- end with it. A list instead of a recursion: a chain of children may be long.
local function finish_all(ending)
  local at = 1
  while ending[at] do
    local id, head, state, reason, note, by_members = unpack(ending[at], 1, 6)
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
      if head[CHILDREN] or more.j then
        with_flows()
        flows.end_in_flow(id, head, ending, by_members)
      end
    end
  end
end

local function finish(id, head, state, reason, note) finish_all({ {id, head, state, reason, note} }) end

-- Keeps the row of an ended attempt. `acked`: true if its worker acknowledged it, false after a rescue or a retirement.
-- `ran`: microseconds that the body ran, if its worker reported them.
local function keep_attempt(id, head, outcome, acked, error, ran)
  local key = named('attempts', id)
  local packed = cmsgpack.pack({
    head[TOKEN], head[EPOCH], head[ATTEMPT], head[WORKER], head[STARTED], NOW, outcome, acked, error and true or false,
    ran or false,
  })
  local n = call('RPUSH', key, struct.pack('>I4c0', #packed, packed) .. (error or ''))
  if n > {ATTEMPTS_KEPT} then call('LPOP', key) end
end
