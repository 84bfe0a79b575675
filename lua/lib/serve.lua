-- Gives what is free to the waiters in the order of their tickets, until the first of them does not
-- fit. Whoever is not there any more leaves without a permit.

local leaving, told = {}, {} -- words that leave the queue, and those of whom a client must be told
if queued > 0 and held < limit then
  local listening = {} -- whether anybody listens, by channel

  -- Whether a client was heard of in time (as the caller was, with what it asks for) and listens. A
  -- server that does not say who listens counts as one where somebody does.
  local function is_there(how, client)
    local heard_until = redis.call('ZSCORE', CLIENTS, client) or 0
    if heard_until + 0 < now or how == 'N' then
      return heard_until + 0 >= now
    end
    local channel = channel_of(how, client)
    if listening[channel] == nil then
      local answer = redis.pcall('PUBSUB', how == 'S' and 'SHARDNUMSUB' or 'NUMSUB', channel)
      listening[channel] = answer[2] ~= 0
    end
    return listening[channel]
  end

  local is_blocked = false
  while queued > 0 and held < limit and not is_blocked do
    if #leaving >= BOUND then
      more = true
      break
    end
    local last_one = #leaving + math.min(100, math.max(limit - held, #leaving)) - 1
    for _, word in ipairs(redis.call('ZRANGE', QUEUE, #leaving, last_one)) do
      local how, client, weight, lease = string.match(word, '^(%a):([^:]*):(%d+):(%d+)')
      local is_too_heavy = not runtime and weight + 0 > limit
      if held >= limit then
        break
      end
      if asked[word] or is_there(how, client) then
        if not is_too_heavy and held + weight > limit then
          is_blocked = true
          break
        end
        if not is_too_heavy then
          local index = #granted + 1
          granted[index], leases[index], index_of[word] = word, lease + 0, index
          permits, held = permits + 1, held + weight
        end
        if how ~= 'N' and not asked[word] then
          told[#told + 1] = {word, how, client, lease}
        end
      end
      leaving[#leaving + 1], queued = word, queued - 1
    end
  end
end
