-- acquire: for each request, grants a permit, queues the request, or does neither.
--
-- A call may be repeated. If an ID already holds a permit, its lease restarts, and the reply has a
-- higher token. An ID in the queue keeps its ticket. While the queue is not empty, a new `try` is
-- not granted, and a new `wait` joins the end. A request with a head start or with the ticket of an
-- earlier reply may overtake others. If a request may be queued, the call is also a heartbeat.
--
-- KEYS[1] permits   sorted set: ID -> expiry of its lease, ms on the server's clock
-- KEYS[2] queue     sorted set: ID -> ticket
-- KEYS[3] clients   sorted set: client -> alive until, ms on the server's clock
-- KEYS[4] state     hash: version, limits, last number, longest lease, expiry
-- KEYS[5] order     with groups only: sorted set: requests by group and ticket
-- KEYS[6] turns     with groups only: sorted set: group -> start of its turn
-- ARGV[1] limit_mode  "declare" (ARGV[2] replaces the declared limit), "declare_if_unset" (ARGV[2]
--                   is declared if no limit exists), "initial" (ARGV[2] becomes the runtime limit
--                   if no limit exists), or "existing" (ignores ARGV[2])
-- ARGV[2] limit     0 to 4294967295
-- ARGV[3] heartbeat_timeout  1 to 604800000 ms: a client with no heartbeat for this time is dead
-- ARGV[4+] requests 1 to 1000 times: id, wait_mode
--   id              NOTIFY:CLIENT:WEIGHT:LEASE:NONCE, or with a group
--                   NOTIFY:CLIENT:WEIGHT:LEASE:GROUP,SHARE,CAP:NONCE; NOTIFY and CLIENT are the
--                   same in all IDs
--   wait_mode       "wait" (queue), "try" (do not queue), "+MS" (queue with a head start of 0 to
--                   3600000 ms), or the ticket of an earlier reply, 1 to 9007199254740991
-- Reply             server time (ms), wake_in, declared limit before this call (-1: none), then
--                   three integers for each request:
--   1 token expires_at  granted: fencing token, expiry of the lease (ms on the server's clock)
--   2 ticket position  queued: ticket, position in the queue (1: the head); in a semaphore with
--                   groups, position among the requests of its group
--   0 0 0           not granted, not queued
--   3 token expires_at  one entry that may replace all, if several requests are all granted with
--                   the same expiry; `token` is the first of their consecutive tokens
--   wake_in         ms until this client should call `wake`; 0: immediately; -1: no need
-- Errors            SEM_KEYS, SEM_ARG, SEM_TYPE, SEM_VERSION, SEM_GROUPS, SEM_TOO_HEAVY
-- Cost              O(log N) per request, per expired lease, and per waiter that leaves the queue.
--                   Commands for one request to a semaphore in use:
--   8               granted
--   8               granted with a weight above 1
--   7               not granted, empty queue
--   8               not granted behind others
--   10              queued behind others
--   12              queued behind others, first request of the client
--   14              queued, empty queue
--   10              queued again with its ticket
--   12              queued behind others, more than 16 clients wait
--   15              queued again, more than 16 clients wait
-- Flags             none
-- include: lib/arguments.lua
-- include: lib/ids.lua
-- include: lib/groups.lua
-- include: lib/semaphore.lua
-- include: lib/configure.lua
-- include: lib/expire.lua
-- include: lib/queue.lua
-- include: lib/channel.lua
-- include: lib/serve.lua
-- include: lib/commit.lua

local timeout = integer(ARGV[3], 1, MAX_TIME)
if not timeout then
  return wrong(ARGV, 3, 'heartbeat_timeout', 'an integer from 1 to 604800000')
end
local ids, parts, asked = read_ids(ARGV, 3, 2)
if ids.err then return ids end
local count, first, may_wait, has_group = #ids, parts[1], false, false
for i = 1, count do
  local part, mode = parts[i], ARGV[2 * i + 3]
  if part ~= first and (part.notify ~= first.notify or part.client ~= first.client) then
    return wrong(ARGV, 2 * i + 2, 'id', 'of the same NOTIFY and CLIENT as the first')
  elseif mode ~= 'wait' and mode ~= 'try' and not integer(mode, 1, MAX_NUMBER)
    and not integer(string.match(mode, '^%+(.*)'), 0, 3600000) then
    return wrong(ARGV, 2 * i + 3, 'wait_mode', '"wait", "try", "+0" to "+3600000" or a ticket')
  end
  may_wait, has_group = may_wait or mode ~= 'try', has_group or part.group
end
local s = read_semaphore(KEYS, ids, has_group)
if s.err then return s end
local declared_before = s.declared or -1
local failed = configure(s, ARGV)
if failed then return failed end

local ends, now, limit, runtime = s.ends, s.now, s.limit, s.runtime
local wanted, expired = 0, {} -- weight of requests without a permit; IDs with expired leases
for i = 1, count do
  local weight = parts[i].weight
  if ends[i] and ends[i] + 0 <= now then
    count_permit(s, ids[i], -weight)
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
if expired[1] then redis.call('ZREM', s.permits_key, unpack(expired)) end
remove_expired(s)

local tickets = s.queued > 0 and redis.call('ZMSCORE', s.queue_key, unpack(ids)) or {}
local groups, may_exceed_cap = (s.virtual or has_group) and groups_of(s), false
if groups then
  for i, part in ipairs(parts) do
    tickets[i] = tickets[i] and math.abs(tickets[i])
    may_exceed_cap = may_exceed_cap
      or not ends[i] and not groups.fits_cap(part.group, wanted, part.cap)
  end
end
local crowd, has_ticket = 0, false
if may_wait and (s.queued > 0 or s.held + wanted > limit or may_exceed_cap) then
  -- Requests with a ticket, a head start or a group may overtake others, so these requests enter
  -- the queue before it is served. A new number replaces a ticket that cannot have been issued. A
  -- head start is subtracted from a new number, or ignored if the clock was set back.
  local is_early = groups and s.queued == 0 -- whether no earlier request of the call waits
  for i, id in ipairs(ids) do
    local part, mode = parts[i], ARGV[2 * i + 3]
    local ahead = string.match(mode, '^%+(.*)')
    local ticket = not ahead and tonumber(mode)
    is_early = is_early and mode == 'try'
    if is_early and not ends[i] and groups.is_next(part) and s.held + part.weight <= limit then
      s.index_of[id] = grant(s, id, part.weight, part.lease)
    elseif (ticket or ahead or groups and mode == 'wait') and not ends[i] and not tickets[i] then
      if not ticket or ticket > math.max(s.last_number, s.now_us) then
        s.last_number = math.max(s.last_number + 1, s.now_us)
        ticket = math.max(1, s.last_number - (s.is_set_back and 0 or (ahead or 0) * 1000))
      end
      s.last_number, tickets[i] = math.max(s.last_number, ticket), ticket
      add_to_queue(s, part, id, ticket)
    elseif tickets[i] and groups then
      groups.enter(part, id, tickets[i]) -- in case a key was lost
    end
    has_ticket = has_ticket or tickets[i]
  end
  crowd = record_heartbeat(s, first.client, timeout)
end
-- If more than CALLERS clients wait, heartbeats remove dead requests from the head of the queue. So
-- a live client is at the head, and this client always calls `wake`.
serve_queue(s, asked, crowd > CALLERS and has_ticket)

local indexes, positions, waits = {}, {}, false
for i = 1, count do
  local id, part = ids[i], parts[i]
  indexes[i] = s.index_of[id] -- nil unless serve_queue has granted this request
  local is_next = not groups and s.queued == 0 or groups and not tickets[i] and groups.is_next(part)
  if not indexes[i] and (ends[i] or is_next and s.held + part.weight <= limit) then
    indexes[i] = grant(s, id, part.weight, part.lease, ends[i])
  elseif not indexes[i] and tickets[i] then
    positions[i], waits = groups and groups.position_of(part, id, tickets[i])
      or redis.call('ZRANK', s.queue_key, id) - #s.leaving + 1, true
  elseif not indexes[i] and ARGV[2 * i + 3] ~= 'try' then
    s.last_number = math.max(s.last_number + 1, s.now_us)
    add_to_queue(s, part, id, s.last_number)
    tickets[i], positions[i], waits = s.last_number, s.queued, true
  end
end
if not waits and not s.granted[1] then
  -- This ZREM removes nothing. A replica rejects the ZREM, and so never returns "not granted".
  redis.call('ZREM', s.queue_key, unpack(ids))
end
local wake_in = commit(s, waits and is_caller(s, first.client, timeout, crowd))

local token, lease, alike = s.token, first.lease, count > 1
for i = 1, count do
  alike = alike and indexes[i] == i and parts[i].lease == lease
end
if alike then return {now, wake_in, declared_before, 3, token, now + lease} end
local reply = {now, wake_in, declared_before, 0, 0, 0}
for i = 1, count do
  local index, at = indexes[i], 3 * i
  if index then
    reply[at + 1], reply[at + 2], reply[at + 3] = 1, token + index - 1, now + parts[i].lease
  elseif positions[i] then
    reply[at + 1], reply[at + 2], reply[at + 3] = 2, tickets[i] + 0, positions[i]
  else
    reply[at + 1], reply[at + 2], reply[at + 3] = 0, 0, 0
  end
end
return reply
