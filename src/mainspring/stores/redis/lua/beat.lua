-- uses: common
-- beat: adds one to the heartbeat number of each worker; makes the row of a worker that registers and has none
-- args: now, then for each heartbeat: worker, registration [queues, tasks, lease] or empty, info
-- returns the new number of each worker, 0 for a worker that has no row or is marked lost
local numbers = {}
pass_when_full()
for first = 2, #ARGV, 3 do
  local worker, registration = ARGV[first], ARGV[first + 1]
  local key = named('worker', worker)
  local row = call('HMGET', key, 'number', 'lost')
  local number = 0
  if row[1] and row[2] ~= '1' then
    number = call('HINCRBY', key, 'number', 1)
    call('HSET', key, 'seen', NOW)
    if registration ~= '' then call('HSET', key, 'info', ARGV[first + 2]) end
  elseif not row[1] and registration ~= '' then
    local queues, tasks, lease = unpack(cmsgpack.unpack(registration))
    number = 1
    call(
      'HSET', key, 'number', 1, 'turn', 0, 'lost', 0, 'started', NOW, 'seen', NOW, 'lease', lease,
      'queues', cmsgpack.pack(queues), 'tasks', cmsgpack.pack(tasks), 'info', ARGV[first + 2]
    )
    call('SADD', TAG .. 'workers', worker)
  end
  numbers[#numbers + 1] = number
end
return numbers
