-- uses: common, heads, settings*, wake
-- set_mode: what queues do from now on; a queue without a mode is open
-- args: now, mode, then the queues
-- returns how many queues there were
with_settings()
local mode = ARGV[2]
for n = 3, #ARGV do
  local kept = kept_of(ARGV[n])
  if kept.mode ~= mode then
    kept.mode, kept.since = mode, mode == 'open' and '0' or whole(NOW)
    keep(ARGV[n], kept)
  end
  if mode ~= 'paused' then wake_up(ARGV[n]) end
end
return #ARGV - 2
