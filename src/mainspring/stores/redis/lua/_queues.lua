-- queues: the stored modes and settings of queues, and what they do to new jobs. Needs common, rows, lane_fields.
-- An entry is the mode, marks, `:`, and the moment since when the queue has this mode. The marks say that more is
-- stored: `!` the queue hands out no jobs, `+` an enqueue has to read the entry. Then `|` and a packed [declared
-- settings, settings given by hand, how it is disabled, since when, by whom] follow; settings are JSON, false stands
-- for none.
-- gives: row_of, put_row, settings_in, apply_settings, add_buckets
local QUEUES = TAG .. 'queues'

local function row_of(queue)
  local entry = call('HGET', QUEUES, queue) or {QUEUE_OPEN} .. ':0'
  local mode, since, packed = string.match(entry, '^(%a+)[!+]*:(%d+)|?(.*)$')
  local row = packed ~= '' and cmsgpack.unpack(packed) or {false, false, false, 0, ''}
  return {mode = mode, since = since, declared = row[1], given = row[2], how = row[3], at = row[4], by = row[5]}
end

local function put_row(queue, row)
  local has_settings = row.declared or row.given
  local marks = (row.how and '!' or '') .. ((has_settings or (row.how and row.how ~= {DISABLED_HOLD})) and '+' or '')
  if marks == '' and row.mode == {QUEUE_OPEN} then return call('HDEL', QUEUES, queue) end
  local entry = row.mode .. marks .. ':' .. row.since
  if marks ~= '' then
    entry = entry .. '|' .. cmsgpack.pack({row.declared, row.given, row.how, row.at, row.by})
  end
  call('HSET', QUEUES, queue, entry)
end

-- The settings that apply: those given by hand replace the declared ones.
local function settings_in(row)
  local settings = row.declared and cjson.decode(row.declared) or {}
  for name, value in pairs(row.given and cjson.decode(row.given) or {}) do settings[name] = value end
  return settings
end

-- Unkeyed limits first, then by name.
local function by_kind_and_name(a, b)
  if (a[2] == '') ~= (b[2] == '') then return a[2] == '' end
  if a[1] ~= b[1] then return a[1] < b[1] end
  return a[2] < b[2]
end

-- The label of a fair key comes before all others.
local function fair_first(a, b)
  local is_fair = string.find(a, '*', 1, true) ~= nil
  if is_fair ~= (string.find(b, '*', 1, true) ~= nil) then return is_fair end
  return a < b
end

-- Adds labels to a list of labels in a lane.
local function joined(there, labels)
  local seen, all = {}, {}
  for label in string.gmatch(there, '[^,]+') do seen[label] = true end
  for _, label in ipairs(labels) do seen[label] = true end
  for label in pairs(seen) do all[#all + 1] = label end
  table.sort(all, fair_first)
  return table.concat(all, ',')
end

-- The job also names these buckets [limit, key, cost, label], and its lane has their labels: see jobs/lanes.py. A limit
-- that the job names already stays as it is.
local function add_buckets(head, more)
  local buckets, own, unkeyed, keys = head[MORE].b or {}, {}, {}, {}
  for _, bucket in ipairs(buckets) do own[bucket[1]] = true end
  for _, each in ipairs(more) do
    if not own[each[1]] then
      buckets[#buckets + 1] = {each[1], each[2], each[3]}
      local labels = each[2] == '' and unkeyed or keys
      labels[#labels + 1] = each[4]
    end
  end
  table.sort(buckets, by_kind_and_name)
  local fields = lane_fields(head[LANE])
  if fields.fair then unkeyed[#unkeyed + 1] = '**' end
  local all_keys = joined(fields.keys, keys)
  head[MORE].b = buckets
  head[LANE] = fields.base .. '#' .. joined(fields.unkeyed, unkeyed) .. (all_keys ~= '' and '=' .. all_keys or '') .. fields.marks
end

local function add_limits(head, settings)
  local more = {}
  for n, pair in ipairs(settings.limits) do more[n] = {pair[1], '', pair[2], settings.labels[n]} end
  add_buckets(head, more)
end

-- A new job gets the order and the limits of its queue, and counts for the depth if that is bounded.
local function apply_settings(head, settings)
  if settings.order == {ORDER_LIFO} then head[MORE].s = true end
  if settings.limits and #settings.limits > 0 then add_limits(head, settings) end
  if (settings.max_depth or 0) > 0 then head[MORE].d = true end
end
