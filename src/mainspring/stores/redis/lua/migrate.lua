-- uses: common
-- migrate: brings the namespace to the version of this code
-- args: now, version
-- returns the versions before and after; a newer namespace stays as it is
local before, wanted = tonumber(call('HGET', META, 'schema')) or 0, tonumber(ARGV[2])
if before >= wanted then return {before, before} end
if not call('HGET', META, 'seq') then call('HSET', META, 'seq', whole({SEQ_FIRST})) end -- see line_up() in _lanes.lua
call('HSET', META, 'schema', wanted)
return {before, wanted}
