-- uses: common, wake
-- set_mode: what queues do from now on; a queue without a mode is open
-- args: now, mode, then the queues
-- returns how many queues there were
local mode, key = ARGV[2], TAG .. 'modes'
for n = 3, #ARGV do
  local queue = ARGV[n]
  local before = string.match(call('HGET', key, queue) or '', '^%a+')
  if mode == 'open' then
    call('HDEL', key, queue)
  elseif before ~= mode then
    call('HSET', key, queue, mode .. ':' .. whole(NOW))
  end
  if mode ~= 'paused' then wake_up(queue) end
end
return #ARGV - 2
