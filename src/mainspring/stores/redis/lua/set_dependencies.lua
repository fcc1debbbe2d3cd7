-- uses: common, heads, settings*, wake, parts*, lines, rooms*, parking*, moves
-- link: what parts wait for from now on; blocked -> ready | scheduled for whom that no longer holds back
-- args: now, [part, parts that it waits for], how many jobs are released at most of a part that waits for nobody
-- returns whether there are more of those
with_parts()
local left = 0
for _, link in ipairs(cmsgpack.unpack(ARGV[2])) do
  local freed, more = parts.relink(link[1], link[2], tonumber(ARGV[3]))
  for _, id in ipairs(freed) do unblock(id, live(id)) end
  if more then left = 1 end
end
flush()
return left
