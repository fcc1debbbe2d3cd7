-- uses: common, rows, lane_fields, wakeups, lanes, limits
-- read_breakers: the rows of breakers
-- args: now, breakers (see swap_breakers() in _breakers.lua) without new numbers
-- returns as swap_breakers
with_limits()
return swap_breakers(cmsgpack.unpack(ARGV[2]))
