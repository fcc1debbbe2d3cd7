-- uses: common, moves, acks, claims
-- turn: running -> by its acks; ready -> running for its wants
-- args: now, worker, turn [number, seen, suspects, acks, wants [lanes, n, oldest], tokens of holds or false], ids of
--       holds (16 bytes each), then the bytes of each ack (see _acks.lua)
-- returns now, lost, claims [id, head, record], already, stale, orders [id, token, reason], gone
local worker, turn, hold_ids = ARGV[2], cmsgpack.unpack(ARGV[3]), ARGV[4]
local number, seen, suspects, acks, wants, hold_tokens = unpack(turn, 1, 6)
local row = call('HMGET', named('worker', worker), 'turn', 'lost')
local last = tonumber(row[1])

-- checks
if not last or row[2] == '1' then return {NOW, 1, {}, {}, {}, {}, {}} end
if number < last then
  return redis.error_reply('CONFLICT turn ' .. whole(number) .. ' after ' .. whole(last))
end

-- writes; a full store refuses a turn that only claims, and takes acks without handing out more
local full = false
local noted = redis.pcall('HSET', named('worker', worker), 'turn', whole(number))
if type(noted) == 'table' and noted.err then
  full = string.find(noted.err, 'OOM', 1, true)
  if not full or (#acks == 0 and #wants > 0) then return noted end
  pass_when_full()
  call('HSET', named('worker', worker), 'turn', whole(number))
end
local already, stale = settle_all(worker, acks, 5)
line_up()
send_gathered()

local claims = {}
if seen < last then claims = claimed_since(worker, seen) end
if number > last and not full then claim(worker, number, suspects, wants, claims) end

local orders, gone = {}, {}
local ordered = call('HGETALL', named('orders', worker))
for n = 1, #ordered, 2 do orders[#orders + 1] = {ordered[n], live(ordered[n])[TOKEN], ordered[n + 1]} end
if hold_tokens then
  local acked, held = {}, {}
  for n, ack in ipairs(acks) do acked[ARGV[2 + 3 * n] .. whole(ack[A_TOKEN])] = true end
  for n in ipairs(hold_tokens) do held[n] = string.sub(hold_ids, 16 * n - 15, 16 * n) end
  preload(held)
  for n, token in ipairs(hold_tokens) do
    local id, head = held[n], heads[held[n]]
    local good = head and head[STATE] == 'running' and head[WORKER] == worker and head[TOKEN] == token
    if not good and not acked[id .. whole(token)] then gone[#gone + 1] = {id, token} end
  end
end
local handed = handed_out(claims)
flush()
return {NOW, 0, handed, already, stale, orders, gone}
