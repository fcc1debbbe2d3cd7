-- settings: what is stored of queues, and what it does to new jobs. Needs common, heads.
-- An entry is a mode, marks, and since when it is in that mode. The marks say that more is stored: `!` the queue hands out
-- nothing, `+` an enqueue has to look at it. Then a packed [declared, given, disabled, when, by whom] stands behind a `|`;
-- settings are JSON, false stands for none.
-- gives: kept_of, keep, settings_of, place_new, widen
local MODES = TAG .. 'modes'

local function kept_of(queue)
  local entry = call('HGET', MODES, queue) or 'open:0'
  local mode, since, packed = string.match(entry, '^(%a+)[!+]*:(%d+)|?(.*)$')
  local kept = packed ~= '' and cmsgpack.unpack(packed) or {false, false, false, 0, ''}
  return {mode = mode, since = since, declared = kept[1], given = kept[2], how = kept[3], at = kept[4], by = kept[5]}
end

local function keep(queue, kept)
  local has_settings = kept.declared or kept.given
  local marks = (kept.how and '!' or '') .. ((has_settings or (kept.how and kept.how ~= 'hold')) and '+' or '')
  if marks == '' and kept.mode == 'open' then return call('HDEL', MODES, queue) end
  local entry = kept.mode .. marks .. ':' .. kept.since
  if marks ~= '' then
    entry = entry .. '|' .. cmsgpack.pack({kept.declared, kept.given, kept.how, kept.at, kept.by})
  end
  call('HSET', MODES, queue, entry)
end

-- What holds: what somebody gave over what code declares.
local function settings_of(kept)
  local settings = kept.declared and cjson.decode(kept.declared) or {}
  for name, value in pairs(kept.given and cjson.decode(kept.given) or {}) do settings[name] = value end
  return settings
end

local function by_kind_and_name(a, b)
  if (a[2] == '') ~= (b[2] == '') then return a[2] == '' end
  if a[1] ~= b[1] then return a[1] < b[1] end
  return a[2] < b[2]
end

-- A fair key comes before all others, and has another sign among gates if its jobs need room.
local function fair_first(a, b)
  local is_fair = string.find(a, '*', 1, true) ~= nil
  if is_fair ~= (string.find(b, '*', 1, true) ~= nil) then return is_fair end
  return a < b
end

local function joined(there, labels)
  local seen, all = {}, {}
  for label in string.gmatch(there, '[^,]+') do seen[label == '*' and '**' or label] = true end
  for _, label in ipairs(labels) do seen[label] = true end
  for label in pairs(seen) do all[#all + 1] = label end
  table.sort(all, fair_first)
  return table.concat(all, ',')
end

-- The job names these [limit, key, cost, label] too: its lane has their gates and keys (see lanes.py). Of a limit that
-- it names already nothing changes.
local function widen(head, more)
  local buckets, own, gates, keys = head[MORE].b or {}, {}, {}, {}
  for _, bucket in ipairs(buckets) do own[bucket[1]] = true end
  for _, each in ipairs(more) do
    if not own[each[1]] then
      buckets[#buckets + 1] = {each[1], each[2], each[3]}
      local labels = each[2] == '' and gates or keys
      labels[#labels + 1] = each[4]
    end
  end
  table.sort(buckets, by_kind_and_name)
  local base, had, keyed, marks = string.match(head[LANE], '^([^/]*/[^#!?]*)#?([^=!?]*)=?([^!?]*)(.*)$')
  keyed = joined(keyed, keys)
  head[MORE].b, head[LANE] = buckets, base .. '#' .. joined(had, gates) .. (keyed ~= '' and '=' .. keyed or '') .. marks
end

local function limit(head, settings)
  local more = {}
  for n, pair in ipairs(settings.limits) do more[n] = {pair[1], '', pair[2], settings.labels[n]} end
  widen(head, more)
end

-- A new job stands in the order of its queue, names its limits, and counts for its depth.
local function place_new(head, settings)
  if settings.order == 'lifo' then head[MORE].s = true end
  if settings.limits and #settings.limits > 0 then limit(head, settings) end
  if (settings.max_depth or 0) > 0 then head[MORE].d = true end
end
