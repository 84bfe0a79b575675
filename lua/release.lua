-- release: gives permits back, or takes requests out of the queue, then serves the queue.
--
-- A call may be repeated: the second time the ids are unknown, and nobody else's permit is touched.
--
-- KEYS[1] permits   sorted set: permit id -> end of lease, ms on the server's clock
-- KEYS[2] queue     sorted set: request id -> ticket
-- KEYS[3] waiting   hash: request id -> weight, lease, heard until, wake, client
-- KEYS[4] state     hash: version, limits, last sequence number, weights above 1
-- ARGV[1] how       "return" (the weight is free again), or "consume" (it comes off the limit: the
--                   permit is used up, as the textbook's P does)
-- ARGV[2+] requests 1 to 1000 times: id
--   id              1 to 256 bytes, as given to `acquire`
-- Reply             server time (ms), wake_in, then for each id one integer:
--   1               it held a permit
--   2               it was queued
--   0               unknown: released before, or its lease ended
--   3               to several ids, once: each of them held a permit
--   wake_in         0: call `wake` at once, -1 no need
-- Errors            SEM_KEYS, SEM_ARG, SEM_TYPE, SEM_VERSION
-- Cost              O(log N) for each id and each waiter served. Commands for one id:
--   4               held, and nobody waits
--   15              held, and handed to the first who waits
--   8               unknown
-- Flags             allow-oom
-- include: lib/running.lua

-- Functions are made anew in each call, which takes time. So the common case comes first, and what
-- is seldom needed is made inside of what needs it.

local MAX_PASSED_ON = 100

-- Whether all these hold permits, each is given once, and none may be a mark. What holds a permit
-- is a proper id in all else.
local function all_hold(ids, ends, now)
  local seen, last_end = {}
  for i = 1, #ids do
    local id, its_end = ids[i], ends[i]
    -- Those granted in one call end together.
    if not its_end or seen[id] or its_end ~= last_end and its_end + 0 <= now then
      return false
    end
    seen[id], last_end = true, its_end
  end
  return not string.find(table.concat(ids), '+', 1, true)
end

-- The quick way where nobody queues: all ids hold permits. Answers nil where that is not so.
local function give_back(ids)
  local ends = redis.pcall('ZMSCORE', PERMITS, unpack(ids))
  local clock = redis.call('TIME')
  local now = math.floor(clock[1] * 1000 + clock[2] / 1000)
  if ends.err or not all_hold(ids, ends, now) then
    return
  end
  redis.call('ZREM', PERMITS, unpack(ids))
  return {now, -1, ids[2] and ALL or 1}
end

local found_listening = {} -- by client, where it was asked

-- Whether a client listens that is told of hand-offs in this way.
local function is_there(wake, client)
  if wake ~= 'poll' and found_listening[client] == nil then
    local count = wake == 'spublish' and 'SHARDNUMSUB' or 'NUMSUB'
    found_listening[client] = redis.pcall('PUBSUB', count, client)[2] ~= 0
  end
  return wake == 'poll' or found_listening[client]
end

-- What the waiters are to get, nil where one of them is heavy or gone, or has an unusual lease.
local function grants_for(waiters, now, token, longest)
  local records = redis.pcall('HMGET', WAITING, unpack(waiters))
  local grants = {entries = {}, messages = {}, longest = 0}
  if records.err then
    return
  end
  for i, record in ipairs(records) do
    local lease, heard_until, wake, client =
      string.match(record or '', '^1 (%d+) (%d+) (%a+) (%S+)$')
    if not lease or lease + 0 > longest or heard_until + 0 < now or not is_there(wake, client) then
      return
    end
    local ends = string.format('%.0f', now + lease)
    grants.entries[2 * i - 1], grants.entries[2 * i] = ends, waiters[i]
    grants.longest = math.max(grants.longest, lease)
    if wake ~= 'poll' then
      local publish = wake == 'spublish' and 'SPUBLISH' or 'PUBLISH'
      local message = grants.messages[client]
        or {publish = publish, text = string.match(PERMITS, '{(.*)}') or PERMITS}
      message.text = string.format('%s\n%s %.0f %s', message.text, waiters[i], token + i, ends)
      grants.messages[client] = message
    end
  end
  return grants
end

-- The quick way from those who hold to the first in the queue, who weigh 1 and are there. Answers
-- nil where there is more to it.
local function pass_on(ids)
  local state = redis.call('HMGET', STATE, 'limit', 'sequence', 'longest', 'keep')
  local members = redis.pcall('ZCARD', PERMITS)
  local free = type(members) == 'number' and members > 0 and state[1] - members + #ids or 0
  if free < 1 or free > MAX_PASSED_ON then
    return
  end
  local waiters = redis.pcall('ZRANGE', QUEUE, 0, free)
  local has_more = table.remove(waiters, free + 1) ~= nil
  local clock = redis.call('TIME')
  local now_us = clock[1] * 1000000 + clock[2]
  local now, token = math.floor(now_us / 1000), math.max(state[2], now_us - 1)
  local first = first_to_end(members, now, state[3])
  if not waiters[1] or not first
    or math.max(now + state[3], (token + free) / 1000) > state[4] + 0 then
    return -- the expiry may have to be moved
  end
  -- One alone is often the one whose lease ends first.
  local ends = ids[2] == nil and ids[1] == first[1] and {first[2]}
    or redis.call('ZMSCORE', PERMITS, unpack(ids))
  local grants = all_hold(ids, ends, now) and grants_for(waiters, now, token, state[3] + 0)
  if not grants then
    return
  end

  -- A server that is out of memory runs a script to its end if the first write frees some. In this
  -- order `permits` is never empty, so that it keeps its expiry.
  redis.call('ZREM', QUEUE, unpack(waiters))
  redis.call('HDEL', WAITING, unpack(waiters))
  redis.call('ZADD', PERMITS, unpack(grants.entries))
  redis.call('ZREM', PERMITS, unpack(ids))
  local longest = members == #ids and grants.longest or state[3]
  redis.call('HSET', STATE, 'sequence', token + #waiters, 'longest', longest,
    'version', has_more and LIGHT or PLAIN)
  for client, message in pairs(grants.messages) do
    redis.pcall(message.publish, client, message.text)
  end
  return {now, -1, ids[2] and ALL or 1}
end

local function release_at_once()
  if not ARE_FOUR_KEYS or ARGV[1] ~= 'return' or #ARGV < 2 or #ARGV > MAX_REQUESTS + 1 then
    return
  end
  local ids = {unpack(ARGV, 2)}
  local version = redis.pcall('HMGET', STATE, 'version')[1]
  if version == PLAIN then
    return give_back(ids)
  elseif version == LIGHT then
    return pass_on(ids)
  end
end

local released = release_at_once()
if released then
  return released
end

-- include: lib/queue.lua

local function check()
-- include: lib/plain.lua
  local how = ARGV[1]
  if ARE_FOUR_KEYS and #ARGV > 1 and #ARGV <= MAX_REQUESTS + 1
    and (how == 'return' or how == 'consume') and are_plain({unpack(ARGV, 2)}) then
    return
  end
-- include: lib/arguments.lua
  local refusal = check_keys()
    or (how ~= 'return' and how ~= 'consume' and wrong(1, 'how', '"return" or "consume"'))
    or check_requests(1, 1)
  local seen, index = {}, 2
  while not refusal and index <= #ARGV do
    refusal = check_id(index, seen)
    index = index + 1
  end
  return refusal
end

-- Takes the weight of the ids that still held off the limit.
local function consume(sem, statuses, ids, weights)
  local weight = 0
  for i, status in ipairs(statuses) do
    if status == 1 then
      weight = weight + weights[ids[i]]
    end
  end
  -- Where no limit is known, none is set: 0 would pause the semaphore for good.
  if weight > 0 and (sem.runtime or sem.declared) then
    sem.limit = math.max(0, sem.limit - weight)
    set_runtime(sem, sem.limit)
  end
end

local function release()
  local sem, refusal = open(check())
  if refusal then
    return refusal
  end
  sem.listens = found_listening
  repair(sem)
  local ids = {unpack(ARGV, 2)}
  local ends, tickets = ends_of(sem, ids), tickets_of(sem, ids)
  local statuses, permits, requests = {}, {}, {}
  for i, id in ipairs(ids) do
    statuses[i] = 0
    if ends[i] then
      permits[#permits + 1] = id
      statuses[i] = ends[i] > sem.now and 1 or 0
    end
    if tickets[i] then
      requests[#requests + 1] = id
      statuses[i] = 2
    end
  end
  local weights = remove_permits(sem, permits)
  leave_queue(sem, requests)
  if ARGV[1] == 'consume' then
    consume(sem, statuses, ids, weights)
  end
  hand_off(sem)
  finish(sem)
  return {sem.now, wake_in(sem, false), unpack(statuses)}
end

return release()
