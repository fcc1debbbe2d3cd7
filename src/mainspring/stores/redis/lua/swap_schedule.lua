-- uses: common, wakeups, schedules
-- swap_schedule without jobs: replaces the row of a schedule if it has the expected revision
-- args: now, the swap (see _schedules.lua)
-- returns the word swapped, whether it was done, now, the revision of the row, an occurrence that has another job or
--         false
local swap = read_swap(ARGV[2])
local refusal = refusal_of(swap)
if refusal then return refusal end
local reply = replace_row(swap)
wake_up('')
return reply
