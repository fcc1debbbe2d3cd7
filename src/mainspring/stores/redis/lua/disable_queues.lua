-- uses: common, heads, settings*, wake
-- disable: switch queues off, or on again
-- args: now, how (hold, skip, reject; nothing: on), by whom, then the queues
-- returns how many queues there were
with_settings()
local how, by = ARGV[2] ~= '' and ARGV[2], ARGV[3]
for n = 4, #ARGV do
  local kept = kept_of(ARGV[n])
  if kept.how ~= how then
    kept.how, kept.at, kept.by = how, how and NOW or 0, how and by or ''
    keep(ARGV[n], kept)
  end
  if not how then wake_up(ARGV[n]) end
end
return #ARGV - 3
