-- wakeups: tokens for listeners. Needs common.
-- A token in the wake list of a queue wakes one listener (BLPOP over the lists of all its queues). There are never more
-- tokens than listeners, so a list that no listener reads stays short. Both keys expire when no listener has reported
-- for {LISTENER_TTL} milliseconds; a listener reports three times as often.
local function wake_up(queue)
  local listeners = call('ZCARD', named('listeners', queue))
  if listeners == 0 then return end
  local tokens, wake = {}, named('wake', queue)
  for n = 1, math.min(listeners, {WAKE_TOKENS}) - call('LLEN', wake) do tokens[n] = 1 end
  if #tokens == 0 then return end
  call('RPUSH', wake, unpack(tokens))
  call('PEXPIRE', wake, {LISTENER_TTL})
end
