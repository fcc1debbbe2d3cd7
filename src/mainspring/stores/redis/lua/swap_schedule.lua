-- uses: common, wake, schedules
-- swap without jobs: the row of a schedule is exchanged if it has the number that was seen
-- args: now, the exchange (see _schedules.lua)
-- returns the word swapped, whether it was done, now, the number that the row has, the occurrence that has another job
local swap = read_swap(ARGV[2])
local refusal = refusal_of(swap)
if refusal then return refusal end
local said = exchange(swap)
wake_up('')
return said
