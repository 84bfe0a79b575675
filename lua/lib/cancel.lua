-- Removes a request from the queue, and returns whether it was in the queue.
local function leave_queue(s, id)
  if s.queued == 0 then return false end
  local name = s.virtual and string.match(id, '^%a:[^:]*:%d+:%d+:([^:,]+),')
  local ticket = name and redis.call('ZSCORE', s.queue_key, id)
  if redis.call('ZREM', s.queue_key, id) == 0 then return false end
  s.queued = s.queued - 1
  if s.virtual then
    groups_of(s).leave(name or '', ticket and -ticket, id)
  end
  return true
end
