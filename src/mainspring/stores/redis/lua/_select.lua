-- select: the jobs of a query, newest id first, a bounded number at a time. Needs common.
-- A query: [by ids, states, queues, tasks], each list empty for "any". By ids they follow as one argument (16 bytes
-- each, newest first); else that argument is the id after which to go on, or empty.
local LOOK_AT = 1000

local function set_of(list)
  local set
  for _, name in ipairs(list) do
    set = set or {}
    set[name] = true
  end
  return set
end

local function anywhere(id) return live(id) or ended(id) end

-- Calls visit(id, head) for each job of the query until it says stop.
-- Returns the id after which to go on, or false when the query is exhausted.
local function each(query, argument, visit)
  local ids = {}
  if query[1] then
    for first = 1, #argument, 16 do ids[#ids + 1] = string.sub(argument, first, first + 15) end
  else
    ids = call('ZREVRANGEBYLEX', IDS, argument == '' and '+' or '(' .. argument, '-', 'LIMIT', 0, LOOK_AT)
  end
  local states, queues, tasks = set_of(query[2]), set_of(query[3]), set_of(query[4])
  preload(ids)
  for _, id in ipairs(ids) do
    local head = anywhere(id)
    local meant = head
      and (not states or states[head[STATE]])
      and (not queues or queues[head[QUEUE]])
      and (not tasks or tasks[head[TASK]])
    if meant and visit(id, head) then return id end
  end
  return not query[1] and #ids == LOOK_AT and ids[#ids]
end
