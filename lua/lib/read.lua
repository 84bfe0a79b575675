-- Reads the keys, before anything is written. Needs `lookup`, some IDs; leaves in `ends` when
-- their leases end, false where they have none, and all that stands under "local" here.
--
-- `permits` and `clients` have one member more, '*', so that neither key is ever emptied. (While a
-- slot of a cluster moves, an empty key ends the script that comes back to it.) In `permits` its
-- score is minus what permits weigh above 1 each: so what is held can be counted whatever other key
-- is lost. In `clients` it is the longest heartbeat timeout so far, 0 if no client has waited yet.

local BOUND = 1000 -- so many ended leases, and so many waiters, one script looks at at most

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
  return failed -- such as a command that the caller may not use
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
local extra = ends[#lookup] and -ends[#lookup] -- what permits weigh above 1 each
lookup[#lookup] = nil
permits = extra and permits - 1 or permits
local held = permits + (extra or 0) -- what all permits weigh

local declared, runtime = tonumber(state[2]), tonumber(state[3])
local limit = runtime or declared or 0 -- the one in force
local last_number = (state[4] or 0) + 0 -- the last token or ticket given: microseconds, as `now_us`
local longest_lease = (state[5] or 0) + 0 -- no lease in use is longer, ms
local first_expiry = (state[6] or 0) + 0 -- no lease ends before, ms
local expire_at = (state[7] or 0) + 0 -- when the keys expire, ms

-- What is decided from here on, for lib/write.lua.
local live_until = 0 -- until when the keys must live for this call, ms; 0 where nothing changes
local changed = {} -- fields of `state`, but for `last_number`
local granted, leases = {}, {} -- IDs whose lease begins now, and their leases
local has_new_key, has_new_runtime = not extra, false
local more = false -- the script stopped at a bound: somebody must call `wake`
local sweeps = false -- dead requests at the head of the queue leave it though nothing is free

if not state[1] then
  -- New, or `state` was lost: whoever is there may have any lease, and any ticket.
  first_expiry = MAX_NUMBER
  if permits + queued + clients > 0 then
    longest_lease, first_expiry, live_until = MAX_TIME, 0, now + MAX_TIME
    last_number = (redis.call('ZRANGE', QUEUE, -1, -1, 'WITHSCORES')[2] or 0) + 0
  end
  changed = {version = '1', longest_lease = longest_lease, first_expiry = first_expiry}
end
local is_set_back = last_number > now_us + 1000000 -- the server's clock, by more than a second
