-- uses: common
-- put: a versioned document, unless a newer version is there
-- args: now, kind, name, version, data
-- returns the version and the data that stand
local key, name, version = named('docs', ARGV[2]), ARGV[3], ARGV[4]
local stored = call('HGET', key, name)
if stored then
  local standing, data = string.match(stored, '^(-?%d+):(.*)$')
  if tonumber(standing) > tonumber(version) then return {standing, data} end
end
call('HSET', key, name, version .. ':' .. ARGV[5])
return {version, ARGV[5]}
