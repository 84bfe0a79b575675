-- acquire: for each request, grants a permit, queues the request, or does neither.
--
-- A call may be repeated. If an ID already holds a permit, its lease restarts, and the reply has a
-- newer token. An ID in the queue keeps its ticket. While the queue is not empty, a `try` is not
-- granted, and a new `wait` joins the end of the queue. A new request with a ticket or a head start
-- may overtake others. If a request may be queued, the call is also a heartbeat of the client.
--
-- KEYS[1] permits   sorted set: ID -> expiry of its lease, ms on the server's clock
-- KEYS[2] queue     sorted set: ID -> ticket
-- KEYS[3] clients   sorted set: client -> alive until, ms on the server's clock
-- KEYS[4] state     hash: version, limits, last number, longest lease, expiry
-- ARGV[1] limit_mode  "declare" (ARGV[2] replaces the declared limit), "declare_if_unset" (ARGV[2]
--                   is declared if no limit exists), "initial" (ARGV[2] becomes the runtime limit
--                   if no limit exists), or "existing" (ignores ARGV[2])
-- ARGV[2] limit     0 to 4294967295
-- ARGV[3] heartbeat_timeout  1 to 604800000 ms: a client with no heartbeat for this time is dead
-- ARGV[4+] requests 1 to 1000 times: id, wait_mode
--   id              NOTIFY:CLIENT:WEIGHT:LEASE:NONCE; NOTIFY and CLIENT are the same in all IDs
--   wait_mode       "wait" (queue), "try" (do not queue), "+MS" (queue with a head start of 0 to
--                   3600000 ms), or the ticket of an earlier reply, 1 to 9007199254740991
-- Reply             server time (ms), wake_in, declared limit before this call (-1: none), then
--                   three integers for each request:
--   1 token expires_at  granted: fencing token, expiry of the lease (ms on the server's clock)
--   2 ticket position  queued: ticket, position in the queue (1: the head)
--   0 0 0           not granted, not queued
--   3 token expires_at  one entry that may replace all, if several requests are all granted with
--                   the same expiry; `token` is the first of their consecutive tokens
--   wake_in         ms until this client should call `wake`; 0: immediately; -1: no need
-- Errors            SEM_KEYS, SEM_ARG, SEM_TYPE, SEM_VERSION, SEM_TOO_HEAVY
-- Cost              O(log N) for each request, and for each waiter that leaves the queue.
--                   Commands for one request to a semaphore in use:
--   8               granted
--   8               granted with a weight above 1
--   7               not granted, empty queue
--   8               not granted behind others
--   10              queued behind others
--   10              queued again with its ticket
--   12              queued behind others, more than 16 clients wait
--   15              queued again, more than 16 clients wait
-- Flags             none
-- include: lib/arguments.lua
-- include: lib/ids.lua

local heartbeat_timeout = integer(ARGV[3], 1, MAX_TIME)
if not heartbeat_timeout then
  return wrong(3, 'heartbeat_timeout', 'an integer from 1 to 604800000')
end
local count, refusal = (#ARGV - 3) / 2, check_count(3, 2)
if refusal then
  return refusal
end
local ids, parts, wants_to_wait = {}, {}, false
for i = 1, count do
  local wait_mode, part = ARGV[2 * i + 3], read_id(2 * i + 2, 'id')
  ids[i], parts[i], wants_to_wait = ARGV[2 * i + 2], part, wants_to_wait or wait_mode ~= 'try'
  if part.err then
    return part
  elseif part ~= parts[1] and (part[1] ~= parts[1][1] or part[2] ~= parts[1][2]) then
    return wrong(2 * i + 2, 'id', 'of the same NOTIFY and CLIENT as the first')
  elseif wait_mode ~= 'wait' and wait_mode ~= 'try' and not integer(wait_mode, 1, MAX_NUMBER)
    and not integer(string.match(wait_mode, '^%+(.*)'), 0, 3600000) then
    return wrong(2 * i + 3, 'wait_mode', '"wait", "try", "+0" to "+3600000" or a ticket')
  end
end
local lookup = ids
-- include: lib/read.lua
-- include: lib/configure.lua

local wanted, expired = 0, {} -- weight of new requests; IDs whose leases have expired
for i = 1, count do
  local weight = parts[i][3]
  if ends[i] and ends[i] + 0 <= now then
    permits, held = permits - 1, held - weight
    ends[i], expired[#expired + 1] = false, ids[i]
  end
  if not ends[i] then
    wanted = wanted + weight
    if weight > limit and not runtime then
      return redis.error_reply(string.format(
        'SEM_TOO_HEAVY ARGV[%d] (id) weighs %.0f, the limit is %.0f', 2 * i + 2, weight, limit
      ))
    end
  end
end
if expired[1] then
  redis.call('ZREM', PERMITS, unpack(expired))
end
-- include: lib/expire.lua

local tickets = queued > 0 and redis.call('ZMSCORE', QUEUE, unpack(ids)) or {}
local may_queue = wants_to_wait and (queued > 0 or held + wanted > limit)
-- Requests that may overtake others are queued first. A new number replaces a ticket that cannot
-- have been issued. A head start lowers a new number, and is ignored if the clock was set back.
for i = 1, may_queue and count or 0 do
  local wait_mode, head_start = ARGV[2 * i + 3], string.match(ARGV[2 * i + 3], '^%+(.*)')
  local ticket = not head_start and tonumber(wait_mode)
  if (ticket or head_start) and not ends[i] and not tickets[i] then
    if head_start or ticket > math.max(last_number, now_us) then
      last_number = math.max(last_number + 1, now_us)
      ticket = math.max(1, last_number - (is_set_back and 0 or (head_start or 0) * 1000))
    end
    last_number, tickets[i] = math.max(last_number, ticket), ticket
    has_new_key, queued = has_new_key or queued == 0, queued + 1
    redis.call('ZADD', QUEUE, ticket, ids[i])
  end
end
-- include: lib/remember.lua
-- include: lib/serve.lua
local waits, refused, alike, same = false, 0, count > 1, parts[1][4]
local reply = {now, 0, declared_before, 0, 0, 0}
for i = 1, count do
  local id, part, at = ids[i], parts[i], 3 * i
  if ends[i] or asked[id] == 0 and queued == 0 and held + part[3] <= limit then
    local index = #granted + 1
    asked[id], granted[index], leases[index] = index, id, part[4]
    if not ends[i] then
      permits, held = permits + 1, held + part[3]
    end
  elseif asked[id] == 0 and tickets[i] then
    local position = redis.call('ZRANK', QUEUE, id) - (leaving and #leaving or 0) + 1
    reply[at + 1], reply[at + 2], reply[at + 3], waits = 2, tickets[i] + 0, position, true
  elseif asked[id] == 0 and ARGV[2 * i + 3] == 'try' then
    reply[at + 1], reply[at + 2], reply[at + 3], refused = 0, 0, 0, refused + 1
  elseif asked[id] == 0 then
    last_number = math.max(last_number + 1, now_us)
    has_new_key, queued = has_new_key or queued == 0, queued + 1
    redis.call('ZADD', QUEUE, last_number, id)
    reply[at + 1], reply[at + 2], reply[at + 3], waits = 2, last_number, queued, true
  end
  alike = alike and part[4] == same
end
if refused == count then
  -- This ZREM removes nothing. A replica rejects the ZREM, so it never returns "not granted".
  redis.call('ZREM', QUEUE, unpack(ids))
end
if waits and crowd > CALLERS then
  -- `waits` stays true for the client at the head, and for a random choice of the other clients.
  local n, seed = #(leaving or {}), parts[1][2] .. math.floor(now / heartbeat_timeout)
  waits = tonumber(sub(redis.sha1hex(seed), 1, 8), 16) % crowd < CALLERS
    or find(redis.call('ZRANGE', QUEUE, n, n)[1], ':' .. parts[1][2] .. ':', 1, true) == 2
end
-- include: lib/write.lua

if alike and #granted == count and not leaving then
  return {now, wake_in, declared_before, 3, token, now + same}
end
reply[2] = wake_in
for i = 1, count do
  local index, at = asked[ids[i]], 3 * i
  if index > 0 then
    reply[at + 1], reply[at + 2], reply[at + 3] = 1, token + index - 1, now + parts[i][4]
  end
end
return reply
