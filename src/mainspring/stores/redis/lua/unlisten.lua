-- uses: common
-- unlisten: removes a listener
-- args: now, listener, queues [...]
-- returns the number of queues that had it
local known = 0
for _, queue in ipairs(cmsgpack.unpack(ARGV[3])) do
  known = known + call('ZREM', named('listeners', queue), ARGV[2])
end
return known
