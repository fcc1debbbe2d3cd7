-- uses: common
-- put_document: stores a versioned document, unless a newer version is stored
-- args: now, kind, name, version, data
-- returns the version and the data that are stored now
local key, name, version = named('documents', ARGV[2]), ARGV[3], ARGV[4]
local stored = call('HGET', key, name)
if stored then
  local stored_version, data = string.match(stored, '^(-?%d+):(.*)$')
  if tonumber(stored_version) > tonumber(version) then return {stored_version, data} end
end
call('HSET', key, name, version .. ':' .. ARGV[5])
return {version, ARGV[5]}
