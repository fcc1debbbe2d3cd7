-- uses: common, wake
-- listen: a listener says that it is there, again and again; those who have not for long are forgotten
-- args: now, listener, queues [...]
-- returns how many queues
-- Whatever a test does to our clock, a connection lives by the server's.
local time = call('TIME')
local now, listener, queues = time[1] * 1000 + math.floor(time[2] / 1000), ARGV[2], cmsgpack.unpack(ARGV[3])
for _, queue in ipairs(queues) do
  local key = named('listeners', queue)
  call('ZREMRANGEBYSCORE', key, '-inf', now - LISTENS)
  call('ZADD', key, now, listener)
  call('PEXPIRE', key, LISTENS)
end
return #queues
