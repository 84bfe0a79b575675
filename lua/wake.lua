-- wake: removes expired leases, then grants permits to waiters.
--
-- A waiting client calls this script `wake_in` ms after a reply. Calls at other times do no harm.
--
-- KEYS[1] permits   sorted set: ID -> expiry of its lease, ms on the server's clock
-- KEYS[2] queue     sorted set: ID -> ticket
-- KEYS[3] clients   sorted set: client -> alive until, ms on the server's clock
-- KEYS[4] state     hash: version, limits, last number, longest lease, expiry
-- KEYS[5] order     with groups only: sorted set: requests by group and ticket
-- KEYS[6] turns     with groups only: sorted set: group -> start of its turn
-- Reply             server time (ms), wake_in, length of the queue
--   wake_in         ms until this client should call `wake`; 0: immediately; -1: no need
-- Errors            SEM_KEYS, SEM_ARG, SEM_TYPE, SEM_VERSION, SEM_GROUPS
-- Cost              O(log N) per expired lease, and per waiter that leaves the queue. Commands:
--   7               nothing to do
-- Flags             allow-oom
-- include: lib/arguments.lua
-- include: lib/groups.lua
-- include: lib/semaphore.lua
-- include: lib/expire.lua
-- include: lib/channel.lua
-- include: lib/serve.lua
-- include: lib/commit.lua

if #ARGV > 0 then return redis.error_reply('SEM_ARG 0 arguments are needed, got ' .. #ARGV) end
local s = read_semaphore(KEYS, {})
if s.err then return s end
-- This ZREM removes nothing. A replica rejects the ZREM. A server that is out of memory accepts the
-- ZREM, and then also accepts the script's other writes.
redis.call('ZREM', s.permits_key, '')
remove_expired(s)
serve_queue(s, {})
return {s.now, commit(s, s.queued > 0), s.queued}
