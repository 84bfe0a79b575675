-- The queue: waiters in the order of their tickets, and the hand-off to its head.
-- include: lib/semaphore.lua

-- Gives what is free to the waiters in their order, until the first of them does not fit. Whoever is
-- not there any more leaves without a permit. Those who call hear of it from the reply: `caller` is
-- their client, and `sem.granted` has {token, end of lease} for each that was served.
local function serve(sem, caller)
  local messages, listening = sem.messages, {} -- by channel: what to tell, whether anybody listens
  local channels = {P = string.match(stem, '^(.*):{') .. ':wake:', S = stem .. ':wake:'}

  -- Whether a waiter's client was heard of in time and listens. A server that does not say who
  -- listens counts as one where somebody does.
  local function is_there(how, client)
    local is_heard = client == caller or (redis.call('ZSCORE', CLIENTS, client) or 0) + 0 >= sem.now
    if not is_heard or how == 'N' then
      return is_heard
    end
    local channel = channels[how] .. client
    if listening[channel] == nil then
      local answer = redis.pcall('PUBSUB', how == 'S' and 'SHARDNUMSUB' or 'NUMSUB', channel)
      listening[channel] = answer[2] ~= 0
    end
    return listening[channel]
  end

  -- Has a waiter told of its permit, or with token 0 that it left the queue without one.
  local function tell(word, how, client, token, ends)
    if how ~= 'N' and not asked[word] then
      local channel = channels[how] .. client
      local message = messages[channel]
        or {how == 'S' and 'SPUBLISH' or 'PUBLISH', channel, string.match(stem, '{(.*)}')}
      message[3] = string.format('%s\n%s %.0f %.0f', message[3], word, token, ends)
      messages[channel] = message
    end
  end

  -- What the head of the queue gets. Answers whether it leaves.
  local function serve_one(word)
    local how, client, weight, lease = string.match(word, '^(%a):([^:]*):(%d+):(%d+)')
    weight = weight + 0
    if not asked[word] and not is_there(how, client) then
      return true
    elseif not sem.runtime and weight > sem.limit then
      tell(word, how, client, 0, 0)
    elseif sem.permits + sem.extra + weight > sem.limit then
      return false
    else
      sem.granted[word] = {grant(sem, word, weight, lease + 0)}
      tell(word, how, client, unpack(sem.granted[word]))
    end
    return true
  end

  local leaving, is_blocked = sem.leaving, false
  while sem.queued > 0 and not is_blocked and sem.permits + sem.extra < sem.limit do
    if #leaving >= BOUND then
      sem.more = true
      return
    end
    local count = math.min(100, math.max(sem.limit - sem.permits - sem.extra, #leaving))
    for _, word in ipairs(redis.call('ZRANGE', QUEUE, #leaving, #leaving + count - 1)) do
      is_blocked = is_blocked or not serve_one(word)
      if is_blocked then break end
      leaving[#leaving + 1] = word
      sem.queued = sem.queued - 1
    end
  end
end

-- Writes all, and tells last: a write that the server refuses (too few replicas, no disk) ends the
-- script before anybody is told. Words leave the queue after all else, since it may be empty then.
-- Answers when `wake` is worth a call, in ms: 0 at once, since the script stopped at a bound; for
-- those who wait when the next lease ends; -1 says that there is no need.
local function finish(sem, waits)
  save(sem)
  if sem.leaving[1] then
    call_in_chunks('ZREM', QUEUE, sem.leaving)
    for _, message in pairs(sem.messages) do
      redis.pcall(unpack(message))
    end
  end
  if sem.more then
    return 0
  end
  return waits and sem.first < MAX_NUMBER and math.max(1, sem.first - sem.now) or -1
end
