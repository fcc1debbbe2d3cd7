-- uses: jobs, query
-- tally: numbers of jobs by a value (queue, task, error, or none) and state, with the first and the last moment
-- args: now, query, ids or the id to continue after, value, how many jobs to look at
-- returns now, groups [value, state, number, first, last], and the id to continue after or false
local by, groups, found = ARGV[4], {}, {}
local after = visit_jobs(cmsgpack.unpack(ARGV[2]), ARGV[3], tonumber(ARGV[5]), function(_, raw)
  local state, value = byte(raw), ''
  if by == 'error' then
    if state ~= {DEAD} then return false end
    local more = load_head(raw)[MORE]
    value = more.e or more.r
  elseif by ~= '' then
    value = string.match(group_in(raw), by == 'queue' and '^[^%z]*' or '[^%z]*$')
  end
  local at = struct.unpack('>d', raw, state > {RUNNING} and {ENDED_AT} or {ENQUEUED_AT})
  local key = state .. value
  local group = found[key]
  if group then
    group[3], group[4], group[5] = group[3] + 1, math.min(group[4], at), math.max(group[5], at)
  else
    group = {value, state, 1, at, at}
    found[key], groups[#groups + 1] = group, group
  end
end, true)
return {NOW, groups, after}
