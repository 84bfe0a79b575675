#!lua name=redis_semaphore
-- Made from scripts: change those, not this file.

redis.register_function{
  function_name = 'sem_acquire',
  flags = {},
  callback = function(KEYS, ARGV)
local MAX_COUNT = 4294967295 -- the highest limit and weight: 2^32 - 1
local MAX_TIME = 604800000 -- the longest lease and heartbeat timeout: seven days in ms
local MAX_NUMBER = 9007199254740991 -- the highest token and ticket: 2^53 - 1, exact as a double
local ARGV, sub, find = ARGV, string.sub, string.find -- faster than globals

local PERMITS, QUEUE, CLIENTS, STATE = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
-- The common beginning of the four keys: the prefix, and the semaphore's name in braces.
local stem = string.match(PERMITS or '', '^([^{}]*:{[^{}]+}):permits$')
local misnamed = not stem and 1 or QUEUE ~= stem .. ':queue' and 2
  or CLIENTS ~= stem .. ':clients' and 3 or STATE ~= stem .. ':state' and 4

local function shown(text)
  local short = text and string.gsub(sub(text, 1, 40), '[^\32-\126]', '?')
  return text and '"' .. short .. '"' or 'nothing'
end

if #KEYS ~= 4 or misnamed then
  return redis.error_reply('SEM_KEYS 4 keys are needed, in this order: PREFIX:{NAME}:permits, '
    .. 'PREFIX:{NAME}:queue, PREFIX:{NAME}:clients, PREFIX:{NAME}:state; got '
    .. (#KEYS ~= 4 and #KEYS or shown(KEYS[misnamed]) .. ' as KEYS[' .. misnamed .. ']'))
end

local function wrong(index, name, wanted)
  return redis.error_reply('SEM_ARG ARGV[' .. index .. '] (' .. name .. ') must be ' .. wanted
    .. ', got ' .. shown(ARGV[index]))
end

local function wrong_number(wanted)
  return redis.error_reply('SEM_ARG ' .. wanted .. ' arguments are needed, got ' .. #ARGV)
end

-- Returns `text` as a number if it is a decimal integer from `min` to `max` without leading zeros.
local function integer(text, min, max)
  local number = text and (find(text, '^[1-9]%d*$') or text == '0') and text + 0
  return number and number >= min and number <= max and number
end
local function check_count(fixed, each)
  local count = (#ARGV - fixed) / each
  if count < 1 or count > 1000 or count % 1 ~= 0 then
    return redis.error_reply('SEM_ARG 1 to 1000 requests of ' .. each
      .. ' arguments must follow the first ' .. fixed .. ', got ' .. #ARGV .. ' in all')
  end
end

local asked = {} -- ID of this call -> index in `granted` (0: not granted)
local start, size, said -- of the last ID: text before the nonce, length of this text, parts

-- Returns {notify, client, weight, lease} for the ID in ARGV[index], or an error. If `weight` is
-- nil, any weight of 1 or more is valid. Otherwise the ID must have the given weight.
local function read_id(index, name, weight)
  local id = ARGV[index]
  if not start or find(id, start, 1, true) ~= 1 then
    local pattern = '^([PSN]):([%w._-]+):(' .. (weight or '[1-9]%d*') .. '):([1-9]%d*):()'
    local notify, client, weighs, lease, nonce = string.match(id, pattern)
    said = notify and #client <= 100 and {notify, client, weighs + 0, lease + 0}
    if not said or said[3] > MAX_COUNT or said[4] > MAX_TIME then
      return wrong(index, name, 'NOTIFY:CLIENT:WEIGHT:LEASE:NONCE with a client of 1 to 100 '
        .. 'characters, a weight ' .. (weight and 'of ' .. weight or 'from 1 to 4294967295')
        .. ' and a lease from 1 to 604800000')
    end
    start, size = sub(id, 1, nonce - 1), nonce - 1
  end
  if #id < size + 16 or #id > size + 64 or not find(id, '^[A-Za-z0-9_-]+$', size + 1) then
    return wrong(index, name, 'one with a nonce of 16 to 64 letters, digits, "_" or "-"')
  elseif asked[id] then
    return wrong(index, name, 'given once in a call')
  end
  asked[id] = 0
  return said
end

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
local how, number = ARGV[1], integer(ARGV[2], 0, MAX_COUNT)
if how ~= 'declare' and how ~= 'declare_if_unset' and how ~= 'initial' and how ~= 'existing' then
  return wrong(1, 'limit_mode', '"declare", "declare_if_unset", "initial" or "existing"')
elseif not number then
  return wrong(2, 'limit', 'an integer from 0 to 4294967295')
end
local declared_before, is_known = declared or -1, declared or runtime
if how == 'declare' and number ~= declared or how == 'declare_if_unset' and not is_known then
  declared, changed.declared, live_until = number, number, math.max(live_until, now)
elseif how == 'initial' and not is_known then
  runtime, changed.runtime, live_until = number, number, math.max(live_until, now)
  has_new_runtime = true
end
limit = runtime or declared or 0

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
if is_set_back then
  redis.call('ZREM', PERMITS, '') -- removes nothing; lets a full server accept the ZADD below
  local longest_timeout = redis.call('ZSCORE', CLIENTS, '*') or 0
  for key, latest in pairs({[PERMITS] = now + longest_lease, [CLIENTS] = now + longest_timeout}) do
    local beyond = redis.call('ZRANGEBYSCORE', key, '(' .. latest, '+inf', 'LIMIT', 0, BOUND)
    for _, member in ipairs(beyond) do
      redis.call('ZADD', key, latest, member)
    end
    first_expiry, more = beyond[1] and 0 or first_expiry, more or #beyond == BOUND
  end
end
if first_expiry <= now then
  local ended = redis.call('ZRANGEBYSCORE', PERMITS, '(0', now, 'LIMIT', 0, BOUND)
  for _, id in ipairs(ended) do
    permits, held = permits - 1, held - (string.match(id, '^%a:[^:]*:(%d+)') or 1)
  end
  if ended[1] then
    redis.call('ZREM', PERMITS, unpack(ended))
  end
  local first = redis.call('ZRANGEBYSCORE', PERMITS, '(0', '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  first_expiry, more = (first[2] or MAX_NUMBER) + 0, more or #ended == BOUND
  changed.first_expiry = first_expiry
  live_until = math.max(live_until, now)
end

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
local CALLERS, crowd = 16, 0
if may_queue then
  local alive_until = now + heartbeat_timeout
  local added = redis.call('ZADD', CLIENTS, 'GT', ARGV[3], '*', alive_until, parts[1][2])
  if added > 0 then
    has_new_key = has_new_key or added == 2
    local dead = redis.call('ZRANGEBYSCORE', CLIENTS, '(' .. MAX_TIME, '(' .. now, 'LIMIT', 0, 2)
    redis.call('ZREM', CLIENTS, '', unpack(dead)) -- '' is no member; `dead` may be empty
  end
  live_until = math.max(live_until, alive_until)
  last_number = math.max(last_number, now_us - 1) -- so scripts notice if the clock is set back
  crowd = clients > CALLERS
    and redis.call('ZCOUNT', CLIENTS, now + math.floor(heartbeat_timeout * 3 / 5), '+inf') or 0
  sweeps = crowd > CALLERS and tickets[1]
end
local leaving, notices -- IDs that leave the queue; IDs whose clients get a message
if queued > 0 and (held < limit or sweeps) then
  leaving, notices = {}, {}
  local listening, is_blocked = {}, false -- `listening`: channel -> whether it has subscribers
  while queued > 0 and (held < limit or sweeps) and not is_blocked and #leaving < BOUND do
    local batch = math.min(100, BOUND - #leaving, math.max(limit - held, #leaving, 1))
    for _, id in ipairs(redis.call('ZRANGE', QUEUE, #leaving, #leaving + batch - 1)) do
      if held >= limit and not sweeps then
        break
      end
      local notify, client, weight, lease = string.match(id, '^([PSN]):([^:]*):(%d+):(%d+):')
      local channel = notify and notify ~= 'N'
        and string.match(stem, notify == 'S' and '.*' or '^(.*):{') .. ':wake:' .. client
      local is_there = asked[id]
        or notify and (redis.call('ZSCORE', CLIENTS, client) or 0) + 0 >= now
      if is_there and channel and not asked[id] then
        if listening[channel] == nil then
          local answer = redis.pcall('PUBSUB', notify == 'S' and 'SHARDNUMSUB' or 'NUMSUB', channel)
          listening[channel] = answer[2] ~= 0
        end
        is_there = listening[channel]
      end
      if is_there then
        local is_too_heavy = not runtime and weight + 0 > limit
        is_blocked = held >= limit or not is_too_heavy and held + weight > limit
        if is_blocked then
          break
        end
        local index = #granted + 1
        if not is_too_heavy then
          granted[index], leases[index] = id, lease + 0
          permits, held = permits + 1, held + weight
        end
        if asked[id] then -- `acquire` has rejected requests that are too heavy
          asked[id] = index
        elseif channel then
          notices[#notices + 1] = {id, channel, notify, not is_too_heavy and index}
        end
      end
      leaving[#leaving + 1], queued = id, queued - 1
    end
  end
  more = more or queued > 0 and held < limit and not is_blocked
end
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
local token = math.max(last_number + 1, now_us)
local entries, text = {}, nil
for i = 1, #granted do
  local lease = leases[i]
  if lease ~= leases[i - 1] then
    local held_until = now + lease
    -- If all leases in use begin now, the longest of them is the longest lease.
    if lease > longest_lease or i == 1 and #granted == permits and lease ~= longest_lease then
      longest_lease, changed.longest_lease = lease, lease
    end
    if held_until < first_expiry then
      first_expiry, changed.first_expiry = held_until, held_until
    end
    live_until = math.max(live_until, held_until)
    text = string.format('%.0f', held_until)
  end
  entries[2 * i - 1], entries[2 * i] = text, granted[i]
end
if granted[1] then
  last_number = token + #granted - 1
end
if held - permits ~= extra and (extra or permits > 0) then
  entries[#entries + 1], entries[#entries + 2] = permits - held, '*'
  live_until = math.max(live_until, now)
end
for from = 1, #entries, 1000 do
  redis.call('ZADD', PERMITS, unpack(entries, from, math.min(from + 999, #entries)))
end
if live_until > 0 then
  local must_last = math.max(live_until, math.floor(last_number / 1000)) -- so numbers only grow
  local moves = must_last > expire_at
  if moves then
    expire_at = must_last + math.max(60000, must_last - now)
    changed.expire_at = expire_at
  end
  local fields = {'last_number', last_number}
  for field, value in pairs(changed) do
    fields[#fields + 1], fields[#fields + 2] = field, value
  end
  redis.call('HSET', STATE, unpack(fields))
  if moves or has_new_key then
    for _, key in ipairs({PERMITS, QUEUE, CLIENTS}) do
      redis.pcall('PEXPIREAT', key, expire_at) -- fails if a migrating slot lacks the key
    end
  end
  if runtime and has_new_runtime then
    redis.call('PERSIST', STATE) -- a runtime limit stays until it is cleared
  elseif not runtime and (moves or has_new_runtime) then
    redis.call('PEXPIREAT', STATE, expire_at + 7200000) -- so numbers grow if the clock is set back
  end
end
-- The queue is written last: a ZREM may empty it, and no script may access a key that it emptied.
if leaving then
  for from = 1, #leaving, 1000 do
    redis.call('ZREM', QUEUE, unpack(leaving, from, math.min(from + 999, #leaving)))
  end
  local lines_for = {} -- the lines of each message, by channel
  for _, it in ipairs(notices) do
    local id, channel, notify, index = unpack(it)
    local lines = lines_for[channel] or {string.match(stem, '{(.*)}'), notify = notify}
    lines[#lines + 1] = string.format('%s %.0f %.0f', id,
      index and token + index - 1 or 0, index and now + leases[index] or 0)
    lines_for[channel] = lines
  end
  for channel, lines in pairs(lines_for) do
    local command = lines.notify == 'S' and 'SPUBLISH' or 'PUBLISH'
    redis.pcall(command, channel, table.concat(lines, '\n'))
  end
end
local wake_in = more and 0
  or waits and first_expiry < MAX_NUMBER and math.max(1, first_expiry - now) or -1

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
end,
}

redis.register_function{
  function_name = 'sem_inspect',
  flags = {'no-writes'},
  callback = function(KEYS, ARGV)
local MAX_COUNT = 4294967295 -- the highest limit and weight: 2^32 - 1
local MAX_TIME = 604800000 -- the longest lease and heartbeat timeout: seven days in ms
local MAX_NUMBER = 9007199254740991 -- the highest token and ticket: 2^53 - 1, exact as a double
local ARGV, sub, find = ARGV, string.sub, string.find -- faster than globals

local PERMITS, QUEUE, CLIENTS, STATE = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
-- The common beginning of the four keys: the prefix, and the semaphore's name in braces.
local stem = string.match(PERMITS or '', '^([^{}]*:{[^{}]+}):permits$')
local misnamed = not stem and 1 or QUEUE ~= stem .. ':queue' and 2
  or CLIENTS ~= stem .. ':clients' and 3 or STATE ~= stem .. ':state' and 4

local function shown(text)
  local short = text and string.gsub(sub(text, 1, 40), '[^\32-\126]', '?')
  return text and '"' .. short .. '"' or 'nothing'
end

if #KEYS ~= 4 or misnamed then
  return redis.error_reply('SEM_KEYS 4 keys are needed, in this order: PREFIX:{NAME}:permits, '
    .. 'PREFIX:{NAME}:queue, PREFIX:{NAME}:clients, PREFIX:{NAME}:state; got '
    .. (#KEYS ~= 4 and #KEYS or shown(KEYS[misnamed]) .. ' as KEYS[' .. misnamed .. ']'))
end

local function wrong(index, name, wanted)
  return redis.error_reply('SEM_ARG ARGV[' .. index .. '] (' .. name .. ') must be ' .. wanted
    .. ', got ' .. shown(ARGV[index]))
end

local function wrong_number(wanted)
  return redis.error_reply('SEM_ARG ' .. wanted .. ' arguments are needed, got ' .. #ARGV)
end

-- Returns `text` as a number if it is a decimal integer from `min` to `max` without leading zeros.
local function integer(text, min, max)
  local number = text and (find(text, '^[1-9]%d*$') or text == '0') and text + 0
  return number and number >= min and number <= max and number
end

if #ARGV ~= 4 then
  return wrong_number(4)
end
local arguments = {'holders_offset', 'holders_count', 'waiters_offset', 'waiters_count'}
for index, argument in ipairs(arguments) do
  local max = index % 2 == 0 and 1000 or MAX_NUMBER
  if not integer(ARGV[index], 0, max) then
    return wrong(index, argument, string.format('an integer from 0 to %.0f', max))
  end
end
local lookup = {}
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

-- Calls `visit(member, score)` for each member of a page.
local function each(key, from, count, visit)
  local flat = count > 0 and redis.call('ZRANGE', key, from, from + count - 1, 'WITHSCORES') or {}
  for i = 1, #flat, 2 do
    visit(flat[i], flat[i + 1] + 0)
  end
end

local from = extra and 1 or 0 -- '*' sorts before all IDs
local ended = redis.call('ZCOUNT', PERMITS, '(0', now)
each(PERMITS, from, math.min(ended, BOUND), function(id)
  held = held - (string.match(id, '^%a:[^:]*:(%d+)') or 1)
end)
local held_by, waiting, waiters = {}, {}, {}
each(PERMITS, from + ended + ARGV[1], ARGV[2] + 0, function(id, held_until)
  held_by[#held_by + 1], held_by[#held_by + 2] = id, held_until - now
end)
each(QUEUE, ARGV[3] + 0, ARGV[4] + 0, function(id, ticket)
  waiters[#waiters + 1] = string.match(id, '^%a:([^:]*)') or ''
  waiting[#waiting + 1] = id
  local head_start = string.match(id, ':headstart(%d+)%-[^:]*$') or 0 -- ms
  waiting[#waiting + 1] = math.max(0, now - math.floor(ticket / 1000) - head_start)
  waiting[#waiting + 1] = -1
end)
local heard = waiters[1] and redis.call('ZMSCORE', CLIENTS, unpack(waiters)) or {}
for i, alive_until in ipairs(heard) do
  waiting[3 * i] = math.max(-1, (alive_until or 0) - now)
end
return {
  now, runtime or declared or -1, declared or -1, runtime or -1,
  held, permits - ended, queued, last_number, held_by, waiting,
}
end,
}

redis.register_function{
  function_name = 'sem_limit',
  flags = {},
  callback = function(KEYS, ARGV)
local MAX_COUNT = 4294967295 -- the highest limit and weight: 2^32 - 1
local MAX_TIME = 604800000 -- the longest lease and heartbeat timeout: seven days in ms
local MAX_NUMBER = 9007199254740991 -- the highest token and ticket: 2^53 - 1, exact as a double
local ARGV, sub, find = ARGV, string.sub, string.find -- faster than globals

local PERMITS, QUEUE, CLIENTS, STATE = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
-- The common beginning of the four keys: the prefix, and the semaphore's name in braces.
local stem = string.match(PERMITS or '', '^([^{}]*:{[^{}]+}):permits$')
local misnamed = not stem and 1 or QUEUE ~= stem .. ':queue' and 2
  or CLIENTS ~= stem .. ':clients' and 3 or STATE ~= stem .. ':state' and 4

local function shown(text)
  local short = text and string.gsub(sub(text, 1, 40), '[^\32-\126]', '?')
  return text and '"' .. short .. '"' or 'nothing'
end

if #KEYS ~= 4 or misnamed then
  return redis.error_reply('SEM_KEYS 4 keys are needed, in this order: PREFIX:{NAME}:permits, '
    .. 'PREFIX:{NAME}:queue, PREFIX:{NAME}:clients, PREFIX:{NAME}:state; got '
    .. (#KEYS ~= 4 and #KEYS or shown(KEYS[misnamed]) .. ' as KEYS[' .. misnamed .. ']'))
end

local function wrong(index, name, wanted)
  return redis.error_reply('SEM_ARG ARGV[' .. index .. '] (' .. name .. ') must be ' .. wanted
    .. ', got ' .. shown(ARGV[index]))
end

local function wrong_number(wanted)
  return redis.error_reply('SEM_ARG ' .. wanted .. ' arguments are needed, got ' .. #ARGV)
end

-- Returns `text` as a number if it is a decimal integer from `min` to `max` without leading zeros.
local function integer(text, min, max)
  local number = text and (find(text, '^[1-9]%d*$') or text == '0') and text + 0
  return number and number >= min and number <= max and number
end
local function check_count(fixed, each)
  local count = (#ARGV - fixed) / each
  if count < 1 or count > 1000 or count % 1 ~= 0 then
    return redis.error_reply('SEM_ARG 1 to 1000 requests of ' .. each
      .. ' arguments must follow the first ' .. fixed .. ', got ' .. #ARGV .. ' in all')
  end
end

local asked = {} -- ID of this call -> index in `granted` (0: not granted)
local start, size, said -- of the last ID: text before the nonce, length of this text, parts

-- Returns {notify, client, weight, lease} for the ID in ARGV[index], or an error. If `weight` is
-- nil, any weight of 1 or more is valid. Otherwise the ID must have the given weight.
local function read_id(index, name, weight)
  local id = ARGV[index]
  if not start or find(id, start, 1, true) ~= 1 then
    local pattern = '^([PSN]):([%w._-]+):(' .. (weight or '[1-9]%d*') .. '):([1-9]%d*):()'
    local notify, client, weighs, lease, nonce = string.match(id, pattern)
    said = notify and #client <= 100 and {notify, client, weighs + 0, lease + 0}
    if not said or said[3] > MAX_COUNT or said[4] > MAX_TIME then
      return wrong(index, name, 'NOTIFY:CLIENT:WEIGHT:LEASE:NONCE with a client of 1 to 100 '
        .. 'characters, a weight ' .. (weight and 'of ' .. weight or 'from 1 to 4294967295')
        .. ' and a lease from 1 to 604800000')
    end
    start, size = sub(id, 1, nonce - 1), nonce - 1
  end
  if #id < size + 16 or #id > size + 64 or not find(id, '^[A-Za-z0-9_-]+$', size + 1) then
    return wrong(index, name, 'one with a nonce of 16 to 64 letters, digits, "_" or "-"')
  elseif asked[id] then
    return wrong(index, name, 'given once in a call')
  end
  asked[id] = 0
  return said
end

local change, lengths = ARGV[3], {set = 5, add = 5, clear = 4}
local length, n = not change and 2 or lengths[change], integer(ARGV[4], 0, MAX_COUNT)
if not length then
  return wrong(3, 'change', '"set", "add" or "clear"')
elseif #ARGV ~= length then
  return wrong_number(length)
elseif length == 5 and not n then
  return wrong(4, 'n', 'an integer from 0 to 4294967295')
end
local idempotency_key = change and read_id(length, 'idempotency_key', 0)
if change and idempotency_key.err then
  return idempotency_key
end
local lookup = {}
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

local before = runtime or declared or -1
local how, number = ARGV[1], integer(ARGV[2], 0, MAX_COUNT)
if how ~= 'declare' and how ~= 'declare_if_unset' and how ~= 'initial' and how ~= 'existing' then
  return wrong(1, 'limit_mode', '"declare", "declare_if_unset", "initial" or "existing"')
elseif not number then
  return wrong(2, 'limit', 'an integer from 0 to 4294967295')
end
local declared_before, is_known = declared or -1, declared or runtime
if how == 'declare' and number ~= declared or how == 'declare_if_unset' and not is_known then
  declared, changed.declared, live_until = number, number, math.max(live_until, now)
elseif how == 'initial' and not is_known then
  runtime, changed.runtime, live_until = number, number, math.max(live_until, now)
  has_new_runtime = true
end
limit = runtime or declared or 0

local scores = change and redis.call('ZMSCORE', CLIENTS, '*', ARGV[length]) or {}
local is_new = change and now + (scores[2] or 0) >= 0
if is_new and change == 'add' and limit + n > MAX_COUNT then
  return wrong(4, 'n', string.format('at most %.0f: the limit cannot exceed %.0f',
    MAX_COUNT - limit, MAX_COUNT))
end
if is_new then
  -- The score of an idempotency key is negative. So no script mistakes the key for a client, or
  -- lowers the score after the clock was set back. Up to two expired idempotency keys are removed.
  local known_until = now + idempotency_key[4]
  local added = redis.call('ZADD', CLIENTS, scores[1] or 0, '*', -known_until, ARGV[length])
  local over = redis.call('ZRANGEBYSCORE', CLIENTS, -now, '(0', 'LIMIT', 0, 2)
  redis.call('ZREM', CLIENTS, '', unpack(over))
  has_new_key, live_until = has_new_key or added == 2, math.max(live_until, known_until)
  last_number = math.max(last_number, now_us - 1) -- so scripts notice if the clock is set back
end
if is_new and change == 'clear' then
  redis.call('HDEL', STATE, 'runtime')
  has_new_runtime, runtime = has_new_runtime or runtime ~= nil, nil
elseif is_new then
  has_new_runtime, runtime = true, change == 'set' and n or limit + n
end
changed.runtime, limit = has_new_runtime and runtime or nil, runtime or declared or 0
if is_set_back then
  redis.call('ZREM', PERMITS, '') -- removes nothing; lets a full server accept the ZADD below
  local longest_timeout = redis.call('ZSCORE', CLIENTS, '*') or 0
  for key, latest in pairs({[PERMITS] = now + longest_lease, [CLIENTS] = now + longest_timeout}) do
    local beyond = redis.call('ZRANGEBYSCORE', key, '(' .. latest, '+inf', 'LIMIT', 0, BOUND)
    for _, member in ipairs(beyond) do
      redis.call('ZADD', key, latest, member)
    end
    first_expiry, more = beyond[1] and 0 or first_expiry, more or #beyond == BOUND
  end
end
if first_expiry <= now then
  local ended = redis.call('ZRANGEBYSCORE', PERMITS, '(0', now, 'LIMIT', 0, BOUND)
  for _, id in ipairs(ended) do
    permits, held = permits - 1, held - (string.match(id, '^%a:[^:]*:(%d+)') or 1)
  end
  if ended[1] then
    redis.call('ZREM', PERMITS, unpack(ended))
  end
  local first = redis.call('ZRANGEBYSCORE', PERMITS, '(0', '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  first_expiry, more = (first[2] or MAX_NUMBER) + 0, more or #ended == BOUND
  changed.first_expiry = first_expiry
  live_until = math.max(live_until, now)
end
local leaving, notices -- IDs that leave the queue; IDs whose clients get a message
if queued > 0 and (held < limit or sweeps) then
  leaving, notices = {}, {}
  local listening, is_blocked = {}, false -- `listening`: channel -> whether it has subscribers
  while queued > 0 and (held < limit or sweeps) and not is_blocked and #leaving < BOUND do
    local batch = math.min(100, BOUND - #leaving, math.max(limit - held, #leaving, 1))
    for _, id in ipairs(redis.call('ZRANGE', QUEUE, #leaving, #leaving + batch - 1)) do
      if held >= limit and not sweeps then
        break
      end
      local notify, client, weight, lease = string.match(id, '^([PSN]):([^:]*):(%d+):(%d+):')
      local channel = notify and notify ~= 'N'
        and string.match(stem, notify == 'S' and '.*' or '^(.*):{') .. ':wake:' .. client
      local is_there = asked[id]
        or notify and (redis.call('ZSCORE', CLIENTS, client) or 0) + 0 >= now
      if is_there and channel and not asked[id] then
        if listening[channel] == nil then
          local answer = redis.pcall('PUBSUB', notify == 'S' and 'SHARDNUMSUB' or 'NUMSUB', channel)
          listening[channel] = answer[2] ~= 0
        end
        is_there = listening[channel]
      end
      if is_there then
        local is_too_heavy = not runtime and weight + 0 > limit
        is_blocked = held >= limit or not is_too_heavy and held + weight > limit
        if is_blocked then
          break
        end
        local index = #granted + 1
        if not is_too_heavy then
          granted[index], leases[index] = id, lease + 0
          permits, held = permits + 1, held + weight
        end
        if asked[id] then -- `acquire` has rejected requests that are too heavy
          asked[id] = index
        elseif channel then
          notices[#notices + 1] = {id, channel, notify, not is_too_heavy and index}
        end
      end
      leaving[#leaving + 1], queued = id, queued - 1
    end
  end
  more = more or queued > 0 and held < limit and not is_blocked
end
local waits = false
local token = math.max(last_number + 1, now_us)
local entries, text = {}, nil
for i = 1, #granted do
  local lease = leases[i]
  if lease ~= leases[i - 1] then
    local held_until = now + lease
    -- If all leases in use begin now, the longest of them is the longest lease.
    if lease > longest_lease or i == 1 and #granted == permits and lease ~= longest_lease then
      longest_lease, changed.longest_lease = lease, lease
    end
    if held_until < first_expiry then
      first_expiry, changed.first_expiry = held_until, held_until
    end
    live_until = math.max(live_until, held_until)
    text = string.format('%.0f', held_until)
  end
  entries[2 * i - 1], entries[2 * i] = text, granted[i]
end
if granted[1] then
  last_number = token + #granted - 1
end
if held - permits ~= extra and (extra or permits > 0) then
  entries[#entries + 1], entries[#entries + 2] = permits - held, '*'
  live_until = math.max(live_until, now)
end
for from = 1, #entries, 1000 do
  redis.call('ZADD', PERMITS, unpack(entries, from, math.min(from + 999, #entries)))
end
if live_until > 0 then
  local must_last = math.max(live_until, math.floor(last_number / 1000)) -- so numbers only grow
  local moves = must_last > expire_at
  if moves then
    expire_at = must_last + math.max(60000, must_last - now)
    changed.expire_at = expire_at
  end
  local fields = {'last_number', last_number}
  for field, value in pairs(changed) do
    fields[#fields + 1], fields[#fields + 2] = field, value
  end
  redis.call('HSET', STATE, unpack(fields))
  if moves or has_new_key then
    for _, key in ipairs({PERMITS, QUEUE, CLIENTS}) do
      redis.pcall('PEXPIREAT', key, expire_at) -- fails if a migrating slot lacks the key
    end
  end
  if runtime and has_new_runtime then
    redis.call('PERSIST', STATE) -- a runtime limit stays until it is cleared
  elseif not runtime and (moves or has_new_runtime) then
    redis.call('PEXPIREAT', STATE, expire_at + 7200000) -- so numbers grow if the clock is set back
  end
end
-- The queue is written last: a ZREM may empty it, and no script may access a key that it emptied.
if leaving then
  for from = 1, #leaving, 1000 do
    redis.call('ZREM', QUEUE, unpack(leaving, from, math.min(from + 999, #leaving)))
  end
  local lines_for = {} -- the lines of each message, by channel
  for _, it in ipairs(notices) do
    local id, channel, notify, index = unpack(it)
    local lines = lines_for[channel] or {string.match(stem, '{(.*)}'), notify = notify}
    lines[#lines + 1] = string.format('%s %.0f %.0f', id,
      index and token + index - 1 or 0, index and now + leases[index] or 0)
    lines_for[channel] = lines
  end
  for channel, lines in pairs(lines_for) do
    local command = lines.notify == 'S' and 'SPUBLISH' or 'PUBLISH'
    redis.pcall(command, channel, table.concat(lines, '\n'))
  end
end
local wake_in = more and 0
  or waits and first_expiry < MAX_NUMBER and math.max(1, first_expiry - now) or -1

return {now, wake_in, runtime or declared or -1, before, declared or -1, declared_before}
end,
}

redis.register_function{
  function_name = 'sem_probe',
  flags = {'allow-oom'},
  callback = function(KEYS, ARGV)
local MAX_COUNT = 4294967295 -- the highest limit and weight: 2^32 - 1
local MAX_TIME = 604800000 -- the longest lease and heartbeat timeout: seven days in ms
local MAX_NUMBER = 9007199254740991 -- the highest token and ticket: 2^53 - 1, exact as a double
local ARGV, sub, find = ARGV, string.sub, string.find -- faster than globals

local PERMITS, QUEUE, CLIENTS, STATE = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
-- The common beginning of the four keys: the prefix, and the semaphore's name in braces.
local stem = string.match(PERMITS or '', '^([^{}]*:{[^{}]+}):permits$')
local misnamed = not stem and 1 or QUEUE ~= stem .. ':queue' and 2
  or CLIENTS ~= stem .. ':clients' and 3 or STATE ~= stem .. ':state' and 4

local function shown(text)
  local short = text and string.gsub(sub(text, 1, 40), '[^\32-\126]', '?')
  return text and '"' .. short .. '"' or 'nothing'
end

if #KEYS ~= 4 or misnamed then
  return redis.error_reply('SEM_KEYS 4 keys are needed, in this order: PREFIX:{NAME}:permits, '
    .. 'PREFIX:{NAME}:queue, PREFIX:{NAME}:clients, PREFIX:{NAME}:state; got '
    .. (#KEYS ~= 4 and #KEYS or shown(KEYS[misnamed]) .. ' as KEYS[' .. misnamed .. ']'))
end

local function wrong(index, name, wanted)
  return redis.error_reply('SEM_ARG ARGV[' .. index .. '] (' .. name .. ') must be ' .. wanted
    .. ', got ' .. shown(ARGV[index]))
end

local function wrong_number(wanted)
  return redis.error_reply('SEM_ARG ' .. wanted .. ' arguments are needed, got ' .. #ARGV)
end

-- Returns `text` as a number if it is a decimal integer from `min` to `max` without leading zeros.
local function integer(text, min, max)
  local number = text and (find(text, '^[1-9]%d*$') or text == '0') and text + 0
  return number and number >= min and number <= max and number
end

local notify_mode, client = ARGV[1], ARGV[2]
if #ARGV ~= 2 then
  return wrong_number(2)
elseif notify_mode ~= 'P' and notify_mode ~= 'S' and notify_mode ~= 'N' then
  return wrong(1, 'notify_mode', '"P", "S" or "N"')
elseif #client > 100 or not string.find(client, '^[%w._-]+$') then
  return wrong(2, 'client', '1 to 100 letters, digits, ".", "_" or "-"')
end

-- Returns false only if the server can check the right, and the user lacks it.
local function is_allowed(...)
  local is_known, answer = pcall(redis.acl_check_cmd, ...)
  return not is_known or answer
end

-- Returns a `NOPERM` error if the user may not make the call, otherwise nil. The keys need no
-- check: without the right to them, the user could not call this script.
local function denial(call)
  if is_allowed(unpack(call)) then
    return nil
  end
  local words = {call[1]}
  if call[1] == 'PUBSUB' then
    words[2] = call[2]
  end
  if is_allowed(unpack(words)) then
    return 'NOPERM this user has no permissions to access one of the channels'
  end
  local name = string.lower(table.concat(words, '|'))
  return "NOPERM this user has no permissions to run the '" .. name .. "' command"
end

-- Makes the calls. Returns the name and the error of each call that failed or is denied.
local function try(calls)
  local failed = {}
  for _, call in ipairs(calls) do
    local denied = denial(call)
    local answer = denied and {err = denied} or redis.pcall(unpack(call))
    if type(answer) == 'table' and answer.err then
      failed[#failed + 1] = call[1]
      failed[#failed + 1] = answer.err
    end
  end
  return failed
end

-- The commands that clean up are tried first: if one of them fails, nothing may be written.
local failed = try({
  {'PEXPIREAT', STATE, 1},
  {'TIME'},
  {'HMGET', STATE, 'version'},
  {'ZCARD', PERMITS},
  {'ZSCORE', CLIENTS, '*'},
  {'ZMSCORE', PERMITS, '*'},
  {'ZRANGE', QUEUE, 0, 0},
  {'ZRANGEBYSCORE', PERMITS, 0, 0},
  {'ZCOUNT', PERMITS, 0, 0},
  {'ZRANK', QUEUE, '*'},
  {'ZREM', PERMITS, '*'},
  {'HDEL', STATE, 'runtime'},
  {'PERSIST', STATE},
})
if failed[1] then
  return failed
end
local calls = {
  {'ZADD', PERMITS, 1, '*'},
  {'HSET', STATE, 'version', '0'},
  {'PEXPIREAT', PERMITS, 1},
  {'PEXPIREAT', STATE, 1},
}
if notify_mode ~= 'N' then
  local channel = string.match(stem, notify_mode == 'S' and '.*' or '^(.*):{') .. ':wake:' .. client
  calls[5] = {'PUBSUB', notify_mode == 'S' and 'SHARDNUMSUB' or 'NUMSUB', channel}
  calls[6] = {notify_mode == 'S' and 'SPUBLISH' or 'PUBLISH', channel, ''} -- clients ignore ''
end
return try(calls)
end,
}

redis.register_function{
  function_name = 'sem_refresh',
  flags = {'allow-oom'},
  callback = function(KEYS, ARGV)
local MAX_COUNT = 4294967295 -- the highest limit and weight: 2^32 - 1
local MAX_TIME = 604800000 -- the longest lease and heartbeat timeout: seven days in ms
local MAX_NUMBER = 9007199254740991 -- the highest token and ticket: 2^53 - 1, exact as a double
local ARGV, sub, find = ARGV, string.sub, string.find -- faster than globals

local PERMITS, QUEUE, CLIENTS, STATE = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
-- The common beginning of the four keys: the prefix, and the semaphore's name in braces.
local stem = string.match(PERMITS or '', '^([^{}]*:{[^{}]+}):permits$')
local misnamed = not stem and 1 or QUEUE ~= stem .. ':queue' and 2
  or CLIENTS ~= stem .. ':clients' and 3 or STATE ~= stem .. ':state' and 4

local function shown(text)
  local short = text and string.gsub(sub(text, 1, 40), '[^\32-\126]', '?')
  return text and '"' .. short .. '"' or 'nothing'
end

if #KEYS ~= 4 or misnamed then
  return redis.error_reply('SEM_KEYS 4 keys are needed, in this order: PREFIX:{NAME}:permits, '
    .. 'PREFIX:{NAME}:queue, PREFIX:{NAME}:clients, PREFIX:{NAME}:state; got '
    .. (#KEYS ~= 4 and #KEYS or shown(KEYS[misnamed]) .. ' as KEYS[' .. misnamed .. ']'))
end

local function wrong(index, name, wanted)
  return redis.error_reply('SEM_ARG ARGV[' .. index .. '] (' .. name .. ') must be ' .. wanted
    .. ', got ' .. shown(ARGV[index]))
end

local function wrong_number(wanted)
  return redis.error_reply('SEM_ARG ' .. wanted .. ' arguments are needed, got ' .. #ARGV)
end

-- Returns `text` as a number if it is a decimal integer from `min` to `max` without leading zeros.
local function integer(text, min, max)
  local number = text and (find(text, '^[1-9]%d*$') or text == '0') and text + 0
  return number and number >= min and number <= max and number
end
local function check_count(fixed, each)
  local count = (#ARGV - fixed) / each
  if count < 1 or count > 1000 or count % 1 ~= 0 then
    return redis.error_reply('SEM_ARG 1 to 1000 requests of ' .. each
      .. ' arguments must follow the first ' .. fixed .. ', got ' .. #ARGV .. ' in all')
  end
end

local asked = {} -- ID of this call -> index in `granted` (0: not granted)
local start, size, said -- of the last ID: text before the nonce, length of this text, parts

-- Returns {notify, client, weight, lease} for the ID in ARGV[index], or an error. If `weight` is
-- nil, any weight of 1 or more is valid. Otherwise the ID must have the given weight.
local function read_id(index, name, weight)
  local id = ARGV[index]
  if not start or find(id, start, 1, true) ~= 1 then
    local pattern = '^([PSN]):([%w._-]+):(' .. (weight or '[1-9]%d*') .. '):([1-9]%d*):()'
    local notify, client, weighs, lease, nonce = string.match(id, pattern)
    said = notify and #client <= 100 and {notify, client, weighs + 0, lease + 0}
    if not said or said[3] > MAX_COUNT or said[4] > MAX_TIME then
      return wrong(index, name, 'NOTIFY:CLIENT:WEIGHT:LEASE:NONCE with a client of 1 to 100 '
        .. 'characters, a weight ' .. (weight and 'of ' .. weight or 'from 1 to 4294967295')
        .. ' and a lease from 1 to 604800000')
    end
    start, size = sub(id, 1, nonce - 1), nonce - 1
  end
  if #id < size + 16 or #id > size + 64 or not find(id, '^[A-Za-z0-9_-]+$', size + 1) then
    return wrong(index, name, 'one with a nonce of 16 to 64 letters, digits, "_" or "-"')
  elseif asked[id] then
    return wrong(index, name, 'given once in a call')
  end
  asked[id] = 0
  return said
end

local count, refusal = #ARGV / 2, check_count(0, 2)
if refusal then
  return refusal
end
local ids, nexts, weights, durations = {}, {}, {}, {}
for i = 1, count do
  local next, part = ARGV[2 * i], read_id(2 * i - 1, 'id')
  if part.err then
    return part
  end
  ids[i], weights[i] = ARGV[2 * i - 1], part[3]
  if string.find(next, ':', 1, true) then
    local next_part = read_id(2 * i, 'next', part[3])
    if next_part.err then
      return next_part
    end
    nexts[i], durations[i] = next, next_part[4]
  elseif integer(next, 1, part[4]) then
    durations[i] = next + 0
  else
    return wrong(2 * i, 'next', 'an integer from 1 to the lease in the ID, or another ID')
  end
end
for _, next in pairs(nexts) do
  ids[#ids + 1] = next
end
local lookup = ids
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

local end_of = {}
for i, id in ipairs(ids) do
  end_of[id] = (ends[i] or 0) + 0
end
local reply, gone = {now, 0}, {''} -- ZREM needs a member; '' is not in any key
for i = 1, count do
  local id, kept, weight = ids[i], nexts[i] or ids[i], weights[i]
  local is_held = end_of[kept] > now -- if false, the permit is lost, or moves to `kept`
  if not is_held then
    for _, it in ipairs({id, nexts[i]}) do
      gone[#gone + 1] = it
      if end_of[it] > 0 then
        permits, held = permits - 1, held - weight
      end
    end
    if end_of[id] > now then
      is_held, permits, held = true, permits + 1, held + weight
    end
  end
  reply[i + 2] = 0
  if is_held then
    granted[#granted + 1], leases[#leases + 1] = kept, durations[i]
    reply[i + 2] = now + durations[i]
  end
end
-- The first write is always a ZREM, even if no ID is known. A replica rejects the ZREM. A server
-- that is out of memory accepts the ZREM, and then lets the script continue.
redis.call('ZREM', PERMITS, unpack(gone))
if queued > 0 then
  -- All IDs leave the queue, whether their permits are held or lost.
  queued = queued - redis.call('ZREM', QUEUE, unpack(ids))
end
if is_set_back then
  redis.call('ZREM', PERMITS, '') -- removes nothing; lets a full server accept the ZADD below
  local longest_timeout = redis.call('ZSCORE', CLIENTS, '*') or 0
  for key, latest in pairs({[PERMITS] = now + longest_lease, [CLIENTS] = now + longest_timeout}) do
    local beyond = redis.call('ZRANGEBYSCORE', key, '(' .. latest, '+inf', 'LIMIT', 0, BOUND)
    for _, member in ipairs(beyond) do
      redis.call('ZADD', key, latest, member)
    end
    first_expiry, more = beyond[1] and 0 or first_expiry, more or #beyond == BOUND
  end
end
if first_expiry <= now then
  local ended = redis.call('ZRANGEBYSCORE', PERMITS, '(0', now, 'LIMIT', 0, BOUND)
  for _, id in ipairs(ended) do
    permits, held = permits - 1, held - (string.match(id, '^%a:[^:]*:(%d+)') or 1)
  end
  if ended[1] then
    redis.call('ZREM', PERMITS, unpack(ended))
  end
  local first = redis.call('ZRANGEBYSCORE', PERMITS, '(0', '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  first_expiry, more = (first[2] or MAX_NUMBER) + 0, more or #ended == BOUND
  changed.first_expiry = first_expiry
  live_until = math.max(live_until, now)
end
local leaving, notices -- IDs that leave the queue; IDs whose clients get a message
if queued > 0 and (held < limit or sweeps) then
  leaving, notices = {}, {}
  local listening, is_blocked = {}, false -- `listening`: channel -> whether it has subscribers
  while queued > 0 and (held < limit or sweeps) and not is_blocked and #leaving < BOUND do
    local batch = math.min(100, BOUND - #leaving, math.max(limit - held, #leaving, 1))
    for _, id in ipairs(redis.call('ZRANGE', QUEUE, #leaving, #leaving + batch - 1)) do
      if held >= limit and not sweeps then
        break
      end
      local notify, client, weight, lease = string.match(id, '^([PSN]):([^:]*):(%d+):(%d+):')
      local channel = notify and notify ~= 'N'
        and string.match(stem, notify == 'S' and '.*' or '^(.*):{') .. ':wake:' .. client
      local is_there = asked[id]
        or notify and (redis.call('ZSCORE', CLIENTS, client) or 0) + 0 >= now
      if is_there and channel and not asked[id] then
        if listening[channel] == nil then
          local answer = redis.pcall('PUBSUB', notify == 'S' and 'SHARDNUMSUB' or 'NUMSUB', channel)
          listening[channel] = answer[2] ~= 0
        end
        is_there = listening[channel]
      end
      if is_there then
        local is_too_heavy = not runtime and weight + 0 > limit
        is_blocked = held >= limit or not is_too_heavy and held + weight > limit
        if is_blocked then
          break
        end
        local index = #granted + 1
        if not is_too_heavy then
          granted[index], leases[index] = id, lease + 0
          permits, held = permits + 1, held + weight
        end
        if asked[id] then -- `acquire` has rejected requests that are too heavy
          asked[id] = index
        elseif channel then
          notices[#notices + 1] = {id, channel, notify, not is_too_heavy and index}
        end
      end
      leaving[#leaving + 1], queued = id, queued - 1
    end
  end
  more = more or queued > 0 and held < limit and not is_blocked
end
local waits = false
local token = math.max(last_number + 1, now_us)
local entries, text = {}, nil
for i = 1, #granted do
  local lease = leases[i]
  if lease ~= leases[i - 1] then
    local held_until = now + lease
    -- If all leases in use begin now, the longest of them is the longest lease.
    if lease > longest_lease or i == 1 and #granted == permits and lease ~= longest_lease then
      longest_lease, changed.longest_lease = lease, lease
    end
    if held_until < first_expiry then
      first_expiry, changed.first_expiry = held_until, held_until
    end
    live_until = math.max(live_until, held_until)
    text = string.format('%.0f', held_until)
  end
  entries[2 * i - 1], entries[2 * i] = text, granted[i]
end
if granted[1] then
  last_number = token + #granted - 1
end
if held - permits ~= extra and (extra or permits > 0) then
  entries[#entries + 1], entries[#entries + 2] = permits - held, '*'
  live_until = math.max(live_until, now)
end
for from = 1, #entries, 1000 do
  redis.call('ZADD', PERMITS, unpack(entries, from, math.min(from + 999, #entries)))
end
if live_until > 0 then
  local must_last = math.max(live_until, math.floor(last_number / 1000)) -- so numbers only grow
  local moves = must_last > expire_at
  if moves then
    expire_at = must_last + math.max(60000, must_last - now)
    changed.expire_at = expire_at
  end
  local fields = {'last_number', last_number}
  for field, value in pairs(changed) do
    fields[#fields + 1], fields[#fields + 2] = field, value
  end
  redis.call('HSET', STATE, unpack(fields))
  if moves or has_new_key then
    for _, key in ipairs({PERMITS, QUEUE, CLIENTS}) do
      redis.pcall('PEXPIREAT', key, expire_at) -- fails if a migrating slot lacks the key
    end
  end
  if runtime and has_new_runtime then
    redis.call('PERSIST', STATE) -- a runtime limit stays until it is cleared
  elseif not runtime and (moves or has_new_runtime) then
    redis.call('PEXPIREAT', STATE, expire_at + 7200000) -- so numbers grow if the clock is set back
  end
end
-- The queue is written last: a ZREM may empty it, and no script may access a key that it emptied.
if leaving then
  for from = 1, #leaving, 1000 do
    redis.call('ZREM', QUEUE, unpack(leaving, from, math.min(from + 999, #leaving)))
  end
  local lines_for = {} -- the lines of each message, by channel
  for _, it in ipairs(notices) do
    local id, channel, notify, index = unpack(it)
    local lines = lines_for[channel] or {string.match(stem, '{(.*)}'), notify = notify}
    lines[#lines + 1] = string.format('%s %.0f %.0f', id,
      index and token + index - 1 or 0, index and now + leases[index] or 0)
    lines_for[channel] = lines
  end
  for channel, lines in pairs(lines_for) do
    local command = lines.notify == 'S' and 'SPUBLISH' or 'PUBLISH'
    redis.pcall(command, channel, table.concat(lines, '\n'))
  end
end
local wake_in = more and 0
  or waits and first_expiry < MAX_NUMBER and math.max(1, first_expiry - now) or -1

reply[2] = wake_in
return reply
end,
}

redis.register_function{
  function_name = 'sem_release',
  flags = {'allow-oom'},
  callback = function(KEYS, ARGV)
local MAX_COUNT = 4294967295 -- the highest limit and weight: 2^32 - 1
local MAX_TIME = 604800000 -- the longest lease and heartbeat timeout: seven days in ms
local MAX_NUMBER = 9007199254740991 -- the highest token and ticket: 2^53 - 1, exact as a double
local ARGV, sub, find = ARGV, string.sub, string.find -- faster than globals

local PERMITS, QUEUE, CLIENTS, STATE = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
-- The common beginning of the four keys: the prefix, and the semaphore's name in braces.
local stem = string.match(PERMITS or '', '^([^{}]*:{[^{}]+}):permits$')
local misnamed = not stem and 1 or QUEUE ~= stem .. ':queue' and 2
  or CLIENTS ~= stem .. ':clients' and 3 or STATE ~= stem .. ':state' and 4

local function shown(text)
  local short = text and string.gsub(sub(text, 1, 40), '[^\32-\126]', '?')
  return text and '"' .. short .. '"' or 'nothing'
end

if #KEYS ~= 4 or misnamed then
  return redis.error_reply('SEM_KEYS 4 keys are needed, in this order: PREFIX:{NAME}:permits, '
    .. 'PREFIX:{NAME}:queue, PREFIX:{NAME}:clients, PREFIX:{NAME}:state; got '
    .. (#KEYS ~= 4 and #KEYS or shown(KEYS[misnamed]) .. ' as KEYS[' .. misnamed .. ']'))
end

local function wrong(index, name, wanted)
  return redis.error_reply('SEM_ARG ARGV[' .. index .. '] (' .. name .. ') must be ' .. wanted
    .. ', got ' .. shown(ARGV[index]))
end

local function wrong_number(wanted)
  return redis.error_reply('SEM_ARG ' .. wanted .. ' arguments are needed, got ' .. #ARGV)
end

-- Returns `text` as a number if it is a decimal integer from `min` to `max` without leading zeros.
local function integer(text, min, max)
  local number = text and (find(text, '^[1-9]%d*$') or text == '0') and text + 0
  return number and number >= min and number <= max and number
end
local function check_count(fixed, each)
  local count = (#ARGV - fixed) / each
  if count < 1 or count > 1000 or count % 1 ~= 0 then
    return redis.error_reply('SEM_ARG 1 to 1000 requests of ' .. each
      .. ' arguments must follow the first ' .. fixed .. ', got ' .. #ARGV .. ' in all')
  end
end

local asked = {} -- ID of this call -> index in `granted` (0: not granted)
local start, size, said -- of the last ID: text before the nonce, length of this text, parts

-- Returns {notify, client, weight, lease} for the ID in ARGV[index], or an error. If `weight` is
-- nil, any weight of 1 or more is valid. Otherwise the ID must have the given weight.
local function read_id(index, name, weight)
  local id = ARGV[index]
  if not start or find(id, start, 1, true) ~= 1 then
    local pattern = '^([PSN]):([%w._-]+):(' .. (weight or '[1-9]%d*') .. '):([1-9]%d*):()'
    local notify, client, weighs, lease, nonce = string.match(id, pattern)
    said = notify and #client <= 100 and {notify, client, weighs + 0, lease + 0}
    if not said or said[3] > MAX_COUNT or said[4] > MAX_TIME then
      return wrong(index, name, 'NOTIFY:CLIENT:WEIGHT:LEASE:NONCE with a client of 1 to 100 '
        .. 'characters, a weight ' .. (weight and 'of ' .. weight or 'from 1 to 4294967295')
        .. ' and a lease from 1 to 604800000')
    end
    start, size = sub(id, 1, nonce - 1), nonce - 1
  end
  if #id < size + 16 or #id > size + 64 or not find(id, '^[A-Za-z0-9_-]+$', size + 1) then
    return wrong(index, name, 'one with a nonce of 16 to 64 letters, digits, "_" or "-"')
  elseif asked[id] then
    return wrong(index, name, 'given once in a call')
  end
  asked[id] = 0
  return said
end

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
if is_set_back then
  redis.call('ZREM', PERMITS, '') -- removes nothing; lets a full server accept the ZADD below
  local longest_timeout = redis.call('ZSCORE', CLIENTS, '*') or 0
  for key, latest in pairs({[PERMITS] = now + longest_lease, [CLIENTS] = now + longest_timeout}) do
    local beyond = redis.call('ZRANGEBYSCORE', key, '(' .. latest, '+inf', 'LIMIT', 0, BOUND)
    for _, member in ipairs(beyond) do
      redis.call('ZADD', key, latest, member)
    end
    first_expiry, more = beyond[1] and 0 or first_expiry, more or #beyond == BOUND
  end
end
if first_expiry <= now then
  local ended = redis.call('ZRANGEBYSCORE', PERMITS, '(0', now, 'LIMIT', 0, BOUND)
  for _, id in ipairs(ended) do
    permits, held = permits - 1, held - (string.match(id, '^%a:[^:]*:(%d+)') or 1)
  end
  if ended[1] then
    redis.call('ZREM', PERMITS, unpack(ended))
  end
  local first = redis.call('ZRANGEBYSCORE', PERMITS, '(0', '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  first_expiry, more = (first[2] or MAX_NUMBER) + 0, more or #ended == BOUND
  changed.first_expiry = first_expiry
  live_until = math.max(live_until, now)
end

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
local leaving, notices -- IDs that leave the queue; IDs whose clients get a message
if queued > 0 and (held < limit or sweeps) then
  leaving, notices = {}, {}
  local listening, is_blocked = {}, false -- `listening`: channel -> whether it has subscribers
  while queued > 0 and (held < limit or sweeps) and not is_blocked and #leaving < BOUND do
    local batch = math.min(100, BOUND - #leaving, math.max(limit - held, #leaving, 1))
    for _, id in ipairs(redis.call('ZRANGE', QUEUE, #leaving, #leaving + batch - 1)) do
      if held >= limit and not sweeps then
        break
      end
      local notify, client, weight, lease = string.match(id, '^([PSN]):([^:]*):(%d+):(%d+):')
      local channel = notify and notify ~= 'N'
        and string.match(stem, notify == 'S' and '.*' or '^(.*):{') .. ':wake:' .. client
      local is_there = asked[id]
        or notify and (redis.call('ZSCORE', CLIENTS, client) or 0) + 0 >= now
      if is_there and channel and not asked[id] then
        if listening[channel] == nil then
          local answer = redis.pcall('PUBSUB', notify == 'S' and 'SHARDNUMSUB' or 'NUMSUB', channel)
          listening[channel] = answer[2] ~= 0
        end
        is_there = listening[channel]
      end
      if is_there then
        local is_too_heavy = not runtime and weight + 0 > limit
        is_blocked = held >= limit or not is_too_heavy and held + weight > limit
        if is_blocked then
          break
        end
        local index = #granted + 1
        if not is_too_heavy then
          granted[index], leases[index] = id, lease + 0
          permits, held = permits + 1, held + weight
        end
        if asked[id] then -- `acquire` has rejected requests that are too heavy
          asked[id] = index
        elseif channel then
          notices[#notices + 1] = {id, channel, notify, not is_too_heavy and index}
        end
      end
      leaving[#leaving + 1], queued = id, queued - 1
    end
  end
  more = more or queued > 0 and held < limit and not is_blocked
end
local waits = false
local token = math.max(last_number + 1, now_us)
local entries, text = {}, nil
for i = 1, #granted do
  local lease = leases[i]
  if lease ~= leases[i - 1] then
    local held_until = now + lease
    -- If all leases in use begin now, the longest of them is the longest lease.
    if lease > longest_lease or i == 1 and #granted == permits and lease ~= longest_lease then
      longest_lease, changed.longest_lease = lease, lease
    end
    if held_until < first_expiry then
      first_expiry, changed.first_expiry = held_until, held_until
    end
    live_until = math.max(live_until, held_until)
    text = string.format('%.0f', held_until)
  end
  entries[2 * i - 1], entries[2 * i] = text, granted[i]
end
if granted[1] then
  last_number = token + #granted - 1
end
if held - permits ~= extra and (extra or permits > 0) then
  entries[#entries + 1], entries[#entries + 2] = permits - held, '*'
  live_until = math.max(live_until, now)
end
for from = 1, #entries, 1000 do
  redis.call('ZADD', PERMITS, unpack(entries, from, math.min(from + 999, #entries)))
end
if live_until > 0 then
  local must_last = math.max(live_until, math.floor(last_number / 1000)) -- so numbers only grow
  local moves = must_last > expire_at
  if moves then
    expire_at = must_last + math.max(60000, must_last - now)
    changed.expire_at = expire_at
  end
  local fields = {'last_number', last_number}
  for field, value in pairs(changed) do
    fields[#fields + 1], fields[#fields + 2] = field, value
  end
  redis.call('HSET', STATE, unpack(fields))
  if moves or has_new_key then
    for _, key in ipairs({PERMITS, QUEUE, CLIENTS}) do
      redis.pcall('PEXPIREAT', key, expire_at) -- fails if a migrating slot lacks the key
    end
  end
  if runtime and has_new_runtime then
    redis.call('PERSIST', STATE) -- a runtime limit stays until it is cleared
  elseif not runtime and (moves or has_new_runtime) then
    redis.call('PEXPIREAT', STATE, expire_at + 7200000) -- so numbers grow if the clock is set back
  end
end
-- The queue is written last: a ZREM may empty it, and no script may access a key that it emptied.
if leaving then
  for from = 1, #leaving, 1000 do
    redis.call('ZREM', QUEUE, unpack(leaving, from, math.min(from + 999, #leaving)))
  end
  local lines_for = {} -- the lines of each message, by channel
  for _, it in ipairs(notices) do
    local id, channel, notify, index = unpack(it)
    local lines = lines_for[channel] or {string.match(stem, '{(.*)}'), notify = notify}
    lines[#lines + 1] = string.format('%s %.0f %.0f', id,
      index and token + index - 1 or 0, index and now + leases[index] or 0)
    lines_for[channel] = lines
  end
  for channel, lines in pairs(lines_for) do
    local command = lines.notify == 'S' and 'SPUBLISH' or 'PUBLISH'
    redis.pcall(command, channel, table.concat(lines, '\n'))
  end
end
local wake_in = more and 0
  or waits and first_expiry < MAX_NUMBER and math.max(1, first_expiry - now) or -1

reply[2] = wake_in
return all_held and {now, wake_in, 3} or reply
end,
}

redis.register_function{
  function_name = 'sem_wake',
  flags = {'allow-oom'},
  callback = function(KEYS, ARGV)
local MAX_COUNT = 4294967295 -- the highest limit and weight: 2^32 - 1
local MAX_TIME = 604800000 -- the longest lease and heartbeat timeout: seven days in ms
local MAX_NUMBER = 9007199254740991 -- the highest token and ticket: 2^53 - 1, exact as a double
local ARGV, sub, find = ARGV, string.sub, string.find -- faster than globals

local PERMITS, QUEUE, CLIENTS, STATE = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
-- The common beginning of the four keys: the prefix, and the semaphore's name in braces.
local stem = string.match(PERMITS or '', '^([^{}]*:{[^{}]+}):permits$')
local misnamed = not stem and 1 or QUEUE ~= stem .. ':queue' and 2
  or CLIENTS ~= stem .. ':clients' and 3 or STATE ~= stem .. ':state' and 4

local function shown(text)
  local short = text and string.gsub(sub(text, 1, 40), '[^\32-\126]', '?')
  return text and '"' .. short .. '"' or 'nothing'
end

if #KEYS ~= 4 or misnamed then
  return redis.error_reply('SEM_KEYS 4 keys are needed, in this order: PREFIX:{NAME}:permits, '
    .. 'PREFIX:{NAME}:queue, PREFIX:{NAME}:clients, PREFIX:{NAME}:state; got '
    .. (#KEYS ~= 4 and #KEYS or shown(KEYS[misnamed]) .. ' as KEYS[' .. misnamed .. ']'))
end

local function wrong(index, name, wanted)
  return redis.error_reply('SEM_ARG ARGV[' .. index .. '] (' .. name .. ') must be ' .. wanted
    .. ', got ' .. shown(ARGV[index]))
end

local function wrong_number(wanted)
  return redis.error_reply('SEM_ARG ' .. wanted .. ' arguments are needed, got ' .. #ARGV)
end

-- Returns `text` as a number if it is a decimal integer from `min` to `max` without leading zeros.
local function integer(text, min, max)
  local number = text and (find(text, '^[1-9]%d*$') or text == '0') and text + 0
  return number and number >= min and number <= max and number
end

if #ARGV > 0 then
  return wrong_number(0)
end
local asked, lookup = {}, {}
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

-- This ZREM removes nothing. A replica rejects the ZREM. A server that is out of memory accepts the
-- ZREM, and then lets the script continue.
redis.call('ZREM', PERMITS, '')
if is_set_back then
  redis.call('ZREM', PERMITS, '') -- removes nothing; lets a full server accept the ZADD below
  local longest_timeout = redis.call('ZSCORE', CLIENTS, '*') or 0
  for key, latest in pairs({[PERMITS] = now + longest_lease, [CLIENTS] = now + longest_timeout}) do
    local beyond = redis.call('ZRANGEBYSCORE', key, '(' .. latest, '+inf', 'LIMIT', 0, BOUND)
    for _, member in ipairs(beyond) do
      redis.call('ZADD', key, latest, member)
    end
    first_expiry, more = beyond[1] and 0 or first_expiry, more or #beyond == BOUND
  end
end
if first_expiry <= now then
  local ended = redis.call('ZRANGEBYSCORE', PERMITS, '(0', now, 'LIMIT', 0, BOUND)
  for _, id in ipairs(ended) do
    permits, held = permits - 1, held - (string.match(id, '^%a:[^:]*:(%d+)') or 1)
  end
  if ended[1] then
    redis.call('ZREM', PERMITS, unpack(ended))
  end
  local first = redis.call('ZRANGEBYSCORE', PERMITS, '(0', '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  first_expiry, more = (first[2] or MAX_NUMBER) + 0, more or #ended == BOUND
  changed.first_expiry = first_expiry
  live_until = math.max(live_until, now)
end
local leaving, notices -- IDs that leave the queue; IDs whose clients get a message
if queued > 0 and (held < limit or sweeps) then
  leaving, notices = {}, {}
  local listening, is_blocked = {}, false -- `listening`: channel -> whether it has subscribers
  while queued > 0 and (held < limit or sweeps) and not is_blocked and #leaving < BOUND do
    local batch = math.min(100, BOUND - #leaving, math.max(limit - held, #leaving, 1))
    for _, id in ipairs(redis.call('ZRANGE', QUEUE, #leaving, #leaving + batch - 1)) do
      if held >= limit and not sweeps then
        break
      end
      local notify, client, weight, lease = string.match(id, '^([PSN]):([^:]*):(%d+):(%d+):')
      local channel = notify and notify ~= 'N'
        and string.match(stem, notify == 'S' and '.*' or '^(.*):{') .. ':wake:' .. client
      local is_there = asked[id]
        or notify and (redis.call('ZSCORE', CLIENTS, client) or 0) + 0 >= now
      if is_there and channel and not asked[id] then
        if listening[channel] == nil then
          local answer = redis.pcall('PUBSUB', notify == 'S' and 'SHARDNUMSUB' or 'NUMSUB', channel)
          listening[channel] = answer[2] ~= 0
        end
        is_there = listening[channel]
      end
      if is_there then
        local is_too_heavy = not runtime and weight + 0 > limit
        is_blocked = held >= limit or not is_too_heavy and held + weight > limit
        if is_blocked then
          break
        end
        local index = #granted + 1
        if not is_too_heavy then
          granted[index], leases[index] = id, lease + 0
          permits, held = permits + 1, held + weight
        end
        if asked[id] then -- `acquire` has rejected requests that are too heavy
          asked[id] = index
        elseif channel then
          notices[#notices + 1] = {id, channel, notify, not is_too_heavy and index}
        end
      end
      leaving[#leaving + 1], queued = id, queued - 1
    end
  end
  more = more or queued > 0 and held < limit and not is_blocked
end
local waits = queued > 0
local token = math.max(last_number + 1, now_us)
local entries, text = {}, nil
for i = 1, #granted do
  local lease = leases[i]
  if lease ~= leases[i - 1] then
    local held_until = now + lease
    -- If all leases in use begin now, the longest of them is the longest lease.
    if lease > longest_lease or i == 1 and #granted == permits and lease ~= longest_lease then
      longest_lease, changed.longest_lease = lease, lease
    end
    if held_until < first_expiry then
      first_expiry, changed.first_expiry = held_until, held_until
    end
    live_until = math.max(live_until, held_until)
    text = string.format('%.0f', held_until)
  end
  entries[2 * i - 1], entries[2 * i] = text, granted[i]
end
if granted[1] then
  last_number = token + #granted - 1
end
if held - permits ~= extra and (extra or permits > 0) then
  entries[#entries + 1], entries[#entries + 2] = permits - held, '*'
  live_until = math.max(live_until, now)
end
for from = 1, #entries, 1000 do
  redis.call('ZADD', PERMITS, unpack(entries, from, math.min(from + 999, #entries)))
end
if live_until > 0 then
  local must_last = math.max(live_until, math.floor(last_number / 1000)) -- so numbers only grow
  local moves = must_last > expire_at
  if moves then
    expire_at = must_last + math.max(60000, must_last - now)
    changed.expire_at = expire_at
  end
  local fields = {'last_number', last_number}
  for field, value in pairs(changed) do
    fields[#fields + 1], fields[#fields + 2] = field, value
  end
  redis.call('HSET', STATE, unpack(fields))
  if moves or has_new_key then
    for _, key in ipairs({PERMITS, QUEUE, CLIENTS}) do
      redis.pcall('PEXPIREAT', key, expire_at) -- fails if a migrating slot lacks the key
    end
  end
  if runtime and has_new_runtime then
    redis.call('PERSIST', STATE) -- a runtime limit stays until it is cleared
  elseif not runtime and (moves or has_new_runtime) then
    redis.call('PEXPIREAT', STATE, expire_at + 7200000) -- so numbers grow if the clock is set back
  end
end
-- The queue is written last: a ZREM may empty it, and no script may access a key that it emptied.
if leaving then
  for from = 1, #leaving, 1000 do
    redis.call('ZREM', QUEUE, unpack(leaving, from, math.min(from + 999, #leaving)))
  end
  local lines_for = {} -- the lines of each message, by channel
  for _, it in ipairs(notices) do
    local id, channel, notify, index = unpack(it)
    local lines = lines_for[channel] or {string.match(stem, '{(.*)}'), notify = notify}
    lines[#lines + 1] = string.format('%s %.0f %.0f', id,
      index and token + index - 1 or 0, index and now + leases[index] or 0)
    lines_for[channel] = lines
  end
  for channel, lines in pairs(lines_for) do
    local command = lines.notify == 'S' and 'SPUBLISH' or 'PUBLISH'
    redis.pcall(command, channel, table.concat(lines, '\n'))
  end
end
local wake_in = more and 0
  or waits and first_expiry < MAX_NUMBER and math.max(1, first_expiry - now) or -1

return {now, wake_in, queued}
end,
}
