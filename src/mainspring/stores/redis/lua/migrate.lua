-- uses: common
-- migrate: bring the namespace to the version of this code
-- args: now, version
-- returns the versions before and after; a newer one is left alone
local before, wanted = tonumber(call('HGET', META, 'schema')) or 0, tonumber(ARGV[2])
if before >= wanted then return {before, before} end
if not call('HGET', META, 'seq') then call('HSET', META, 'seq', '8796093022208') end -- the middle: see line_up
call('HSET', META, 'schema', wanted)
return {before, wanted}
