-- uses: jobs
-- set_dependencies: what schedules wait for from now on; blocked -> ready | scheduled for the jobs that need not wait
-- any more
-- args: now, [[schedule, schedules it waits for], ...], how many jobs of a schedule without dependencies one script
--       releases
-- returns whether more jobs are to be released
with_dependencies()
local left = 0
for _, row in ipairs(cmsgpack.unpack(ARGV[2])) do
  local freed, more = dependencies.set(row[1], row[2], tonumber(ARGV[3]))
  for _, id in ipairs(freed) do unblock(id, live(id)) end
  if more then left = 1 end
end
flush()
return left
