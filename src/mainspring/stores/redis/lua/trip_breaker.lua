-- uses: jobs
-- trip_breaker: opens a breaker for a time, or until it is reset if there is no time; a time of 0 closes it
-- args: now, breaker, microseconds or empty
-- returns whether the breaker exists
with_limits()
local name, span = ARGV[2], tonumber(ARGV[3])
local limit = capacity_of(name).limit
if not limit or limit.kind ~= {LIMIT_BREAKER} then return 0 end
local breaker = close_breaker({})
pass_when_full()
if span ~= 0 then breaker.till, breaker.opened, breaker.tripped = span and NOW + span or {FOREVER}, NOW, true end
put_breaker(name, breaker)
wake_for_unkeyed(name)
flush()
return 1
