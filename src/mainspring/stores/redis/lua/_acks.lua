-- acks: what a worker says of its attempts. Needs common, moves.
-- One ack: [token, outcome, to, reason, delay, due, refund, park, has result, has error]; its bytes are three
-- arguments: id, result, error.
local A_TOKEN, A_OUTCOME, A_TO, A_REASON, A_DELAY, A_DUE, A_REFUND, A_PARK, A_RESULT, A_ERROR =
  1, 2, 3, 4, 5, 6, 7, 8, 9, 10

-- An ack that finds no lease was applied before if the owner's own row says the same; else it comes too late.
local function said_before(id, ack, worker)
  local raw = call('HGET', named('attempts', id), whole(ack[A_TOKEN]))
  if raw then
    local row = cmsgpack.unpack(raw)
    return row[8] and row[4] == worker and row[7] == ack[A_OUTCOME]
  end
  local head = ack[A_OUTCOME] == 'succeeded' and ended(id)
  return head and head[STATE] == 'succeeded' and head[TOKEN] == ack[A_TOKEN] and head[WORKER] == worker
end

local function settle(id, head, ack, result, error)
  error = ack[A_ERROR] and error
  local to, reason = ack[A_TO], ack[A_REASON] or false
  pass_when_full()
  if head[ORDER] then to, reason = 'cancelled', 'by_user' end
  if to ~= 'succeeded' then keep_attempt(id, head, ack[A_OUTCOME], true, error) end
  if ack[A_REFUND] then head[ATTEMPT] = head[ATTEMPT] - 1 end
  if error then gather('HSET', ERRORS, id, error) end
  if to == 'succeeded' then
    if ack[A_RESULT] then gather('HSET', RESULTS, id, result) end
    if not error then gather('HDEL', ERRORS, id) end
  end
  if not WAITING[to] then return finish(id, head, to, reason) end
  leave(id, head)
  head[DUE] = ack[A_DUE] or (NOW + ack[A_DELAY])
  if to == 'ready' and ack[A_PARK] then head[LANE] = lane_for(head, true) end
  enter(id, head, to)
end

-- Applies acks of `worker`; `first` is the argument where their bytes begin. Returns already and stale.
local function settle_all(worker, acks, first)
  local already, stale = {}, {}
  for n, ack in ipairs(acks) do
    local id, result, error = ARGV[first], ARGV[first + 1], ARGV[first + 2]
    first = first + 3
    local head = live(id)
    if head and head[STATE] == 'running' and head[TOKEN] == ack[A_TOKEN] and head[WORKER] == worker then
      settle(id, head, ack, result, error)
    elseif said_before(id, ack, worker) then
      already[#already + 1] = {id, ack[A_TOKEN]}
    else
      stale[#stale + 1] = {id, ack[A_TOKEN]}
    end
  end
  return already, stale
end
