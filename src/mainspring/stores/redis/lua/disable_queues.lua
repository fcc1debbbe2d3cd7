-- uses: common, rows, queues*, wakeups
-- disable_queues: disables queues, or enables them again
-- args: now, how (hold, skip, reject; empty: enable), by whom, then the queues
-- returns the number of queues
with_queues()
local how, by = ARGV[2] ~= '' and ARGV[2], ARGV[3]
for n = 4, #ARGV do
  local row = row_of(ARGV[n])
  if row.how ~= how then
    row.how, row.at, row.by = how, how and NOW or 0, how and by or ''
    put_row(ARGV[n], row)
  end
  if not how then wake_up(ARGV[n]) end
end
return #ARGV - 3
