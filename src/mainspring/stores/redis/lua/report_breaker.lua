-- uses: jobs, breakers_outcomes
-- report_breaker: counts outcomes of work that is not a job
-- args: now, breaker, when it began, number of successes, the failure or empty
-- returns the breaker, in a list, if its state has changed
with_limits()
local began, good, fault = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
if good > 0 then
  add_successes({ {ARGV[2], good} })
  note_outcome({ {ARGV[2], '', 1} }, began)
end
if fault ~= '' then note_outcome({ {ARGV[2], '', 1} }, began, fault) end
pass_when_full()
apply_outcomes()
flush()
return changed_breakers
