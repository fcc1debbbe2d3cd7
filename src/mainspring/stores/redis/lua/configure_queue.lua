-- uses: common, heads, settings*
-- configure: settings of a queue in place of those that were declared or given before
-- args: now, queue, declared or given, settings as JSON or nothing to take them back
-- returns 1 if what waits in it is to be counted
with_settings()
local queue, which, settings = ARGV[2], ARGV[3], ARGV[4]
local kept = kept_of(queue)
kept[which] = settings ~= '' and settings
keep(queue, kept)
return (settings_of(kept).max_depth or 0) > 0 and 1 or 0
