-- uses: common
-- lead: gives the worker the services that no other worker leads, for a span; notes the time for promotions
-- args: now, worker, span, services
-- returns now, the services that the worker leads, number of workers, when a promotion and when a schedule is due or
-- false, whether a schedule is always due
local LEADS, LOOKS, worker, span = TAG .. 'leads', TAG .. 'schedule_looks', ARGV[2], tonumber(ARGV[3])
local led, soonest = {}, false

-- A lead that ends later than the span was made before the clock was set back.
local function is_held_by_another(lead)
  if not lead then return false end
  local moment, leader = string.match(lead, '^(%d+) (.*)$')
  return leader ~= worker and tonumber(moment) > NOW and tonumber(moment) <= NOW + span
end

local function take_leads()
  for n = 4, #ARGV do
    if not is_held_by_another(call('HGET', LEADS, ARGV[n])) then
      pass_when_full()
      call('HSET', LEADS, ARGV[n], whole(NOW + span) .. ' ' .. worker)
      led[#led + 1] = ARGV[n]
    end
  end
end

-- A promotion notes the time too, and brings rates back after the clock was set back.
local function note_time()
  local noted = tonumber(call('HGET', META, 'clock') or '') or 0
  if NOW < noted - {CLOCK_SET_BACK} then soonest = NOW end
  if led[1] and NOW > noted + {CLOCK_NOTED} then call('HSET', META, 'clock', whole(NOW)) end
end

local function find_soonest()
  if call('EXISTS', TAG .. 'recheck') == 1 then soonest = NOW end
  for _, name in ipairs({'due', 'expiring', 'waiting_until', 'holders', 'releasing', 'swept'}) do
    local first = tonumber(call('ZRANGE', TAG .. name, 0, 0, 'WITHSCORES')[2])
    if first and (not soonest or first < soonest) then soonest = first end
  end
end

take_leads()
note_time()
find_soonest()
local look, always = tonumber(call('ZRANGE', LOOKS, 0, 0, 'WITHSCORES')[2]) or false, 0
if look == {ALWAYS_DUE} then
  always = 1
  look = tonumber(call('ZRANGEBYSCORE', LOOKS, '({ALWAYS_DUE}', '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]) or false
end
return {NOW, led, call('SCARD', TAG .. 'workers'), soonest, look, always}
