-- uses: common
-- report: stores progress, log lines and stream items of running attempts
-- args: now, worker, then for each report: id and token, progress (`+` and the bytes, or empty), number of log lines,
--       how many of them follow, how many items follow; then the lines (packed) and the items (number, 8 bytes, and
--       data)
-- returns 1 or 0 for each report: stored, or the lease is not valid
local worker, replies, at = ARGV[2], {}, 3
local alive = call('HGET', named('worker', worker), 'lost') == '0'

local function is_valid(lease)
  if not alive then return false end
  local raw = call('HGET', JOBS, sub(lease, 1, {ID_BYTES}))
  local owner = sub(lease, {ID_BYTES} + 1) .. string.char(#worker) .. worker
  return raw and byte(raw) == {RUNNING} and sub(raw, {TOKEN_AT}, {TOKEN_AT} - 1 + #owner) == owner
end

local function add_lines(id, number, lines)
  local key = named('logs', id)
  local last = call('LINDEX', key, -1)
  local n = (last and struct.unpack('>d', last) or 0) + number - #lines
  for m, line in ipairs(lines) do lines[m] = struct.pack('>d', n + m) .. line end
  spread('RPUSH', key, lines)
  call('LTRIM', key, -{LINES_KEPT}, -1)
end

local function add_items(id, items)
  local key, members = named('items', id), {}
  for m, item in ipairs(items) do
    local n = whole((struct.unpack('>d', item)))
    call('ZREMRANGEBYSCORE', key, n, n)
    members[2 * m - 1], members[2 * m] = n, item
  end
  spread('ZADD', key, members)
end

pass_when_full()
while at <= #ARGV do
  local lease, progress, number = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
  local lines, items, id = {}, {}, sub(lease, 1, {ID_BYTES})
  for n = 1, tonumber(ARGV[at + 3]) do lines[n] = ARGV[at + 4 + n] end
  for n = 1, tonumber(ARGV[at + 4]) do items[n] = ARGV[at + 4 + #lines + n] end
  at = at + 5 + #lines + #items
  local valid = is_valid(lease)
  if valid and progress ~= '' then call('HSET', TAG .. 'progress', id, sub(progress, 2)) end
  if valid and number > 0 then add_lines(id, number, lines) end
  if valid and #items > 0 then add_items(id, items) end
  replies[#replies + 1] = valid and 1 or 0
end
return replies
