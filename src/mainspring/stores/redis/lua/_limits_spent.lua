-- limits_spent: corrects rates after a start, when its real cost is known. Needs common, limits.
-- gives: correct_costs

-- Gives back a part of the newest starts of a windowed rate.
local function give_back(capacity, cost)
  local key, name = named('rate_starts', capacity.name), capacity.name
  load_rate(capacity)
  write_capacities()
  capacity = capacity_of(name)
  load_rate(capacity)
  local last = call('LLEN', key)
  while cost > 0 and last > capacity.over do
    local first, latest, n = struct.unpack('>ddd', call('LINDEX', key, -1))
    local given = math.min(cost, n)
    cost, capacity.used, capacity.dirty = cost - given, capacity.used - given, true
    if given < n then
      call('LSET', key, -1, struct.pack('>ddd', first, latest, n - given))
    else
      call('RPOP', key)
      last = last - 1
    end
  end
  capacity.entries = {}
  mark_freed(name)
end

local function correct_smooth(capacity, cost, spent)
  local more = smooth_time(capacity.limit, spent) - smooth_time(capacity.limit, cost)
  if more == 0 then return end
  load_rate(capacity)
  capacity.tat, capacity.dirty = math.max(capacity.tat, NOW) + more, true
  if more < 0 then mark_freed(capacity.name) end
end

local function correct_cost(capacity, cost, spent)
  local limit = capacity.limit
  cost, spent = math.min(cost, limit.size), math.max(spent, 0)
  if limit.kind == {LIMIT_SMOOTH} then return correct_smooth(capacity, cost, spent) end
  if spent > cost then
    use_rate(capacity, spent - cost, 1)
  elseif spent < cost then
    give_back(capacity, cost - spent)
  end
end

-- Corrects the rates of these buckets by what a start really cost: `spent` [[limit, cost], ...]. `slow`: microseconds
-- for which the rates let nothing through.
local function correct_costs(buckets, spent, slow)
  local real = {}
  for _, pair in ipairs(spent) do real[pair[1]] = pair[2] end
  for _, bucket in ipairs(buckets) do
    local capacity = capacity_of(name_of(bucket))
    local kind = capacity.limit and capacity.limit.kind
    if kind == {LIMIT_RATE} or kind == {LIMIT_SMOOTH} then
      if real[bucket[1]] and capacity.limit.size > 0 then correct_cost(capacity, bucket[3], real[bucket[1]]) end
      if slow > 0 then
        capacity = capacity_of(capacity.name)
        load_rate(capacity)
        capacity.pause, capacity.dirty = math.max(capacity.pause, NOW + slow), true
      end
    end
  end
end
