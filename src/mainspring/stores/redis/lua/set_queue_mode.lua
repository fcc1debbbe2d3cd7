-- uses: common, rows, queues*, wakeups
-- set_queue_mode: sets the mode of queues; a queue without a stored mode is open
-- args: now, mode, then the queues
-- returns the number of queues
with_queues()
local mode = ARGV[2]
for n = 3, #ARGV do
  local row = row_of(ARGV[n])
  if row.mode ~= mode then
    row.mode, row.since = mode, mode == {QUEUE_OPEN} and '0' or whole(NOW)
    put_row(ARGV[n], row)
  end
  if mode ~= {QUEUE_PAUSED} then wake_up(ARGV[n]) end
end
return #ARGV - 2
