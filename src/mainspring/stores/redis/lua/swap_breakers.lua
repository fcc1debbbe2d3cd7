-- uses: jobs
-- swap_breakers: writes or reads the rows of breakers
-- args: now, breakers (see swap_breakers() in _breakers.lua)
-- returns the breakers that are declared, in the fields of StoredBreaker
with_limits()
local found = swap_breakers(cmsgpack.unpack(ARGV[2]))
flush()
return found
