-- uses: common, heads, settings*, wake, lines, rooms*, parking*, moves, spending, guests
-- give: the places of a guest are free again
-- args: now, guest, what it really cost by limit [limit, cost], how long its rates let nothing through
-- returns whether it had any
with_rooms()
local guest = ARGV[2]
local held = is_there(guest)
pass_when_full()
local buckets = end_visit(guest)
if held then correct(buckets, cmsgpack.unpack(ARGV[3]), tonumber(ARGV[4])) end
flush()
return held and 1 or 0
