-- uses: common, heads, settings*, wake, parts*, lines, rooms*, parking*, moves, select
-- bind: jobs that are there count for the depth of their queue
-- args: now, query (see _select.lua), the id to go on after, how many to look at
-- returns the id to go on after or false
local after = each(cmsgpack.unpack(ARGV[2]), ARGV[3], tonumber(ARGV[4]), function(id, raw)
  local head = load_head(raw)
  if not head[MORE].d then
    head[MORE].d, heads[id], changed[id] = true, head, true
    if is_waiting(head) then call('ZADD', named('depth', queue_of(head)), head[ENQUEUED], id) end
  end
end)
flush()
return after
