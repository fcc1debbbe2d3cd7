-- uses: common, select
-- find: jobs of a query, live and ended
-- args: now, query, ids or the id to go on after, limit
-- returns rows [id, head, record, result, error], and the id to go on after or false
local rows, limit = {}, tonumber(ARGV[4])
local after = each(cmsgpack.unpack(ARGV[2]), ARGV[3], function(id, head)
  rows[#rows + 1] = {
    id, cmsgpack.pack(head), call('HGET', RECORDS, id), call('HGET', RESULTS, id), call('HGET', ERRORS, id),
  }
  return #rows == limit
end)
return {rows, after}
