-- take_back: a running job that is taken from its worker by a crash, a loss or a retirement. Needs common, rows, moves,
-- finish.
-- gives: take_back_job

-- The final state and the reason for a job that does not run again, or nil. `charge`: see take_back_job().
local function end_of_taken(head, charge)
  local charged, is_known, reason, ends = charge[1], charge[2], charge[4], charge[5]
  if head[MORE].o then return {CANCELLED}, {BY_USER} end
  if head[EARLY] or ends or charged and is_known and head[CRASHES] >= head[CRASH_LIMIT] then return {DEAD}, reason end
end

-- running -> ready, or retrying after a crash that is charged to the job. The body may have begun, so the job cannot
-- expire any more.
local function return_job(id, head, charged, delays)
  local to = {READY}
  leave(id, head)
  head[EXPIRES] = {NONE}
  if charged then
    local delay = delays[math.min(head[CRASHES], #delays)] or 0
    if delay > 0 then to, head[DUE] = {RETRYING}, NOW + delay end
    set_lane(head, head[PARKED])
  end
  enter(id, head, to)
  return to
end

-- Moves the job; the caller has kept its attempt. `charge`: [whether the crash counts for this job, whether it is known
-- that this job caused it, delays, the reason of a dead job, whether the job is dead in any case]. `note`, if there is
-- one, is called before the job ends, with its final state. `later`: a list for finish_all(), which the caller calls,
-- instead of the end at once. Returns the new state.
local function take_back_job(id, head, charge, note, later)
  local order = head[MORE].o
  head[ATTEMPT] = head[ATTEMPT] - 1
  if charge[1] then head[CRASHES] = head[CRASHES] + 1 end
  local to, reason = end_of_taken(head, charge)
  if not to then return return_job(id, head, charge[1], charge[3]) end
  if note then note(to) end
  local ending = {id, head, to, reason, order and order ~= '' and order}
  if later then later[#later + 1] = ending else finish(unpack(ending, 1, 5)) end
  return to
end
