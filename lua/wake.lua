-- wake: removes ended leases, and hands what is free to the queue.
--
-- A waiting client calls this when `wake_in` of an earlier reply has passed. It is never wrong to
-- call it.
--
-- KEYS[1] permits   sorted set: ID -> expiry of its lease, ms on the server's clock
-- KEYS[2] queue     sorted set: ID -> ticket
-- KEYS[3] clients   sorted set: client -> alive until, ms on the server's clock
-- KEYS[4] state     hash: version, limits, last number, longest lease, expiry
-- Reply             server time (ms), wake_in, queue length
--   wake_in         ms until the next call is worth it: 0 at once, -1 no need
-- Errors            SEM_KEYS, SEM_ARG, SEM_TYPE, SEM_VERSION
-- Cost              O(log N) for each waiter served. Commands:
--   7               nothing to do
-- Flags             allow-oom
-- include: lib/arguments.lua

if #ARGV > 0 then
  return wrong_number(0)
end
local asked, lookup = {}, {}
-- include: lib/read.lua

redis.call('ZREM', PERMITS, '') -- removes nothing; lets a full server go on, a replica refuse
-- include: lib/expire.lua
-- include: lib/serve.lua
local waits = queued > 0
-- include: lib/write.lua

return {now, wake_in, queued}
