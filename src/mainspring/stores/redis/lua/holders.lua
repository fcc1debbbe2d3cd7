-- uses: common, rows, lane_fields, wakeups, lanes, limits, holders
-- holders: the holds that are not over; a reserve of the store is not a hold
-- args: now, a bucket or empty, the beginning of the names of buckets
-- returns for each holder and bucket: bucket, holder, token, since when, until when, microseconds left, info
with_limits()
local bucket, prefix = ARGV[2], ARGV[3]
local from = bucket == '' and HOLDERS or named('bucket_holders', bucket)
local found = call('ZRANGEBYSCORE', from, '(' .. whole(NOW), '+inf', 'WITHSCORES', 'LIMIT', 0, {HOLDERS_SEARCHED})
local rows = {}
for n = 1, #found, 2 do
  local holder, till = found[n], tonumber(found[n + 1])
  local buckets, token, since, info = unpack(cmsgpack.unpack(call('HGET', HOLDS, holder)), 1, 4)
  for _, each in ipairs(buckets) do
    local name = name_of(each)
    local asked_for = name == bucket or (bucket == '' and sub(name, 1, #prefix) == prefix)
    if asked_for and holder ~= reserve_of(name) then
      rows[#rows + 1] = {name, holder, token, since, till, till - NOW, info}
    end
  end
end
return rows
