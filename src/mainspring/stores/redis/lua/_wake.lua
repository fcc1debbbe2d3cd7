-- wake: tokens for those who listen. Needs common.
-- A token in the list of a queue wakes one listener (BLPOP over the lists of all its queues). There are never more
-- tokens than listeners, so that a list nobody reads stays short; both keys vanish when nobody has listened for a while.
local LISTENS = 60000 -- milliseconds that a listener counts after its last word; it speaks every third of that

local function wake_up(queue)
  local listeners = call('ZCARD', named('listeners', queue))
  if listeners == 0 then return end
  local tokens, wake = {}, named('wake', queue)
  for n = 1, math.min(listeners, 1000) - call('LLEN', wake) do tokens[n] = 1 end
  if #tokens == 0 then return end
  call('RPUSH', wake, unpack(tokens))
  call('PEXPIRE', wake, LISTENS)
end
