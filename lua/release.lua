-- release: releases permits and removes queued requests, then grants permits to waiters.
--
-- A call may be repeated: the second time, the IDs are unknown, and no other permit is affected.
--
-- KEYS[1] permits   sorted set: ID -> expiry of its lease, ms on the server's clock
-- KEYS[2] queue     sorted set: ID -> ticket
-- KEYS[3] clients   sorted set: client -> alive until, ms on the server's clock
-- KEYS[4] state     hash: version, limits, last number, longest lease, expiry
-- ARGV[1] release_mode  "return" (frees the weight), or "forget" (frees it, and subtracts it from
--                   the limit)
-- ARGV[2+] requests 1 to 1000 times: id
--   id              as given to `acquire`
-- Reply             server time (ms), wake_in, then one integer for each ID:
--   1               it held a permit
--   2               it was queued
--   0               it is unknown: it neither held a permit nor was queued
--   3               a single entry for all IDs, if several were given and all held a permit
--   wake_in         0: call `wake` immediately; -1: no need
-- Errors            SEM_KEYS, SEM_ARG, SEM_TYPE, SEM_VERSION
-- Cost              O(log N) per ID, and per waiter that leaves the queue. Commands for one ID:
--   7               held, empty queue
--   14              held, and granted to the first waiter
--   7               unknown
-- Flags             allow-oom
-- include: lib/arguments.lua
-- include: lib/ids.lua

local release_mode = ARGV[1]
if release_mode ~= 'return' and release_mode ~= 'forget' then
  return wrong(1, 'release_mode', '"return" or "forget"')
end
local count, refusal = #ARGV - 1, check_count(1, 1)
if refusal then
  return refusal
end
local parts = {}
for i = 1, count do
  parts[i] = read_id(i + 1, 'id')
  if parts[i].err then
    return parts[i]
  end
end
local lookup = {}
-- include: lib/read.lua
-- include: lib/expire.lua

-- The first write is always a ZREM, even if the ID is unknown. A replica rejects the ZREM. A server
-- that is out of memory accepts the ZREM, and then lets the script continue.
local reply, freed, all_held = {now, 0}, 0, count > 1
for i = 1, count do
  local id = ARGV[i + 1]
  local has_ended = more and (redis.call('ZSCORE', PERMITS, id) or 0) + 0 <= now
  if redis.call('ZREM', PERMITS, id) == 1 then
    permits, held = permits - 1, held - parts[i][3]
    reply[i + 2] = has_ended and 0 or 1
    freed = has_ended and freed or freed + parts[i][3]
  elseif queued > 0 and redis.call('ZREM', QUEUE, id) == 1 then
    reply[i + 2], queued = 2, queued - 1
  else
    reply[i + 2] = 0
  end
  all_held = all_held and reply[i + 2] == 1
end
if release_mode == 'forget' and freed > 0 and (runtime or declared) then
  runtime, has_new_runtime = math.max(0, limit - freed), true
  limit, changed.runtime, live_until = runtime, runtime, math.max(live_until, now)
end
-- include: lib/serve.lua
local waits = false
-- include: lib/write.lua

reply[2] = wake_in
return all_held and {now, wake_in, 3} or reply
