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
--   19              held, and handed to the first who waits
--   8               unknown
-- include: lib/plain.lua

-- Functions are made anew in each call, which takes time. So the common case comes first, and what
-- is seldom needed is made inside of what needs it.

local count = #ARGV - 1
local is_sound = #KEYS == 4 and count >= 1 and count <= MAX_REQUESTS
  and (ARGV[1] == 'return' or ARGV[1] == 'consume')
local ids = is_sound and {unpack(ARGV, 2)}
is_sound = is_sound and are_plain(ids)

-- The quick way: all ids hold permits, and `version` says that nobody queues and no weight is above
-- 1. Answers nil where that is not so.
local function give_back()
  if redis.pcall('HMGET', STATE, 'version')[1] ~= PLAIN then
    return
  end
  local ends = redis.pcall('ZMSCORE', PERMITS, unpack(ids))
  if ends.err then
    return
  end
  local clock = redis.call('TIME')
  local now = math.floor(clock[1] * 1000 + clock[2] / 1000)
  local reply = {now, -1}
  for i = 1, count do
    if not ends[i] then
      return
    end
    reply[i + 2] = ends[i] + 0 > now and 1 or 0
  end
  redis.call('ZREM', PERMITS, unpack(ids))
  return reply
end

local given_back = is_sound and ARGV[1] == 'return' and give_back()
if given_back then
  return given_back
end

-- include: lib/queue.lua

local function check()
-- include: lib/arguments.lua
  local how = ARGV[1]
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
local function consume(sem, statuses, weights)
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
  local sem, refusal = open(not is_sound and check() or nil)
  if refusal then
    return refusal
  end
  repair(sem)
  ids = ids or {unpack(ARGV, 2)}
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
    consume(sem, statuses, weights)
  end
  hand_off(sem)
  finish(sem)
  return {sem.now, wake_in(sem, false), unpack(statuses)}
end

return release()
