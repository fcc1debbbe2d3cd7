-- uses: common, wake
-- notify: wake those who listen to these queues
-- args: now, queues [...]
-- returns how many queues
local queues = cmsgpack.unpack(ARGV[2])
for _, queue in ipairs(queues) do wake_up(queue) end
return #queues
