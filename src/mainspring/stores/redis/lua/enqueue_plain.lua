-- uses: common, wakeups
-- enqueue of plain jobs: (new) -> ready, for jobs that only wait for their turn; all jobs of the batch or none
-- args: now, [kinds [line, index, queue, field of counts], runs (number of a kind, how many jobs in a row are of this
--       kind)], for each kind the beginning of its stored jobs, for each job its id (no id occurs twice), for each job
--       the rest of it
-- returns 1 if all jobs are new, else 1 or 0 for each; or a refusal: {REFUSED_DRAINING} or {REFUSED_SETTINGS}, and the
--         queue
local kinds, runs = unpack(cmsgpack.unpack(ARGV[2]))
local before = 2 + #kinds
local jobs = (#ARGV - before) / 2

-- A draining queue refuses the batch if one of its jobs is new.
local function refusal_of()
  local asked = {}
  for _, kind in ipairs(kinds) do asked[kind[3]] = true end
  local draining = queues_in({QUEUE_DRAINING}, asked)
  if not draining then return nil end
  for queue, word in pairs(draining) do
    if word == {REFUSED_SETTINGS} then return {{REFUSED_SETTINGS}, queue} end
  end
  local n = before
  for run = 1, #runs, 2 do
    local queue = kinds[runs[run]][3]
    for _ = 1, runs[run + 1] do
      n = n + 1
      if draining[queue] and not call('ZSCORE', IDS, ARGV[n]) then return {{REFUSED_DRAINING}, queue} end
    end
  end
end

-- checks
local refusal = refusal_of()
if refusal then return refusal end

-- writes; the first one needs memory, so a full store refuses here
local entries = {}
for n = 1, jobs do entries[2 * n - 1], entries[2 * n] = '0', ARGV[before + n] end
local new, said = call('ZADD', IDS, 'NX', unpack(entries)), nil
if new < jobs then
  said = {}
  for n = 1, jobs do said[n] = 1 - call('HEXISTS', JOBS, ARGV[before + n]) end
  if new == 0 then return said end
end
local seq, n = take_seqs(new), 0
local heads, lists, counts, queues, pack = {}, {}, {}, {}, struct.pack
for run = 1, #runs, 2 do
  local line, index, queue, field = unpack(kinds[runs[run]])
  local head = ARGV[2 + runs[run]]
  local first = sub(head, 1, {REST_END})
  local second = sub(head, {PRIORITY_AT}, {DEPS_END}) .. NOW_PACKED .. sub(head, {DUE_AT})
  local list = lists[line]
  if not list then
    list = {}
    lists[line] = list
  end
  local was = #list
  for _ = 1, runs[run + 1] do
    n = n + 1
    if not said or said[n] == 1 then
      seq = seq + 1
      local id, placed = ARGV[before + n], pack('>d', seq)
      list[#list + 1] = id .. placed
      heads[#heads + 1] = id
      heads[#heads + 1] = first .. placed .. second .. ARGV[before + jobs + n]
    end
  end
  if #list > was then
    list.index, list.first = index, list.first or seq - #list + 1
    counts[field] = (counts[field] or 0) + #list - was
    queues[queue] = true
  end
end
call('HSET', JOBS, unpack(heads))
for line, list in pairs(lists) do
  if list.first and call('RPUSH', named('line', line), unpack(list)) == #list then
    local priority = tonumber(string.match(line, '^-?%d+'))
    call('ZADD', named('index', list.index), place(priority, list.first), line)
  end
end
add_counts(counts)
for queue in pairs(queues) do wake_up(queue) end
return said or 1
