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
--   id              as given to `acquire`
-- Reply             server time (ms), wake_in, then for each id one integer:
--   1               it held a permit
--   2               it was queued
--   0               unknown: released before, or its lease ended
--   wake_in         0: call `wake` at once, -1 no need
-- Errors            SEM_KEYS, SEM_ARG, SEM_TYPE, SEM_VERSION
-- Cost              O(log N) for each id and each waiter served. Commands for one id:
--   4               held, and nobody waits
--   16              held, and handed to the first who waits
--   8               unknown
-- include: lib/plain.lua

-- Functions are made anew in each call, which takes time. So the common case comes first, and what
-- is seldom needed is made inside of what needs it.

-- The quick way where nobody queues: all ids hold permits. Answers nil where that is not so.
local function give_back(ids)
  local ends = redis.pcall('ZMSCORE', PERMITS, unpack(ids))
  if ends.err then
    return
  end
  local clock = redis.call('TIME')
  local now = math.floor(clock[1] * 1000 + clock[2] / 1000)
  local reply = {now, -1}
  for i = 1, #ids do
    if not ends[i] then
      return
    end
    reply[i + 2] = ends[i] + 0 > now and 1 or 0
  end
  redis.call('ZREM', PERMITS, unpack(ids))
  return reply
end

local found_listening = {} -- by client, where it was asked

-- The quick way from one holder to the first in the queue, who weighs 1 and is there. Answers nil
-- where there is more to it.
local function pass_on(ids)
  local id = ids[1]
  local state = redis.call('HMGET', STATE, 'limit', 'sequence', 'longest', 'keep')
  local members = redis.pcall('ZCARD', PERMITS)
  local heads = redis.pcall('ZRANGE', QUEUE, 0, 1)
  if #ids > 1 or members == 0 or members ~= state[1] + 0 or not heads[1] then
    return -- more than one place becomes free, or none
  end
  local records = redis.pcall('HMGET', WAITING, heads[1])
  local lease, heard_until, wake, client =
    string.match(records[1] or '', '^1 (%d+) (%d+) (%a+) (%S+)$')
  local clock = redis.call('TIME')
  local now_us = clock[1] * 1000000 + clock[2]
  local now, token = math.floor(now_us / 1000), math.max(state[2] + 1, now_us)
  local first = redis.call('ZRANGE', PERMITS, 0, 0, 'WITHSCORES')[2] + 0
  local last = members == 1 and first or redis.call('ZRANGE', PERMITS, -1, -1, 'WITHSCORES')[2] + 0
  if not lease or heard_until + 0 < now or first <= now or last > now + state[3]
    or lease + 0 > state[3] + 0 or math.max(now + lease, token / 1000) > state[4] + 0
    or not redis.call('ZMSCORE', PERMITS, id)[1] then
    return -- somebody is gone, the clock stepped back, an expiry must be moved, or id is unknown
  end
  if wake ~= 'poll' then
    local count = wake == 'spublish' and 'SHARDNUMSUB' or 'NUMSUB'
    if redis.pcall('PUBSUB', count, client)[2] == 0 then
      found_listening[client] = false
      return
    end
  end

  -- In this order no key is ever empty, so that all keep their expiry.
  local ends = string.format('%.0f', now + lease)
  redis.call('ZADD', PERMITS, ends, heads[1])
  redis.call('ZREM', PERMITS, id)
  redis.call('ZREM', QUEUE, heads[1])
  redis.call('HDEL', WAITING, heads[1])
  redis.call('HSET', STATE, 'sequence', token, 'version', heads[2] and LIGHT or PLAIN)
  if wake ~= 'poll' then
    local name = string.match(PERMITS, '{(.*)}') or PERMITS
    local message = string.format('%s\n%s %.0f %s', name, heads[1], token, ends)
    local publish = wake == 'spublish' and 'SPUBLISH' or 'PUBLISH'
    redis.pcall(publish, client, message)
  end
  return {now, -1, 1}
end

local function release_at_once()
  if #KEYS ~= 4 or ARGV[1] ~= 'return' or #ARGV < 2 or #ARGV > MAX_REQUESTS + 1 then
    return
  end
  local ids = {unpack(ARGV, 2)}
  if #ids > 1 and not are_plain(ids) then
    return -- one alone is right if it is found
  end
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
  local how = ARGV[1]
  if #KEYS == 4 and #ARGV > 1 and #ARGV <= MAX_REQUESTS + 1
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
