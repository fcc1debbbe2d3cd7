-- uses: common, heads, settings*, wake, parts*, lines, rooms*, parking*, moves
-- reopen: looks on at those who waited for a limit that was changed
-- returns how many buckets are left
with_rooms()
local left = reopen()
flush()
return left
