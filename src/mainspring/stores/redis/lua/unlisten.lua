-- uses: common
-- unlisten: a listener is no more
-- args: now, listener, queues [...]
-- returns how many queues knew it
local known = 0
for _, queue in ipairs(cmsgpack.unpack(ARGV[3])) do
  known = known + call('ZREM', named('listeners', queue), ARGV[2])
end
return known
