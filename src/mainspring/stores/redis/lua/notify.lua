-- uses: common, wakeups
-- notify: wakes the listeners of queues
-- args: now, queues [...]
-- returns the number of queues
local queues = cmsgpack.unpack(ARGV[2])
for _, queue in ipairs(queues) do wake_up(queue) end
return #queues
