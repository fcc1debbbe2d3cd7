-- uses: common, moves, select
-- cancel: blocked | scheduled | retrying | ready -> cancelled (by_user); running: an order for its owner
-- args: now, query, ids or the id to go on after, limit, reason
-- returns ids done, refused [id, state], and the id to go on after or false
-- Only a query by ids is told of refusals: others mean the jobs that can be cancelled and are not yet.
local query, limit, reason = cmsgpack.unpack(ARGV[2]), tonumber(ARGV[4]), ARGV[5]
local by_ids, done, refused, chosen = query[1], {}, {}, {}
local after = each(query, ARGV[3], function(id, head)
  if WAITING[head[STATE]] or (head[STATE] == 'running' and (by_ids or not head[ORDER])) then
    chosen[#chosen + 1] = id
  elseif by_ids then
    refused[#refused + 1] = {id, head[STATE]}
  end
  return #chosen == limit
end)
pass_when_full()
for _, id in ipairs(chosen) do
  local head = live(id)
  if head and head[STATE] == 'running' then
    if not head[ORDER] then
      head[ORDER] = reason
      changed[id] = true
      call('HSET', named('orders', head[WORKER]), id, reason)
    end
    done[#done + 1] = id
  elseif head then
    finish(id, head, 'cancelled', 'by_user')
    done[#done + 1] = id
  elseif by_ids then -- a parent that was cancelled a line ago took it along
    refused[#refused + 1] = {id, 'cancelled'}
  end
end
flush()
return {done, refused, after}
