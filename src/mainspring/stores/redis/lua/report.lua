-- uses: common
-- report: progress, log lines and stream items of running attempts
-- args: now, worker, then for each report: id and token, progress (`+` and the bytes, or empty), how many lines were
--       said, how many lines follow, how many items follow; then the lines (packed) and items (place, 8 bytes, and data)
-- returns 1 or 0 for each: stored, or the lease is not good
local LINES_KEPT = 1000
local worker, said, at = ARGV[2], {}, 3
local alive = call('HGET', named('worker', worker), 'lost') == '0'

local function is_good(lease)
  if not alive then return false end
  local raw = call('HGET', JOBS, sub(lease, 1, 16))
  local owner = sub(lease, 17) .. string.char(#worker) .. worker
  return raw and byte(raw) == 5 and sub(raw, 91, 90 + #owner) == owner
end

local function add_lines(id, number, lines)
  local key = named('logs', id)
  local last = call('LINDEX', key, -1)
  local n = (last and struct.unpack('>d', last) or 0) + number - #lines
  for m, line in ipairs(lines) do lines[m] = struct.pack('>d', n + m) .. line end
  spread('RPUSH', key, lines)
  call('LTRIM', key, -LINES_KEPT, -1)
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
  local lines, items, id = {}, {}, sub(lease, 1, 16)
  for n = 1, tonumber(ARGV[at + 3]) do lines[n] = ARGV[at + 4 + n] end
  for n = 1, tonumber(ARGV[at + 4]) do items[n] = ARGV[at + 4 + #lines + n] end
  at = at + 5 + #lines + #items
  local good = is_good(lease)
  if good and progress ~= '' then call('HSET', TAG .. 'progress', id, sub(progress, 2)) end
  if good and number > 0 then add_lines(id, number, lines) end
  if good and #items > 0 then add_items(id, items) end
  said[#said + 1] = good and 1 or 0
end
return said
