-- wake: removes expired leases, then grants permits to waiters.
--
-- A waiting client calls this script `wake_in` ms after a reply. Calls at other times do no harm.
--
-- KEYS[1] permits   sorted set: ID -> expiry of its lease, ms on the server's clock
-- KEYS[2] queue     sorted set: ID -> ticket
-- KEYS[3] clients   sorted set: client -> alive until, ms on the server's clock
-- KEYS[4] state     hash: version, limits, last number, longest lease, expiry
-- Reply             server time (ms), wake_in, length of the queue
--   wake_in         ms until this client should call `wake`; 0: immediately; -1: no need
-- Errors            SEM_KEYS, SEM_ARG, SEM_TYPE, SEM_VERSION
-- Cost              O(log N) for each waiter that leaves the queue. Commands:
--   7               nothing to do
-- Flags             allow-oom
-- include: lib/arguments.lua

if #ARGV > 0 then
  return wrong_number(0)
end
local asked, lookup = {}, {}
-- include: lib/read.lua

-- This ZREM removes nothing. A replica rejects the ZREM. A server that is out of memory accepts the
-- ZREM, and then lets the script continue.
redis.call('ZREM', PERMITS, '')
-- include: lib/expire.lua
-- include: lib/serve.lua
local waits = queued > 0
-- include: lib/write.lua

return {now, wake_in, queued}
