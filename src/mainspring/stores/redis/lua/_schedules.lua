-- schedules: rows that a caller replaces if it knows their revision. Needs common.
-- A row is its revision, the moment of the next look (or nothing) and the document of the core, with colons between
-- them. A run is a byte (1: it has a job), the job (16 bytes or nothing), and the document of the core. Moments are
-- stored as decimals, so they are exact; the sorted sets order them as doubles.
-- gives: read_swap, refusal_of, replace_row
local SCHEDULES, LOOKS, GONE = TAG .. 'schedules', TAG .. 'schedule_looks', TAG .. 'schedules_gone'

-- The text has fields, each after its length: name, revision, `+` and the new document (nothing: the row is deleted),
-- the moment of the next look or nothing, the number of runs to keep; then for each run the occurrence, the job or
-- nothing, the document.
local function read_swap(text)
  local words, at = {}, 1
  while at <= #text do words[#words + 1], at = struct.unpack('>I4c0', text, at) end
  local swap = {name = words[1], rev = words[2], doc = words[3], look = words[4], keep = tonumber(words[5]), runs = {}}
  for n = 6, #words, 3 do swap.runs[#swap.runs + 1] = {at = words[n], job = words[n + 1], doc = words[n + 2]} end
  swap.stored = string.match(call('HGET', SCHEDULES, swap.name) or '', '^%d+') or '0'
  return swap
end

-- The reply of the script if the row must not be replaced: its revision is another, or an occurrence has another job.
-- Else nil.
local function refusal_of(swap)
  if swap.stored ~= swap.rev then return {'swapped', 0, NOW, swap.stored, false} end
  for _, run in ipairs(swap.runs) do
    local there = run.job ~= '' and call('HGET', named('runs', swap.name), run.at)
    if there and byte(there) == 1 and sub(there, 2, {ID_BYTES} + 1) ~= run.job then
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

-- The revision of a deleted schedule is kept for a time: a new schedule of this name gets a greater one.
local function delete_row(swap, rev)
  if call('HDEL', SCHEDULES, swap.name) == 1 then call('ZADD', GONE, rev, swap.name) end
  call('ZREM', LOOKS, swap.name)
  call('UNLINK', named('runs', swap.name), named('occurrences', swap.name))
end

-- Replaces the row; refusal_of() was asked before. Returns the reply of the script.
local function replace_row(swap)
  local last = swap.stored ~= '0' and swap.stored or call('ZSCORE', GONE, swap.name) or 0
  local rev = whole(math.max(tonumber(last) + 1, NOW))
  if swap.doc == '' then
    delete_row(swap, rev)
    return {'swapped', 1, NOW, '0', false}
  end
  call('HSET', SCHEDULES, swap.name, rev .. ':' .. swap.look .. ':' .. sub(swap.doc, 2))
  call('ZREM', GONE, swap.name)
  if swap.look ~= '' then call('ZADD', LOOKS, swap.look, swap.name) else call('ZREM', LOOKS, swap.name) end
  keep_runs(swap)
  return {'swapped', 1, NOW, rev, false}
end
