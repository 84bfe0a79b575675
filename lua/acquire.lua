-- acquire: grants a permit to each request, or queues it, or refuses it.
--
-- A call may be repeated: an id that holds a permit is granted again (same permit, its lease starts
-- anew, the token is newer), an id that is queued keeps its ticket and counts as heard of. While
-- anybody is queued, new requests go behind, and tries are refused. Who is queued is served first.
--
-- KEYS[1] permits   sorted set: permit id -> end of lease, ms on the server's clock
-- KEYS[2] queue     sorted set: request id -> ticket
-- KEYS[3] waiting   hash: request id -> weight, lease, heard until, wake, client
-- KEYS[4] state     hash: version, limits, last sequence number, weights above 1
-- ARGV[1] kind      "declared" or "initial": what `limit` is when the state is gone
-- ARGV[2] limit     0 to 4294967295: used when no limit is in force, else ignored
-- ARGV[3] client    1 to 256 bytes, no blank or control character: the channel of the client's
--                   wake-ups, with "poll" any name
-- ARGV[4] wake      "publish", "spublish" (sharded channel), or "poll" (no message: ask again)
-- ARGV[5] liveness  1 to 604800000 ms: a queued request not asked for again in that time may go
-- ARGV[6+] requests 1 to 1000 times: id, weight, lease, place
--   id              1 to 256 bytes, no blank or control character, no "+" in front, unique for
--                   each acquire
--   weight          1 to 4294967295
--   lease           1 to 604800000 ms
--   place           "try" (never queue), "wait" (queue), or the ticket that the request had,
--                   1 to 9007199254740991
-- Reply             server time (ms), wake_in, then for each request three integers:
--   1 token end     granted: fencing token, end of lease (ms on the server's clock)
--   2 ticket rank   queued: ticket, rank in the queue (1 is the head)
--   0 0 0           refused
--   3 token end     to several requests, once: all are granted, with the same end of lease; the
--                   first has this token, each next one the next number
--   wake_in         ms until `wake` is worth a call: 0 at once, -1 no need
-- Errors            SEM_KEYS, SEM_ARG, SEM_TYPE, SEM_VERSION, SEM_TOO_HEAVY
-- Cost              O(log N) for each request and each waiter served. Commands for one request:
--   5               granted
--   6               granted, and nobody else holds
--   8               granted with a weight above 1
--   10              refused
--   12              queued behind others
--   12              queued, asked for again with its ticket
-- Flags             none
-- include: lib/plain.lua
-- include: lib/running.lua

-- Functions are made anew in each call, which takes time. So the common case comes first, and what
-- is seldom needed is made inside of what needs it.

local FIXED, SIZE = 5, 4
local LARGEST_COUNT, LAST_TICKET = '4294967295', '9007199254740991' -- MAX_COUNT, MAX_SEQUENCE

-- The ids, and their lease where all want the same, weigh 1 and are new; nil where anything about
-- the arguments wants a closer look.
local function read_requests()
  local arguments = ARGV
  local kind, limit, client, wake, liveness = unpack(arguments, 1, FIXED)
  local count = (#arguments - FIXED) / SIZE
  if not ARE_FOUR_KEYS or count < 1 or count > MAX_REQUESTS or count % 1 ~= 0
    or (kind ~= 'declared' and kind ~= 'initial')
    or (wake ~= 'publish' and wake ~= 'spublish' and wake ~= 'poll')
    or client == '' or #client > MAX_ID
    -- What is less than '1' is nothing, or begins with a zero. Nine digits are less than the
    -- largest count, eight less than the longest lease.
    or limit < '0' or #limit > 9 and (#limit > 10 or limit > LARGEST_COUNT)
    or liveness < '1' or #liveness > 8 then
    return
  end
  local ids, numbers, are_light = {}, {limit, liveness}, true
  local last_weight, last_lease, last_place
  local index = FIXED + 1
  for i = 1, count do
    local weight, lease, place = arguments[index + 1], arguments[index + 2], arguments[index + 3]
    ids[i] = arguments[index]
    index = index + SIZE
    -- Mostly all requests of a call want the same.
    if lease ~= last_lease or weight ~= last_weight or place ~= last_place then
      if weight < '1' or #weight > 9 or lease < '1' or #lease > 8 then
        return
      end
      numbers[#numbers + 1] = lease .. weight
      are_light = are_light and weight == '1' and (i == 1 or lease == last_lease)
      if place ~= 'wait' and place ~= 'try' then
        if place < '1' or #place > 16 or #place == 16 and place > LAST_TICKET then
          return
        end
        numbers[#numbers + 1], are_light = place, false
      end
      last_weight, last_lease, last_place = weight, lease, place
    end
  end
  if string.find(table.concat(numbers) .. ' ' .. client, '^%d+ [!-~]+$') and are_plain(ids) then
    return ids, are_light and last_lease
  end
end

-- The quick way where nobody queues, and whatever is asked for is new and fits. Answers nil where
-- that is not so.
local function grant_at_once(ids, lease, state)
  local members = redis.pcall('ZCARD', PERMITS)
  if type(members) == 'table' or members + #ids > state[2] + 0 then
    return
  end
  local clock = redis.call('TIME')
  local now_us = clock[1] * 1000000 + clock[2]
  local now = math.floor(now_us / 1000)
  local token = math.max(state[3], now_us - 1)
  local ends, longest = now + lease, math.max(members == 0 and 0 or state[4], lease)
  local text = string.format('%.0f', ends)
  local reply = {now, -1, ids[2] and ALL or 1, token + 1, ends}
  local entries = {}
  for i = 1, #ids do
    entries[2 * i - 1], entries[2 * i] = text, ids[i]
  end
  token = token + #ids
  if math.max(now + longest, token / 1000) > state[5] + 0 then
    return -- the expiry must be moved
  end
  local added = 0
  for from = 1, #entries, MAX_REQUESTS do
    local last = math.min(from + MAX_REQUESTS - 1, #entries)
    added = added + redis.call('ZADD', PERMITS, 'NX', unpack(entries, from, last))
  end
  if added < #ids then
    -- Some are not new: they hold, or their lease has ended, which the long way tells. Those that
    -- are new are taken back for it, if they can be told from others that end in the same ms.
    local new = {}
    for i, found in ipairs(redis.call('ZMSCORE', PERMITS, unpack(ids))) do
      new[#new + 1] = found == entries[2 * i - 1] and ids[i] or nil
    end
    if #new == added then
      if added > 0 then
        redis.call('ZREM', PERMITS, unpack(new))
      end
      return
    end
    -- Those others hold, so the leases of all begin anew.
    for from = 1, #entries, MAX_REQUESTS do
      local last = math.min(from + MAX_REQUESTS - 1, #entries)
      redis.call('ZADD', PERMITS, unpack(entries, from, last))
    end
  end
  if longest == state[4] + 0 then
    redis.call('HSET', STATE, 'sequence', token)
  else
    redis.call('HSET', STATE, 'sequence', token, 'longest', longest)
  end
  if members == 0 then
    redis.call('PEXPIREAT', PERMITS, state[5])
  end
  return reply
end

-- The quick way behind others who queue, where all that may be held is held. Answers nil where
-- there is more to it.
local function queue_at_once(ids, lease, state)
  local members, queued = redis.pcall('ZCARD', PERMITS), redis.pcall('ZCARD', QUEUE)
  local limit = state[2] + 0
  if type(members) == 'table' or members < limit or limit == 0 or queued == 0
    or redis.pcall('HLEN', WAITING) ~= queued then
    return
  end
  local clock = redis.call('TIME')
  local now_us = clock[1] * 1000000 + clock[2]
  local now = math.floor(now_us / 1000)
  local ticket, heard_until = math.max(state[3], now_us - 1), now + ARGV[5]
  local first = first_to_end(members, now, state[4])
  if not first or math.max(heard_until, (ticket + #ids) / 1000) > state[5] + 0 then
    return -- the expiry must be moved
  end
  local ends = redis.call('ZMSCORE', PERMITS, unpack(ids))
  local queued_as = redis.call('ZMSCORE', QUEUE, unpack(ids))
  for i = 1, #ids do
    if ends[i] or queued_as[i] or ARGV[FIXED + SIZE * i] ~= 'wait' then
      return -- it holds, or is queued already, or does not queue
    end
  end
  local record =
    table.concat({1, lease, string.format('%.0f', heard_until), ARGV[4], ARGV[3]}, ' ')
  local reply, tickets, records = {now, math.max(1, first[2] - now)}, {}, {}
  for i, id in ipairs(ids) do
    tickets[2 * i - 1], tickets[2 * i] = ticket + i, id
    records[2 * i - 1], records[2 * i] = id, record
    reply[3 * i], reply[3 * i + 1], reply[3 * i + 2] = 2, ticket + i, queued + i
  end
  for from = 1, #tickets, MAX_REQUESTS do
    local last = math.min(from + MAX_REQUESTS - 1, #tickets)
    redis.call('ZADD', QUEUE, unpack(tickets, from, last))
    redis.call('HSET', WAITING, unpack(records, from, last))
  end
  redis.call('HSET', STATE, 'sequence', ticket + #ids)
  return reply
end

local function acquire_at_once(ids, lease)
  local state = redis.pcall('HMGET', STATE, 'version', 'limit', 'sequence', 'longest', 'keep')
  if state[1] == PLAIN then
    return grant_at_once(ids, lease, state)
  elseif state[1] == LIGHT then
    return queue_at_once(ids, lease, state)
  end
end

local plain_ids, light_lease = read_requests()
local acquired = light_lease and acquire_at_once(plain_ids, light_lease)
if acquired then
  return acquired
end

-- include: lib/queue.lua

local function check()
-- include: lib/arguments.lua
  local function check_request(index, seen)
    local place = ARGV[index + 3]
    return check_id(index, seen)
      or check_integer(index + 1, 'weight', 1, MAX_COUNT)
      or check_integer(index + 2, 'lease', 1, MAX_LEASE)
      or (place ~= 'try' and place ~= 'wait' and check_integer(index + 3, 'place', 1, MAX_SEQUENCE)
        and wrong(index + 3, 'place', '"try", "wait" or a ticket'))
  end

  local kind = ARGV[1]
  local refusal = check_keys()
    or (kind ~= 'declared' and kind ~= 'initial' and wrong(1, 'kind', '"declared" or "initial"'))
    or check_integer(2, 'limit', 0, MAX_COUNT)
    or check_word(3, 'client')
    or check_wake(4)
    or check_integer(5, 'liveness', 1, MAX_LEASE)
    or check_requests(FIXED, SIZE)
  local seen, index = {}, FIXED + 1
  while not refusal and index <= #ARGV do
    refusal = check_request(index, seen)
    index = index + SIZE
  end
  return refusal
end

local function list_requests()
  local list, ids = {}, {}
  for index = FIXED + 1, #ARGV, SIZE do
    list[#list + 1] = {
      index = index,
      id = ARGV[index],
      weight = tonumber(ARGV[index + 1]),
      lease = tonumber(ARGV[index + 2]),
      place = ARGV[index + 3],
    }
    ids[#ids + 1] = ARGV[index]
  end
  return list, ids
end

-- Marks the requests that hold a permit, and those whose lease has ended.
local function find_permits(sem, requests, ids)
  local ends = ends_of(sem, ids)
  for i, request in ipairs(requests) do
    request.holds = ends[i] and ends[i] > sem.now
    request.ended = ends[i] and not request.holds
  end
end

local function remove_ended(sem, requests)
  local ended = {}
  for _, request in ipairs(requests) do
    ended[#ended + 1] = request.ended and request.id or nil
  end
  remove_permits(sem, ended)
end

local function check_weights(sem, requests)
  if sem.runtime then
    return
  end
  for _, request in ipairs(requests) do
    if request.weight > sem.limit and not request.holds then
      return redis.error_reply(string.format(
        'SEM_TOO_HEAVY ARGV[%d] (weight) is %.0f, the limit is %.0f',
        request.index + 1, request.weight, sem.limit
      ))
    end
  end
end

local function record_of(sem, request)
  return record(sem, request.weight, request.lease, tonumber(ARGV[5]), ARGV[4], ARGV[3])
end

-- Finds the requests that are queued, and counts them as heard of now.
local function find_queued(sem, requests, ids)
  local tickets, heard = tickets_of(sem, ids), {}
  for i, request in ipairs(requests) do
    sem.asking[request.id] = true
    if tickets[i] then
      request.ticket = tickets[i]
      heard[#heard + 1] = request.id
      heard[#heard + 1] = record_of(sem, request)
    end
  end
  if #heard > 0 then
    call_in_chunks('HSET', WAITING, heard)
    sem.new_queue = sem.new_queue or sem.waiting <= 0
  end
end

-- A ticket is believed when it can have been given: a waiter that comes back gets its old place,
-- which may be in front of others.
local function ticket_of(sem, request)
  local ticket = tonumber(request.place)
  if ticket and ticket <= sem.sequence then
    sem.reordered = true
    return ticket
  end
  return next_sequence(sem)
end

-- Decides on one request, after the queue was served.
local function decide(sem, request)
  local id = request.id
  if sem.granted[id] then
    return
  end
  if request.holds then
    sem.granted[id] = {next_sequence(sem), renew(sem, id, request.lease)}
  elseif request.ticket then
    request.queued = request.ticket
  elseif sem.queued == 0 and make_room(sem, request.weight) then
    grant(sem, id, request.weight, request.lease)
  elseif request.place ~= 'try' then
    request.queued = ticket_of(sem, request)
    enqueue(sem, id, request.queued, record_of(sem, request))
    request.position = sem.queued
  end
end

local function answer(sem, requests)
  local reply, waits = {sem.now, 0}, false
  for _, request in ipairs(requests) do
    local granted = sem.granted[request.id]
    local first, second, third = 0, 0, 0
    if granted then
      first, second, third = 1, granted[1], granted[2]
    elseif request.queued then
      waits = true
      if sem.reordered or not request.position then
        request.position = redis.call('ZRANK', QUEUE, request.id) + 1
      end
      first, second, third = 2, request.queued, request.position
    end
    reply[#reply + 1] = first
    reply[#reply + 1] = second
    reply[#reply + 1] = third
  end
  reply[2] = wake_in(sem, waits)
  return reply
end

local function acquire()
  local sem, refusal = open(not plain_ids and check() or nil)
  if refusal then
    return refusal
  end
  local has_limit = sem.declared or sem.runtime
  if not has_limit then
    sem.limit = tonumber(ARGV[2])
    sem.runtime = ARGV[1] == 'initial' and sem.limit or nil
  end
  local list, ids = list_requests()
  find_permits(sem, list, ids)
  local too_heavy = check_weights(sem, list)
  if too_heavy then
    return too_heavy
  end

  repair(sem)
  if not has_limit and sem.runtime then
    sem.runtime = nil
    set_runtime(sem, sem.limit)
  elseif not has_limit then
    set_declared(sem, sem.limit)
  end
  remove_ended(sem, list)
  find_queued(sem, list, ids)
  hand_off(sem)
  for _, request in ipairs(list) do
    decide(sem, request)
  end
  write_permits(sem)
  write_queue(sem)
  if sem.reordered then
    hand_off(sem)
  end
  local reply = answer(sem, list)
  finish(sem)
  return reply
end

return acquire()
