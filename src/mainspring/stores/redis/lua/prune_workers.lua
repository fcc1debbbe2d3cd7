-- uses: common
-- prune of workers: deletes the rows of workers that are marked lost and sent no heartbeat for a long time
-- args: now, keep_workers
-- returns the number of deleted rows
local gone, before = 0, NOW - tonumber(ARGV[2])
for _, worker in ipairs(call('SMEMBERS', TAG .. 'workers')) do
  local row = call('HMGET', named('worker', worker), 'lost', 'seen')
  if row[1] == '1' and tonumber(row[2]) < before then
    call('SREM', TAG .. 'workers', worker)
    call('DEL', named('worker', worker))
    gone = gone + 1
  end
end
return gone
