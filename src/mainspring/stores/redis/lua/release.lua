-- uses: common, heads, settings*, wake, parts*, lines, rooms*, parking*, moves, spending, guests
-- give: the places of a guest are free again
-- args: now, guest, what it really cost by limit [limit, cost], how long its rates let nothing through
-- returns whether it had any
with_rooms()
local REST = 1000000 -- see records.py
local guest = ARGV[2]
local held = is_there(guest)
pass_when_full()
local buckets = end_visit(guest)
for _, bucket in ipairs(held and buckets or {}) do
  local name = name_of(bucket)
  if is_there(next_in(name)) then
    end_visit(next_in(name))
    call('HSET', VISITS, rest_in(name), cmsgpack.pack({{}, 0, NOW, ''}))
    call('ZADD', GUESTS, whole(NOW + REST), rest_in(name))
  end
end
if held then correct(buckets, cmsgpack.unpack(ARGV[3]), tonumber(ARGV[4])) end
flush()
return held and 1 or 0
