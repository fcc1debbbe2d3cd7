-- uses: jobs, query
-- configure_queue, second step: jobs that are stored already count for the depth of their queue
-- args: now, query (see _query.lua), the id to continue after, how many jobs to look at
-- returns the id to continue after or false
local after = visit_jobs(cmsgpack.unpack(ARGV[2]), ARGV[3], tonumber(ARGV[4]), function(id, raw)
  local head = load_head(raw)
  if not head[MORE].d and not head[MORE].j then
    head[MORE].d, heads[id], changed[id] = true, head, true
    if is_waiting(head) then call('ZADD', named('depth', queue_of(head)), head[ENQUEUED], id) end
  end
end)
flush()
return after
