-- Reads the keys before the first write, and sets the local variables below. `ends` contains the
-- expiries of the IDs in `lookup` (false: no permit).
--
-- The keys `permits` and `clients` also have a member '*', so that no script empties these keys.
-- While a cluster slot is migrating, a server aborts a script that accesses a key after emptying
-- it. In `permits`, the score of '*' is minus the sum of (weight - 1) over all permits, so the held
-- weight is known without the other keys. In `clients`, the score is the longest heartbeat timeout.

local BOUND = 1000 -- a script examines at most 1,000 expired leases and 1,000 requests

local clock = redis.call('TIME')
local now_us = clock[1] * 1000000 + clock[2]
local now = math.floor(now_us / 1000) -- ms

local state = redis.pcall('HMGET', STATE,
  'version', 'declared', 'runtime', 'last_number', 'longest_lease', 'first_expiry', 'expire_at')
local permits, queued = redis.pcall('ZCARD', PERMITS), redis.pcall('ZCARD', QUEUE)
local clients = redis.pcall('ZCARD', CLIENTS)
local failed = state.err and state or type(permits) == 'table' and permits
  or type(queued) == 'table' and queued or type(clients) == 'table' and clients
if failed and not string.find(failed.err, 'WRONGTYPE ') then
  return failed -- for example, the user lacks the right to a command
elseif failed then
  local key = failed == state and STATE or failed == permits and PERMITS
    or failed == queued and QUEUE or CLIENTS
  return redis.error_reply('SEM_TYPE the key ' .. key .. ' exists and is not a '
    .. (key == STATE and 'hash' or 'sorted set'))
elseif state[1] and state[1] ~= '1' then
  return redis.error_reply('SEM_VERSION the semaphore was written by protocol version '
    .. state[1] .. ', these scripts speak version 1: upgrade the older, or use another prefix')
end

lookup[#lookup + 1] = '*'
local ends = redis.call('ZMSCORE', PERMITS, unpack(lookup))
local extra = ends[#lookup] and -ends[#lookup] -- the sum of (weight - 1) over all permits
lookup[#lookup] = nil
permits = extra and permits - 1 or permits
local held = permits + (extra or 0) -- the weight of all permits

local declared, runtime = tonumber(state[2]), tonumber(state[3])
local limit = runtime or declared or 0 -- the effective limit
local last_number = (state[4] or 0) + 0 -- microseconds; no token or ticket is higher
local longest_lease = (state[5] or 0) + 0 -- ms; no lease in use is longer
local first_expiry = (state[6] or 0) + 0 -- ms; no lease expires earlier
local expire_at = (state[7] or 0) + 0 -- ms; when the keys expire

-- Decisions for lib/write.lua:
local live_until = 0 -- ms; the keys must not expire earlier; 0 if this call changes nothing
local changed = {} -- fields of `state`, except `last_number`
local granted, leases = {}, {} -- IDs whose leases begin now; their leases in ms
local has_new_key, has_new_runtime = not extra, false
local more = false -- whether the script stopped at a bound, so that a client must call `wake`
local sweeps = false -- whether dead requests leave the queue although no permit is free

if not state[1] then
  -- The semaphore is new, or `state` was lost: permits may have any lease, and waiters any ticket.
  first_expiry = MAX_NUMBER
  if permits + queued + clients > 0 then
    longest_lease, first_expiry, live_until = MAX_TIME, 0, now + MAX_TIME
    last_number = (redis.call('ZRANGE', QUEUE, -1, -1, 'WITHSCORES')[2] or 0) + 0
  end
  changed = {version = '1', longest_lease = longest_lease, first_expiry = first_expiry}
end
local is_set_back = last_number > now_us + 1000000 -- the clock was set back by more than 1 s
