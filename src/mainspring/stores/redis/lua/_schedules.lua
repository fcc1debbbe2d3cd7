-- schedules: rows that are exchanged by whoever knows their number. Needs common.
-- A row is its number, when to look at it (or nothing) and what the core keeps in it, parted by colons. A run is the job
-- of an occurrence, 16 bytes or none, behind a byte that says which, and what the core keeps of it. Moments are
-- decimals, so that all of them are exact; by which they are found are doubles.
-- gives: read_swap, refusal_of, exchange
local SCHEDULES, LOOKS, GONE = TAG .. 'schedules', TAG .. 'looks', TAG .. 'gone'

-- Each part of the text with its length in front: name, number, what it is to hold (behind a `+`; nothing: it goes), when
-- to look at it or nothing, how many runs are kept; then for each run its occurrence, its job or nothing, what it holds.
local function read_swap(text)
  local words, at = {}, 1
  while at <= #text do words[#words + 1], at = struct.unpack('>I4c0', text, at) end
  local swap = {name = words[1], rev = words[2], doc = words[3], look = words[4], keep = tonumber(words[5]), runs = {}}
  for n = 6, #words, 3 do swap.runs[#swap.runs + 1] = {at = words[n], job = words[n + 1], doc = words[n + 2]} end
  swap.stored = string.match(call('HGET', SCHEDULES, swap.name) or '', '^%d+') or '0'
  return swap
end

-- Why the row stays as it is, as the script says it; or nil.
local function refusal_of(swap)
  if swap.stored ~= swap.rev then return {'swapped', 0, NOW, swap.stored, false} end
  for _, run in ipairs(swap.runs) do
    local there = run.job ~= '' and call('HGET', named('runs', swap.name), run.at)
    if there and byte(there) == 1 and sub(there, 2, 17) ~= run.job then
      return {'swapped', 0, NOW, swap.stored, run.at}
    end
  end
end

local function keep_runs(swap)
  local runs, order = named('runs', swap.name), named('occurrences', swap.name)
  for _, run in ipairs(swap.runs) do
    call('HSET', runs, run.at, (run.job == '' and '\0' or '\1' .. run.job) .. run.doc)
    call('ZADD', order, run.at, run.at)
  end
  local excess = call('ZCARD', order) - swap.keep
  if excess <= 0 then return end
  spread('HDEL', runs, call('ZRANGE', order, 0, excess - 1))
  call('ZREMRANGEBYRANK', order, 0, excess - 1)
end

-- The number of a schedule that goes is kept: one of its name that is made later has a greater one.
local function drop(swap, rev)
  if call('HDEL', SCHEDULES, swap.name) == 1 then call('ZADD', GONE, rev, swap.name) end
  call('ZREM', LOOKS, swap.name)
  call('UNLINK', named('runs', swap.name), named('occurrences', swap.name))
end

-- Says what the script returns. Nothing stands in the way.
local function exchange(swap)
  local last = swap.stored ~= '0' and swap.stored or call('ZSCORE', GONE, swap.name) or 0
  local rev = whole(math.max(tonumber(last) + 1, NOW))
  if swap.doc == '' then
    drop(swap, rev)
    return {'swapped', 1, NOW, '0', false}
  end
  call('HSET', SCHEDULES, swap.name, rev .. ':' .. swap.look .. ':' .. sub(swap.doc, 2))
  call('ZREM', GONE, swap.name)
  if swap.look ~= '' then call('ZADD', LOOKS, swap.look, swap.name) else call('ZREM', LOOKS, swap.name) end
  keep_runs(swap)
  return {'swapped', 1, NOW, rev, false}
end
