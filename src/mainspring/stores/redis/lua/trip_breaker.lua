-- uses: common, heads, wake, lines, rooms*, parking*, moves
-- trip: a breaker is open from now on for a time, without one until it is reset; for a time of 0 it is closed
-- args: now, breaker, how long or empty
-- returns whether there is such a breaker
with_rooms()
local name, span = ARGV[2], tonumber(ARGV[3])
local limit = room_of(name).limit
if not limit or limit.kind ~= 'breaker' then return 0 end
local switch = close_switch({})
pass_when_full()
if span ~= 0 then switch.till, switch.opened, switch.tripped = span and NOW + span or FOREVER, NOW, true end
put_switch(name, switch)
wake_waiting(name)
flush()
return 1
