-- places: a ready job whose place in the line is not the end of a list. Needs common, heads, lines.
-- It stands in a set beside the list of its lane and priority, ordered by seq; a claim merges both.
local function put_in_place(id, head)
  local line = line_of(head[LANE], head[PRIORITY])
  call('ZADD', named('moved', line), head[SEQ], id)
  index_moved(line, index_of(head[LANE]))
  touch(head)
end

-- A clock that went back makes overdue jobs good again: each returns to its place.
local function bring_back()
  for _, id in ipairs(call('ZRANGEBYSCORE', OVERDUE, '(' .. whole(NOW), '+inf', 'LIMIT', 0, 100)) do
    put_in_place(id, live(id))
    call('ZREM', OVERDUE, id)
  end
end
