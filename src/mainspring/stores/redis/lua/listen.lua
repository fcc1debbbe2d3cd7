-- uses: common, wakeups
-- listen: a listener reports that it listens; listeners without a report for {LISTENER_TTL} milliseconds are removed
-- args: now, listener, queues [...]
-- returns the number of queues
-- The clock of the server is used even if a test sets ours: connections live by the clock of the server.
local time = call('TIME')
local now = time[1] * {MILLISECOND} + math.floor(time[2] / {MILLISECOND})
local listener, queues = ARGV[2], cmsgpack.unpack(ARGV[3])
for _, queue in ipairs(queues) do
  local key = named('listeners', queue)
  call('ZREMRANGEBYSCORE', key, '-inf', now - {LISTENER_TTL})
  call('ZADD', key, now, listener)
  call('PEXPIRE', key, {LISTENER_TTL})
end
return #queues
