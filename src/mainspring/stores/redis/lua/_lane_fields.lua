-- lane_fields: what a script has to know of a lane. Needs nothing. The only part that reads the name of a lane: the
-- other parts read the fields. The name itself is explained in mainspring/jobs/lanes.py.
-- The fields are made once in a script for each lane. They are not stored: to read a stored hash costs more than this.
-- gives: lane_fields
local known_lanes = {}

-- The fields of a lane, or of a lane set by its name.
--   queue, base     the queue; the base lane
--   unkeyed, keys   the labels of the unkeyed limits and of the keys, as texts with a comma between two
--   suspect, task   whether its jobs are suspects; the task, if a worker that did not know it handed the jobs back
--   marks           both as a text
--   home            the lane of the same jobs without marks
--   root            the base lane, or the lane of its suspects
--   set, keyed      the lane set; whether the lane has keys
--   limited         whether the lane is beside its base lane because of a limit or a key
--   fair, weight    whether the lane is one of fair keys; the weight of its key (none for a lane set)
--   free            a fair lane whose jobs name no bucket
local function lane_fields(lane)
  local fields = known_lanes[lane]
  if fields then return fields end
  local queue, kind, unkeyed, keys, marks = string.match(lane, '^([^/]*)/([^#!?]*)(#?[^=!?]*)([^!?]*)(.*)$')
  local base = queue .. '/' .. kind
  local suspect = sub(marks, 1, 1) == '!'
  fields = {
    queue = queue, base = base, unkeyed = sub(unkeyed, 2), keys = sub(keys, 2), marks = marks, suspect = suspect,
    home = base .. unkeyed .. keys, root = suspect and base .. '!' or base, set = base .. unkeyed .. marks,
    keyed = keys ~= '', limited = unkeyed ~= '', fair = sub(unkeyed, 1, 2) == '#*', free = unkeyed == '#*',
    task = string.match(marks, '^!?%?(.*)$'),
  }
  if fields.fair then
    fields.weight = tonumber(string.match(keys, '^=([^*]*)'))
    fields.unkeyed = string.match(unkeyed, '^#%**,?(.*)$')
  end
  known_lanes[lane] = fields
  return fields
end
