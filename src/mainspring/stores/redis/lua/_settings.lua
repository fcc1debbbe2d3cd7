-- settings: what is stored of queues, and what it does to new jobs. Needs common, heads.
-- An entry is a mode, marks, and since when it is in that mode. The marks say that more is stored: `!` the queue hands out
-- nothing, `+` an enqueue has to look at it. Then a packed [declared, given, disabled, when, by whom] stands behind a `|`;
-- settings are JSON, false stands for none.
-- gives: kept_of, keep, settings_of, place_new
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

-- The job names the limits of its queue too: its lane has their gates (see lanes.py).
local function limit(head, settings)
  local more, own, labels, gates = head[MORE], {}, {}, {}
  local buckets = more.b or {}
  for _, bucket in ipairs(buckets) do own[bucket[1] .. '=' .. bucket[2]] = true end
  for _, pair in ipairs(settings.limits) do
    if not own[pair[1] .. '='] then buckets[#buckets + 1] = {pair[1], '', pair[2]} end
  end
  local base, there, keys, marks = string.match(head[LANE], '^([^/]*/[^#!?]*)#?([^=!?]*)([^!?]*)(.*)$')
  for label in string.gmatch(there, '[^,]+') do labels[label == '*' and '**' or label] = true end
  for _, label in ipairs(settings.labels) do labels[label] = true end
  for label in pairs(labels) do gates[#gates + 1] = label end
  table.sort(gates)
  table.sort(buckets, by_kind_and_name)
  more.b, head[LANE] = buckets, base .. '#' .. table.concat(gates, ',') .. keys .. marks
end

-- A new job stands in the order of its queue, names its limits, and counts for its depth.
local function place_new(head, settings)
  if settings.order == 'lifo' then head[MORE].s = true end
  if settings.limits and #settings.limits > 0 then limit(head, settings) end
  if (settings.max_depth or 0) > 0 then head[MORE].d = true end
end
