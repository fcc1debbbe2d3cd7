-- uses: common, heads, settings*, wake, parts*, lines, rooms*, parking*, moves, select
-- find: jobs of a query, live and ended
-- args: now, query, ids or the id to go on after, limit
-- returns rows [id, job, record that lies apart, error, progress, result that lies apart], and the id to go on after or false
local rows, limit = {}, tonumber(ARGV[4])
local after = each(cmsgpack.unpack(ARGV[2]), ARGV[3], 1000, function(id, raw)
  local rest = byte(raw, 4)
  rows[#rows + 1] = {
    id, raw, band(rest, 2) > 0 and call('HGET', RECORDS, id), band(rest, 8) > 0 and call('HGET', ERRORS, id),
    call('HGET', TAG .. 'progress', id), band(rest, 16) > 0 and call('HGET', RESULTS, id),
  }
  return #rows == limit
end)
return {rows, after}
