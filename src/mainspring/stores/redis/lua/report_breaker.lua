-- uses: common, heads, wake, lines, rooms*, parking*, moves, breakers
-- tell: what came of work that no job did
-- args: now, breaker, when it began, how many successes, what failed or empty
-- returns the breaker, in a list, if it has changed
with_rooms()
local began, good, fault = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
if good > 0 then
  hear_numbers({{ARGV[2], good}})
  end_of({{ARGV[2], '', 1}}, began)
end
if fault ~= '' then end_of({{ARGV[2], '', 1}}, began, fault) end
pass_when_full()
hear_all()
flush()
return news
