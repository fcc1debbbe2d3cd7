-- uses: common, rows, queues*
-- configure_queue: replaces the declared settings of a queue, or those given by hand
-- args: now, queue, which (declared or given), settings as JSON or empty to remove them
-- returns 1 if the queue has a max_depth, so that its waiting jobs have to be counted
with_queues()
local queue, which, settings = ARGV[2], ARGV[3], ARGV[4]
local row = row_of(queue)
row[which] = settings ~= '' and settings
put_row(queue, row)
return (settings_in(row).max_depth or 0) > 0 and 1 or 0
