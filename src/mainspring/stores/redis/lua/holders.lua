-- uses: common, heads, rooms, guests
-- guests: who has places outside of a claim, and whose time is not over; places that are kept are none
-- args: now, a bucket or empty, else what the names of buckets begin with
-- returns for each guest and bucket: bucket, guest, number, since when, until when, how long that is, what it says of itself
local MANY = 10000
local bucket, prefix = ARGV[2], ARGV[3]
local from = bucket == '' and GUESTS or named('visitors', bucket)
local found = call('ZRANGEBYSCORE', from, '(' .. whole(NOW), '+inf', 'WITHSCORES', 'LIMIT', 0, MANY)
local rows = {}
for n = 1, #found, 2 do
  local guest, till = found[n], tonumber(found[n + 1])
  local buckets, token, since, info = unpack(cmsgpack.unpack(call('HGET', VISITS, guest)), 1, 4)
  for _, each in ipairs(buckets) do
    local name = name_of(each)
    local asked_for = name == bucket or (bucket == '' and sub(name, 1, #prefix) == prefix)
    if asked_for and guest ~= next_in(name) then
      rows[#rows + 1] = {name, guest, token, since, till, till - NOW, info}
    end
  end
end
return rows
