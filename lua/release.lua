-- release: releases permits and removes queued requests, then grants permits to waiters.
--
-- A call may be repeated: the second time, the IDs are unknown, and no other permit is affected.
--
-- KEYS[1] permits   sorted set: ID -> expiry of its lease, ms on the server's clock
-- KEYS[2] queue     sorted set: ID -> ticket
-- KEYS[3] clients   sorted set: client -> alive until, ms on the server's clock
-- KEYS[4] state     hash: version, limits, last number, longest lease, expiry
-- KEYS[5] order     with groups only: sorted set: requests by group and ticket
-- KEYS[6] turns     with groups only: sorted set: group -> start of its turn
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
-- Errors            SEM_KEYS, SEM_ARG, SEM_TYPE, SEM_VERSION, SEM_GROUPS
-- Cost              O(log N) per ID, per expired lease, and per waiter that leaves the queue.
--                   Commands for one ID:
--   7               held with weight 1, empty queue
--   14              held, and granted to the first waiter
--   7               unknown
-- Flags             allow-oom
-- include: lib/arguments.lua
-- include: lib/ids.lua
-- include: lib/groups.lua
-- include: lib/semaphore.lua
-- include: lib/expire.lua
-- include: lib/cancel.lua
-- include: lib/channel.lua
-- include: lib/serve.lua
-- include: lib/commit.lua

local release_mode = ARGV[1]
if release_mode ~= 'return' and release_mode ~= 'forget' then
  return wrong(ARGV, 1, 'release_mode', '"return" or "forget"')
end
local ids, parts = read_ids(ARGV, 1, 1)
if ids.err then return ids end
local s = read_semaphore(KEYS, {})
if s.err then return s end
remove_expired(s)

-- The first write is always a ZREM, even if all IDs are unknown. A replica rejects the ZREM. A
-- server that is out of memory accepts the ZREM, and then also accepts the script's other writes.
local now, more, reply = s.now, s.more, {s.now, 0}
local freed, all_held = 0, #ids > 1
for i = 1, #ids do
  local id, weight, entry = ids[i], parts[i].weight, 0
  local has_ended = more and (redis.call('ZSCORE', s.permits_key, id) or 0) + 0 <= now
  if redis.call('ZREM', s.permits_key, id) == 1 then
    count_permit(s, id, -weight)
    entry = has_ended and 0 or 1
  elseif leave_queue(s, id) then
    entry = 2
  end
  reply[i + 2], all_held = entry, all_held and entry == 1
  freed = entry == 1 and freed + weight or freed
end
if release_mode == 'forget' and freed > 0 and (s.runtime or s.declared) then
  s.runtime, s.has_new_runtime = math.max(0, s.limit - freed), true
  s.limit, s.live_until = s.runtime, math.max(s.live_until, s.now)
end
serve_queue(s, {})
reply[2] = commit(s)
return all_held and {s.now, reply[2], 3} or reply
