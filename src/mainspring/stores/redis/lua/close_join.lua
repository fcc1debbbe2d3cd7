-- uses: jobs
-- close_join: no member is added to a join from outside any more: blocked -> succeeded | cancelled if all have ended
-- args: now, id
-- returns the numbers of the join, or false if there is no such join
local id = ARGV[2]
local head = anywhere(id)
local join = head and head[MORE].j
if not join then return false end
if join[{JOIN_OPEN}] == 1 then
  join[{JOIN_OPEN}], changed[id] = 0, true
  if head[STATE] == {BLOCKED} then
    local ending = {}
    with_flows()
    flows.end_join(id, head, ending)
    finish_all(ending)
  end
  flush()
end
return join
