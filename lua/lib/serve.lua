-- Grants free permits to the waiters, in the order of their tickets.

-- Decides about the request that is next. Returns true if the request leaves the queue, because it
-- is granted, too heavy, dead, or not an ID; "at_cap" if its group is at its cap; false if the
-- request does not fit the limit. Requests in `asked` are part of this call,
-- and alive. Other requests are alive if their client is subscribed and sent a heartbeat in time.
-- With NOTIFY N, or if the server cannot count subscribers, the heartbeat is sufficient.
-- `listening`: channel -> whether the channel has subscribers.
local function serve_request(s, id, asked, listening)
  local notify, client, weight, lease, rest = string.match(id, '^([PSN]):([^:]*):(%d+):(%d+):()')
  if not notify then return true end
  local channel = notify ~= 'N' and not asked[id] and channel_of(s.permits_key, notify, client)
  if not asked[id] and (redis.call('ZSCORE', s.clients_key, client) or 0) + 0 < s.now then
    return true
  elseif channel and listening[channel] == nil then
    local reply = redis.pcall('PUBSUB', notify == 'S' and 'SHARDNUMSUB' or 'NUMSUB', channel)
    listening[channel] = reply[2] ~= 0
  end
  if channel and not listening[channel] then return true end
  if s.virtual then
    local group, cap = string.match(id, '^([^:,]+),%d+,(%d+):', rest)
    if group and not groups_of(s).fits_cap(group, weight + 0, cap + 0) then return 'at_cap' end
  end
  local is_too_heavy = not s.runtime and weight + 0 > s.limit
  if s.held >= s.limit or not is_too_heavy and s.held + weight > s.limit then
    return false
  elseif not is_too_heavy then
    s.index_of[id] = grant(s, id, weight + 0, lease + 0)
  end
  if channel then
    s.notices[#s.notices + 1] = {id = id, channel = channel, notify = notify}
  end
  return true
end

-- Serves up to BOUND requests, until one does not fit. If `sweeps` is true, dead requests before
-- the first live request leave the queue even if no permit is free. The queue is read in batches of
-- 1 to 100 requests: as many as the free weight or, if higher, as the requests removed so far.
local function serve_queue(s, asked, sweeps)
  if s.virtual then return groups_of(s).serve(asked, sweeps, serve_request) end
  if s.queued == 0 or s.held >= s.limit and not sweeps then return end
  local leaving, listening, is_blocked = s.leaving, {}, false
  while s.queued > 0 and (s.held < s.limit or sweeps) and not is_blocked and #leaving < BOUND do
    local left = #leaving
    local batch = math.min(100, BOUND - left, math.max(s.limit - s.held, left, 1))
    for _, id in ipairs(redis.call('ZRANGE', s.queue_key, left, left + batch - 1)) do
      if s.held >= s.limit and not sweeps then break end
      is_blocked = not serve_request(s, id, asked, listening)
      if is_blocked then break end
      leaving[#leaving + 1], s.queued = id, s.queued - 1
    end
  end
  s.more = s.more or s.queued > 0 and s.held < s.limit and not is_blocked
end
