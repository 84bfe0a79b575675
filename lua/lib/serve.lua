-- Grants free permits to the waiters, in the order of their tickets, until a request does not fit.
-- Dead requests leave the queue without a permit. If `sweeps` is set, the dead requests before the
-- first live request leave the queue even if no permit is free. The results are in `granted`,
-- `leases`, `leaving` and `notices`. lib/write.lua writes and sends them.
--
-- A request is alive if it is part of this call, or if its client has sent a heartbeat in time and
-- is subscribed. If the server cannot count subscribers, a client counts as subscribed. A member
-- that is not an ID leaves the queue. The queue is read in batches of at most 100 requests. A batch
-- is as large as the free weight. It is larger if more requests than that have already left.

local leaving, notices -- IDs that leave the queue; IDs whose clients get a message
if queued > 0 and (held < limit or sweeps) then
  leaving, notices = {}, {}
  local listening, is_blocked = {}, false -- `listening`: channel -> whether it has subscribers
  while queued > 0 and (held < limit or sweeps) and not is_blocked and #leaving < BOUND do
    local batch = math.min(100, BOUND - #leaving, math.max(limit - held, #leaving, 1))
    for _, id in ipairs(redis.call('ZRANGE', QUEUE, #leaving, #leaving + batch - 1)) do
      if held >= limit and not sweeps then
        break
      end
      local notify, client, weight, lease = string.match(id, '^([PSN]):([^:]*):(%d+):(%d+):')
      local channel = notify and notify ~= 'N'
        and string.match(stem, notify == 'S' and '.*' or '^(.*):{') .. ':wake:' .. client
      local is_there = asked[id]
        or notify and (redis.call('ZSCORE', CLIENTS, client) or 0) + 0 >= now
      if is_there and channel and not asked[id] then
        if listening[channel] == nil then
          local answer = redis.pcall('PUBSUB', notify == 'S' and 'SHARDNUMSUB' or 'NUMSUB', channel)
          listening[channel] = answer[2] ~= 0
        end
        is_there = listening[channel]
      end
      if is_there then
        local is_too_heavy = not runtime and weight + 0 > limit
        is_blocked = held >= limit or not is_too_heavy and held + weight > limit
        if is_blocked then
          break
        end
        local index = #granted + 1
        if not is_too_heavy then
          granted[index], leases[index] = id, lease + 0
          permits, held = permits + 1, held + weight
        end
        if asked[id] then -- `acquire` has rejected requests that are too heavy
          asked[id] = index
        elseif channel then
          notices[#notices + 1] = {id, channel, notify, not is_too_heavy and index}
        end
      end
      leaving[#leaving + 1], queued = id, queued - 1
    end
  end
  more = more or queued > 0 and held < limit and not is_blocked
end
