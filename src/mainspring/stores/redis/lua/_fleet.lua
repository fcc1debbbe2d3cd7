-- takeback: the running jobs of a worker that is over. Needs common, heads, moves, breakers.
local function by_seq(a, b) return a[2][SEQ] < b[2][SEQ] end

local function has_buckets(held)
  for _, pair in ipairs(held) do
    if pair[2][MORE].b then return true end
  end
end

-- Moves all jobs of `worker` out of running, by cause (lost, crashed, interrupted).
-- Returns the ids that are now ready, retrying, dead, cancelled.
local function take_back(worker, cause, delays)
  local ids = call('SMEMBERS', named('running', worker))
  preload(ids)
  local held, blamed = {}, 0
  for n, id in ipairs(ids) do
    held[n] = {id, heads[id]}
    local guilt = guilt_of(heads[id])
    if guilt > 0 and (blamed == 0 or guilt < blamed) then blamed = guilt end
  end
  table.sort(held, by_seq)
  if cause ~= 'interrupted' and has_buckets(held) then
    with_rooms()
    with_breakers()
    hear_loss(held, cause)
    hear_all()
  end
  local moved = {[READY] = {}, [RETRYING] = {}, [DEAD] = {}, [CANCELLED] = {}}
  for _, pair in ipairs(held) do
    local id, head = pair[1], pair[2]
    local charged = cause == 'crashed' and guilt_of(head) == blamed
    local known = guilt_of(head) == 2 or #held == 1 -- only then is it known whose crash it was
    local to, reason, order = READY, nil, head[MORE].o
    keep_attempt(id, head, cause, false)
    head[ATTEMPT] = head[ATTEMPT] - 1
    if charged then head[CRASHES] = head[CRASHES] + 1 end
    if order then
      to, reason = CANCELLED, 'by_user'
    elseif head[EARLY] or charged and known and head[CRASHES] >= head[CRASH_LIMIT] then
      to, reason = DEAD, 'crashed'
    end
    if reason then
      finish(id, head, to, reason, order and order ~= '' and order)
    else
      leave(id, head)
      if charged then
        local delay = delays[math.min(head[CRASHES], #delays)] or 0
        if delay > 0 then to, head[DUE] = RETRYING, NOW + delay end
        set_lane(head, head[PARKED])
      end
      enter(id, head, to)
    end
    head[WORKER] = '' -- the owner is forgotten, so that its own late ack is told "stale"
    moved[to][#moved[to] + 1] = id
  end
  return {1, moved[READY], moved[RETRYING], moved[DEAD], moved[CANCELLED]}
end
