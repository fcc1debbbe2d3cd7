-- dependencies: jobs of a schedule that wait until jobs of other schedules have succeeded. Needs common, rows. A mark
-- (`^@` and a name) says of which schedule a job is. The hash `dependencies` has the names that a schedule waits for,
-- and `dependents` of each of those names has the schedule. `missing` has the names of which no success is recorded
-- since the last start. `awaiting` has the jobs that wait, in order of enqueue; more.w of a head is the schedule for
-- which its job waits. `released` has the job of a schedule that was released last, and its token at that moment.
-- gives: dependencies
local dependencies = {}
local DEPENDENCIES, RELEASED = TAG .. 'dependencies', TAG .. 'released'

local function schedule_of(head)
  for _, mark in ipairs(head[MORE].m or {}) do
    if sub(mark, 1, #{PART}) == {PART} then return sub(mark, #{PART} + 1) end
  end
end

-- This job is the next start of the schedule: the recorded successes are deleted.
local function release(schedule, id, head)
  call('HSET', RELEASED, schedule, id .. struct.pack('>d', head[TOKEN]))
  spread('SADD', named('missing', schedule), cmsgpack.unpack(call('HGET', DEPENDENCIES, schedule)))
end

-- The job stops waiting for the dependencies of its schedule.
local function stop_awaiting(schedule, id)
  call('ZREM', named('awaiting', schedule), id)
  local head = live(id)
  if head then head[MORE].w = nil end
  return head
end

-- The job that has waited longest and has not expired, or nil.
local function first_awaiting(schedule)
  local key = named('awaiting', schedule)
  local start, ids = 0, nil
  repeat
    ids = call('ZRANGE', key, start, start + {AWAITING_READ} - 1)
    preload(ids)
    for _, id in ipairs(ids) do
      local head = live(id)
      if head and not is_expired(head) then return id end
    end
    start = start + {AWAITING_READ}
  until #ids < {AWAITING_READ}
end

-- Releases the first waiting job if every dependency has succeeded. Returns its id, or nil.
local function release_first(schedule)
  if call('EXISTS', named('missing', schedule)) == 1 then return nil end
  local id = first_awaiting(schedule)
  if not id then return nil end
  release(schedule, id, stop_awaiting(schedule, id))
  return id
end

local function await(schedule, place, id, head)
  call('ZADD', named('awaiting', schedule), place, id)
  head[MORE].w, head[DEPS] = schedule, head[DEPS] + 1
end

-- A new job of a schedule with dependencies: it waits, or it is the next start. `place` is set for a job that was
-- enqueued earlier. A forced job never waits.
function dependencies.hold_back(id, head, forced, place)
  local schedule = schedule_of(head)
  if not schedule or call('HEXISTS', DEPENDENCIES, schedule) == 0 then return end
  if not forced and (call('EXISTS', named('missing', schedule)) == 1 or first_awaiting(schedule)) then
    await(schedule, place or call('HINCRBY', META, 'seq', 1), id, head)
  else
    release(schedule, id, head)
  end
end

-- A job that replaces a waiting job of the same key: it waits if the replaced job did, at the same place.
-- `was`: [schedule or nil, place] of the replaced job.
function dependencies.hold_again(id, head, forced, was)
  if forced then
    dependencies.hold_back(id, head, forced)
  elseif was[1] then
    await(was[1], was[2], id, head)
  end
end

-- A job has succeeded: this is recorded for the schedules that wait for its schedule, unless the job that such a
-- schedule released last has not started yet. Returns the jobs that are released.
function dependencies.record_success(head)
  local schedule, freed = schedule_of(head), {}
  local dependents = call('SMEMBERS', named('dependents', schedule))
  table.sort(dependents)
  for _, dependent in ipairs(dependents) do
    local last = call('HGET', RELEASED, dependent)
    local id, token
    if last then id, token = struct.unpack('>c16d', last) end
    last = id and live(id)
    local will_start = last and is_waiting(last) and last[TOKEN] == token and not is_expired(last)
    if not will_start then
      call('SREM', named('missing', dependent), schedule)
      freed[#freed + 1] = release_first(dependent)
    end
  end
  return freed
end

local function set_of(names)
  local set = {}
  for _, name in ipairs(names) do set[name] = true end
  return set
end

-- The schedule has no dependencies from now on. Returns the released jobs, at most `most`, and whether more jobs wait:
-- then the dependencies stay until the next call.
local function remove(schedule, old, most)
  local ids, freed = call('ZRANGE', named('awaiting', schedule), 0, most - 1), {}
  preload(ids)
  for _, id in ipairs(ids) do
    if stop_awaiting(schedule, id) then freed[#freed + 1] = id end
  end
  if call('EXISTS', named('awaiting', schedule)) == 1 then return freed, true end
  call('HDEL', DEPENDENCIES, schedule)
  call('HDEL', RELEASED, schedule)
  call('DEL', named('missing', schedule))
  for _, name in ipairs(old) do call('SREM', named('dependents', name), schedule) end
  return freed, false
end

-- The schedule waits for these schedules from now on. Returns the same as remove().
function dependencies.set(schedule, after, most)
  local old = call('HGET', DEPENDENCIES, schedule)
  old = old and cmsgpack.unpack(old) or {}
  if #after == 0 then return remove(schedule, old, most) end
  local had, has = set_of(old), set_of(after)
  call('HSET', DEPENDENCIES, schedule, cmsgpack.pack(after))
  for _, name in ipairs(after) do
    if not had[name] then
      call('SADD', named('missing', schedule), name)
      call('SADD', named('dependents', name), schedule)
    end
  end
  for _, name in ipairs(old) do
    if not has[name] then
      call('SREM', named('missing', schedule), name)
      call('SREM', named('dependents', name), schedule)
    end
  end
  return {release_first(schedule)}, false
end
