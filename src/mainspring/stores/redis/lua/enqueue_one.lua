-- uses: common, wakeups
-- enqueue of one plain job: (new) -> ready
-- args: now, line, index, queue, field of counts, the beginning of the stored job, its id, the rest of the stored job
-- returns 1 if the job is new, else {0}; or a refusal: {REFUSED_DRAINING} or {REFUSED_SETTINGS}, and the queue
local line, index, queue, field, head, id, rest = unpack(ARGV, 2)
local draining = queues_in({QUEUE_DRAINING}, {[queue] = true})
if draining and draining[queue] == {REFUSED_SETTINGS} then return {{REFUSED_SETTINGS}, queue} end
if draining and not call('ZSCORE', IDS, id) then return {{REFUSED_DRAINING}, queue} end
if call('ZADD', IDS, 'NX', '0', id) == 0 then return {0} end
local seq = take_seqs(1) + 1
local placed = struct.pack('>d', seq)
local raw = sub(head, 1, {REST_END}) .. placed .. sub(head, {PRIORITY_AT}, {DEPS_END}) .. NOW_PACKED
  .. sub(head, {DUE_AT}) .. rest
call('HSET', JOBS, id, raw)
if call('RPUSH', named('line', line), id .. placed) == 1 then
  call('ZADD', named('index', index), place(tonumber(string.match(line, '^-?%d+')), seq), line)
end
call('HINCRBY', COUNTS, field, 1)
wake_up(queue)
return 1
