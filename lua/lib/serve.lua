-- Gives what is free to the waiters in the order of their tickets, until the first of them does not
-- fit. Whoever is not there any more leaves without a permit: where the call `sweeps`, up to the
-- first that is there. Leaves `granted`, `leases`, `leaving` and `told` for lib/write.lua.
--
-- Whoever is there was heard of in time (as the caller was, with what it asks for) and listens; a
-- server that does not say who listens counts as one where somebody does. A member of the queue
-- that is no ID leaves it. As many are read at once as may fit, and more and more of them where
-- dead ones leave.

local leaving, told -- IDs that leave the queue, and those of whom a client must be told
if queued > 0 and (held < limit or sweeps) then
  leaving, told = {}, {}
  local listening, is_blocked = {}, false -- whether anybody listens, by channel
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
        if asked[id] then -- never too heavy: `acquire` has refused that
          asked[id] = index
        elseif channel then
          told[#told + 1] = {id, channel, notify, not is_too_heavy and index}
        end
      end
      leaving[#leaving + 1], queued = id, queued - 1
    end
  end
  more = more or queued > 0 and held < limit and not is_blocked
end
