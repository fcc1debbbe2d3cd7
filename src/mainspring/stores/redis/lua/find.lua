-- uses: jobs, query
-- find: the jobs of a query, live and ended
-- args: now, query, ids or the id to continue after, limit
-- returns rows [id, stored job, large record, error, progress, large result], and the id to continue after or false
local rows, limit = {}, tonumber(ARGV[4])
local after = visit_jobs(cmsgpack.unpack(ARGV[2]), ARGV[3], {FIND_LOOKED}, function(id, raw)
  local rest = byte(raw, {REST_AT})
  rows[#rows + 1] = {
    id, raw, band(rest, {FLAG_RECORD_APART}) > 0 and call('HGET', RECORDS, id),
    band(rest, {FLAG_ERROR}) > 0 and call('HGET', ERRORS, id), call('HGET', TAG .. 'progress', id),
    band(rest, {FLAG_RESULT_APART}) > 0 and call('HGET', RESULTS, id),
  }
  return #rows == limit
end)
return {rows, after}
