-- uses: common, wake
-- enqueue: (new) -> ready, for one job on which nothing hangs
-- args: now, line, group, queue, counted as, the beginning of the job, its id, its rest
-- returns 1 when it is new, else 0; or the queue that takes no more, or that is for the longer way
local line, group, queue, field, head, id, rest = unpack(ARGV, 2)
local draining = queues_in('draining', {[queue] = true})
if draining and draining[queue] == 'special' then return {'special', queue} end
if draining and not call('ZSCORE', IDS, id) then return {'draining', queue} end
if call('ZADD', IDS, 'NX', '0', id) == 0 then return {0} end
local seq = call('HINCRBY', META, 'seq', 1)
local placed = struct.pack('>d', seq)
call('HSET', JOBS, id, sub(head, 1, 4) .. placed .. sub(head, 13, 58) .. NOW_PACKED .. sub(head, 67) .. rest)
if call('RPUSH', named('ready', line), id .. placed) == 1 then
  call('ZADD', named('heads', group), place(tonumber(string.match(line, '^-?%d+')), seq), line)
end
call('HINCRBY', COUNTS, field, 1)
wake_up(queue)
return 1
