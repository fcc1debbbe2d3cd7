-- follow_ups: the follow-up jobs of a job that ends. Needs common, rows, queues, moves.
-- gives: hex_of, insert_follow_ups

local FOLLOW_UP = '>Bc16I4c0I4c0I4c0I4c0'

local function hex_of(id)
  return (string.gsub(id, '.', function(one) return string.format('%02x', byte(one)) end))
end

-- The follow-up jobs of a follow-up job that is inserted now with this id: they name it in place of the placeholder,
-- which is as long, and their ids depend on its id. What they carry themselves stays as it is.
local function name_inserted(id, text)
  local hex, at, words = hex_of(id), 1, {}
  local dashed = string.gsub(hex, '^(%x%x%x%x%x%x%x%x)(%x%x%x%x)(%x%x%x%x)(%x%x%x%x)', '%1-%2-%3-%4-')
  local placeholder = string.gsub({ENDED_JOB_TEXT}, '-', '%%-')
  local function name(part)
    return (string.gsub(string.gsub(part, placeholder, dashed), {ENDED_JOB_HEX}, hex))
  end
  while at <= #text do
    local on, own, raw, times, record, inner
    on, own, raw, times, record, inner, at = struct.unpack(FOLLOW_UP, text, at)
    local mixed = string.gsub(sub(redis.sha1hex(id .. own), 1, 2 * {MIXED_BYTES}), '%x%x', function(two)
      return string.char(tonumber(two, 16))
    end)
    own = sub(own, 1, {KEPT_BYTES}) .. mixed .. sub(own, {KEPT_BYTES} + {MIXED_BYTES} + 1)
    raw, record = name(raw), name(record)
    words[#words + 1] = struct.pack(FOLLOW_UP, on, own, #raw, raw, #times, times, #record, record, #inner, inner)
  end
  return table.concat(words)
end

-- Inserts the follow-up jobs for this state. Their ids contain the epoch of the job, so each epoch makes each of them
-- once.
local function insert_follow_ups(id, head, state)
  local text, at = call('HGET', FOLLOW_UPS, id), 1
  local epoch = head[EPOCH] % {EPOCHS}
  local number = string.char(math.floor(epoch / 256), epoch % 256)
  while text and at <= #text do
    local on, own, raw, times, record, inner
    on, own, raw, times, record, inner, at = struct.unpack(FOLLOW_UP, text, at)
    own = sub(own, 1, {ID_BYTES} - 2) .. number
    if on == state and not anywhere(own) then
      local follower = new_head(raw, cmsgpack.unpack(times))
      local queue = queue_of(follower)
      if (queues_in({QUEUE_DRAINING}, {[queue] = true}) or {})[queue] == {REFUSED_SETTINGS} then
        with_queues()
        apply_settings(follower, settings_in(row_of(queue)))
      end
      call('ZADD', IDS, 0, own)
      put_beside(own, follower, record)
      if inner ~= '' then call('HSET', FOLLOW_UPS, own, name_inserted(own, inner)) end
      enter_line(own, follower)
    end
  end
end
