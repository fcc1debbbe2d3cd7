-- follow_ups: the follow-up jobs of a job that ends. Needs common, rows, queues, moves.
-- gives: insert_follow_ups

-- Inserts the follow-up jobs for this state. Their ids contain the epoch of the job, so each epoch makes each of them
-- once.
local function insert_follow_ups(id, head, state)
  local text, at = call('HGET', FOLLOW_UPS, id), 1
  local epoch = head[EPOCH] % {EPOCHS}
  local number = string.char(math.floor(epoch / 256), epoch % 256)
  while text and at <= #text do
    local on, own, raw, times, record
    on, own, raw, times, record, at = struct.unpack('>Bc16I4c0I4c0I4c0', text, at)
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
      enter_line(own, follower)
    end
  end
end
