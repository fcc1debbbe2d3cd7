-- lanes_moved: ready jobs whose place is not the end of a list. Needs common, rows, lanes, moves.
-- Such a job is in the sorted set beside the list of its line, by seq; a claim merges both.
local function put_in_place(id, head)
  local line = line_of(head[LANE], head[PRIORITY])
  call('ZADD', named('line_moved', line), head[SEQ], id)
  index_moved(line, index_of(head[LANE]))
  touch(head)
end

-- When the clock goes back, jobs that were overdue are not expired any more: they return to their places.
local function return_overdue()
  for _, id in ipairs(call('ZRANGEBYSCORE', OVERDUE, '(' .. whole(NOW), '+inf', 'LIMIT', 0, {OVERDUE_RETURNED})) do
    put_in_place(id, live(id))
    call('ZREM', OVERDUE, id)
  end
end
