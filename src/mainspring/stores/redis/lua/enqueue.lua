-- uses: common, wake
-- enqueue: (new) -> ready, for jobs on which nothing hangs; all of the batch or nothing
-- args: now, lines [line, group, queue, counted as], then for each job: line (2 bytes), id, job (see heads.py)
-- returns 1 when all are new, else 1 or 0 for each; or the queue that takes no more
local lines = cmsgpack.unpack(ARGV[2])
local ids, said, new = {}, {}, 0

-- checks
local asked = {}
for _, line in ipairs(lines) do asked[line[3]] = true end
local draining = queues_in('draining', asked)
for n = 3, #ARGV do ids[n - 2] = sub(ARGV[n], 3, 18) end
local known = call('ZMSCORE', IDS, unpack(ids))
local seen = {}
for n, id in ipairs(ids) do
  said[n] = (known[n] or seen[id]) and 0 or 1
  seen[id] = true
  new = new + said[n]
  if draining and said[n] == 1 then
    local high, low = byte(ARGV[n + 2], 1, 2)
    local queue = lines[high * 256 + low + 1][3]
    if draining[queue] then return {'draining', queue} end
  end
end
if new == 0 then return said end

-- writes; the first one needs memory, so that a full store refuses here
local seq = call('HINCRBY', META, 'seq', new) - new
local jobs, entries, lists, counts, first = {}, {}, {}, {}, {}
for n, id in ipairs(ids) do
  if said[n] == 1 then
    seq = seq + 1
    local word, placed = ARGV[n + 2], struct.pack('>d', seq)
    local high, low = byte(word, 1, 2)
    local at = high * 256 + low + 1
    local list = lists[at]
    if not list then
      list = {}
      lists[at], first[at] = list, seq
    end
    list[#list + 1] = id .. placed
    jobs[#jobs + 1], jobs[#jobs + 2] = id,
      sub(word, 19, 22) .. placed .. sub(word, 31, 76) .. NOW_PACKED .. sub(word, 85)
    entries[#entries + 1], entries[#entries + 2] = '0', id
  end
end
spread('HSET', JOBS, jobs)
spread('ZADD', IDS, entries)
local queues = {}
for at, list in pairs(lists) do
  local line, group, queue, field = unpack(lines[at])
  local key = named('ready', line)
  local length = call('RPUSH', key, unpack(list))
  if length == #list then
    local priority = tonumber(string.match(line, '^-?%d+'))
    call('ZADD', named('heads', group), place(priority, first[at]), line)
  end
  counts[field] = (counts[field] or 0) + #list
  queues[queue] = true
end
add_counts(counts)
for queue in pairs(queues) do wake_up(queue) end
return new == #ids and 1 or said
