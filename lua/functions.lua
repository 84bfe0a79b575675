#!lua name=redis_semaphore
-- Made from scripts: change those, not this file.

redis.register_function{
  function_name = 'sem_acquire',
  flags = {},
  callback = function(KEYS, ARGV)
-- acquire: grants a permit to each request, or queues it, or refuses it.
--
-- A call may be repeated: a word that holds a permit is granted again (same permit, its lease
-- starts anew, the token is newer), a word that is queued keeps its ticket and its client counts as
-- heard of. While anybody is queued, new requests go behind, and tries are refused.
--
-- KEYS[1] permits   sorted set: word -> end of its lease, ms on the server's clock
-- KEYS[2] queue     sorted set: word -> ticket
-- KEYS[3] clients   sorted set: client -> heard until, ms on the server's clock
-- KEYS[4] state     hash: version, limits, last number, longest lease, expiry
-- ARGV[1] kind      "declare" (the limit is declared, as by `limit`), "declared" or "initial"
--                   (what the limit is if none is known)
-- ARGV[2] limit     0 to 4294967295
-- ARGV[3] liveness  1 to 604800000 ms: queued words of a client not heard of in that time may go
-- ARGV[4+] requests 1 to 1000 times: word, place
--   word            HOW:CLIENT:WEIGHT:LEASE:NONCE, see README.md; all of the same HOW and CLIENT
--   place           "wait" (queue), "try" (never queue), "+MS" (queue with a head start of 0 to
--                   3600000 ms), or the ticket that the word had, 1 to 9007199254740991
-- Reply             server time (ms), wake_in, declared limit before (-1: none), then for each
--                   request three integers:
--   1 token end     granted: fencing token, end of lease (ms on the server's clock)
--   2 ticket rank   queued: ticket, rank in the queue (1 is the head)
--   0 0 0           refused
--   3 token end     to several requests, once: all are granted, with the same end of lease; the
--                   first has this token, each next one the next number
--   wake_in         ms until `wake` is worth a call: 0 at once, -1 no need
-- Errors            SEM_KEYS, SEM_ARG, SEM_TYPE, SEM_VERSION, SEM_TOO_HEAVY
-- Cost              O(log N) for each request and each waiter served. Commands for one request:
--   8               granted
--   8               granted with a weight above 1
--   7               refused
--   10              queued behind others
--   10              queued, asked for again with its ticket
-- Flags             none
-- Checks of KEYS and ARGV. All of them run before the first write, so a call that is refused has
-- changed nothing. `refusal` is the error reply for the first thing that is wrong.

local MAX_COUNT = 4294967295 -- a limit or a weight: an unsigned 32-bit number
local MAX_TIME = 604800000 -- a lease or a liveness: seven days in ms
local MAX_NUMBER = 9007199254740991 -- a token or a ticket: the largest that a double holds exactly

local PERMITS, QUEUE, CLIENTS, STATE = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local refusal

-- What all four keys begin with: the prefix, and the semaphore's name in braces.
local stem = string.match(PERMITS or '', '^([^{}]*:{[^{}]+}):permits$')
if #KEYS ~= 4 or not stem or QUEUE ~= stem .. ':queue' or CLIENTS ~= stem .. ':clients'
  or STATE ~= stem .. ':state' then
  refusal = redis.error_reply('SEM_KEYS 4 keys are needed, in this order: PREFIX:{NAME}:permits, '
    .. 'PREFIX:{NAME}:queue, PREFIX:{NAME}:clients, PREFIX:{NAME}:state')
end

local function wrong(index, name, wanted)
  local got = ARGV[index] and string.gsub(string.sub(ARGV[index], 1, 40), '[^\32-\126]', '?')
  refusal = refusal or redis.error_reply('SEM_ARG ARGV[' .. index .. '] (' .. name .. ') must be '
    .. wanted .. ', got ' .. (got and '"' .. got .. '"' or 'nothing'))
end

-- Whether a text is a decimal integer, without needless zeros, from `min` to `max`.
local function is_integer(text, min, max)
  return text and #text <= 16 and string.find(text, '^%d+$') and text + 0 >= min and text + 0 <= max
    and (string.byte(text) ~= 48 or text == '0')
end

local function check_count(count)
  if #ARGV ~= count then
    refusal = refusal
      or redis.error_reply('SEM_ARG ' .. count .. ' arguments are needed, got ' .. #ARGV)
  end
end

-- After the first `fixed` arguments there must be 1 to 1,000 requests of `size` arguments each.
local function check_requests(fixed, size)
  local count = (#ARGV - fixed) / size
  if count < 1 or count > 1000 or count % 1 ~= 0 then
    refusal = refusal or redis.error_reply('SEM_ARG 1 to 1000 requests of ' .. size
      .. ' arguments must follow the first ' .. fixed .. ', got ' .. #ARGV .. ' in all')
  end
end

local asked = {} -- the words of this call

-- The words among the arguments, from `from` on one in `step`, which are called `name`; and what
-- each says, {how, client, weight, lease}.
local function read_words(name, from, step, min_weight, max_weight)
  local words, parts, sub, find = {}, {}, string.sub, string.find
  local start, said, size = nil, nil, 0 -- mostly all words begin alike, up to the nonce
  for index = from, refusal and 0 or #ARGV, step do
    local word = ARGV[index]
    if sub(word, 1, size) ~= start then
      local how, client, weight, lease, nonce =
        string.match(sub(word, 1, 256), '^([PSN]):([%w._-]+):(%d+):(%d+):()')
      if not how or #client > 100 or not is_integer(weight, min_weight, max_weight)
        or not is_integer(lease, 1, MAX_TIME) then
        wrong(index, name, 'HOW:CLIENT:WEIGHT:LEASE:NONCE with a weight from '
          .. min_weight .. ' to ' .. max_weight)
        return words, parts
      end
      size, said = nonce - 1, {how, client, weight + 0, lease + 0}
      start = sub(word, 1, size)
    end
    if #word < size + 16 or #word > size + 64 or not find(word, '^[%w_-]+$', size + 1) then
      wrong(index, name, 'one with a nonce of 16 to 64 letters, digits, "_" or "-"')
    elseif asked[word] then
      wrong(index, name, 'given once in a call')
    end
    local i = #words + 1
    words[i], parts[i], asked[word] = word, said, true
  end
  return words, parts
end

-- Where a client hears of its permits.
local function channel_of(how, client)
  return string.match(stem, how == 'S' and '.*' or '^(.*):{') .. ':wake:' .. client
end

local kind, number, liveness = ARGV[1], ARGV[2], ARGV[3]
if kind ~= 'declare' and kind ~= 'declared' and kind ~= 'initial' then
  wrong(1, 'kind', '"declare", "declared" or "initial"')
elseif not is_integer(number, 0, MAX_COUNT) then
  wrong(2, 'limit', 'an integer from 0 to 4294967295')
elseif not is_integer(liveness, 1, MAX_TIME) then
  wrong(3, 'liveness', 'an integer from 1 to 604800000')
end
check_requests(3, 2)
local words, parts = read_words('word', 4, 2, 1, MAX_COUNT)
for i = 1, #words do
  local place, part = ARGV[2 * i + 3], parts[i]
  if part ~= parts[1] and (part[1] ~= parts[1][1] or part[2] ~= parts[1][2]) then
    wrong(2 * i + 2, 'word', 'of the same HOW and CLIENT as the first')
  elseif place ~= 'wait' and place ~= 'try' and not is_integer(place, 1, MAX_NUMBER)
    and not is_integer(string.match(place, '^%+(.*)'), 0, 3600000) then
    wrong(2 * i + 3, 'place', '"wait", "try", "+0" to "+3600000" or a ticket')
  end
end
if refusal then
  return refusal
end
local lookup = words
-- Reads the keys, before anything is written, and when the leases of the words in `lookup` end.
--
-- `permits` and `clients` have one member more, '*', so that neither key is ever emptied. (While a
-- slot of a cluster moves, an empty key ends the script that comes back to it.) In `permits` its
-- score is what is held less the number of permits, less NO_EXTRA: so both can be counted whatever
-- other key is lost. In `clients` it is the longest liveness in use.

local NO_EXTRA = 10000000000 -- more than any sum of weights: the score stays below all times
local BOUND = 1000 -- ended leases, and waiters, that one script looks at at most

local clock = redis.call('TIME')
local now_us = clock[1] * 1000000 + clock[2]
local now = math.floor(now_us / 1000) -- ms

local state = redis.pcall('HMGET', STATE,
  'version', 'declared', 'runtime', 'last', 'longest', 'first', 'keep')
local permits, queued = redis.pcall('ZCARD', PERMITS), redis.pcall('ZCARD', QUEUE)
local clients = redis.pcall('ZCARD', CLIENTS)
local strange = state.err and STATE or type(permits) == 'table' and PERMITS
  or type(queued) == 'table' and QUEUE or type(clients) == 'table' and CLIENTS
if strange then
  return redis.error_reply('SEM_TYPE the key ' .. strange .. ' exists and is not a '
    .. (strange == STATE and 'hash' or 'sorted set'))
elseif state[1] and state[1] ~= '2' then
  return redis.error_reply('SEM_VERSION the semaphore was written by protocol version '
    .. state[1] .. ', these scripts speak version 2')
end

lookup[#lookup + 1] = '*'
local ends = redis.call('ZMSCORE', PERMITS, unpack(lookup)) -- of the leases of `lookup`
local extra = ends[#lookup] and ends[#lookup] + NO_EXTRA
lookup[#lookup] = nil
permits = extra and permits - 1 or permits
local held = permits + (extra or 0) -- what all permits weigh

local declared, runtime = tonumber(state[2]), tonumber(state[3])
local limit = runtime or declared or 0 -- the one in force
local last = (state[4] or 0) + 0 -- the last number given, as a token or as a ticket
local longest = (state[5] or 0) + 0 -- no lease in use is longer, ms
local first = (state[6] or 0) + 0 -- no lease ends before, ms
local keep = (state[7] or 0) + 0 -- when the keys expire, ms

-- What is decided from here on, for lib/write.lua.
local need = 0 -- until when the keys must live for this call, ms; 0 where nothing changes
local changed = {'last', last} -- fields of `state`, and their values
local granted, leases, index_of = {}, {}, {} -- words whose lease begins now
local has_new_key, has_new_limit = not extra, false
local more = false -- the script stopped at a bound: somebody must call `wake`

if not state[1] then
  -- New, or `state` was lost: whoever is there may have any lease, and any ticket.
  if permits + queued + clients > 0 then
    longest, first, need = MAX_TIME, 0, now + MAX_TIME
    last = (redis.call('ZRANGE', QUEUE, -1, -1, 'WITHSCORES')[2] or 0) + 0
  else
    first = MAX_NUMBER
  end
  changed = {'last', last, 'version', '2', 'longest', longest, 'first', first}
end

local function set(field, value)
  changed[#changed + 1], changed[#changed + 2] = field, value
  return value
end

local declared_before = declared or -1
local is_known = declared or runtime
if kind == 'declare' and number + 0 ~= declared or kind == 'declared' and not is_known then
  declared = set('declared', number + 0)
  need = math.max(need, now)
elseif kind == 'initial' and not is_known then
  runtime, has_new_limit = set('runtime', number + 0), true
  need = math.max(need, now)
end
limit = runtime or declared
local needed, over = 0, nil -- of those that hold no permit: the weight; and whose lease has ended
for i = 1, #words do
  local weight, held_until = parts[i][3], ends[i]
  if not held_until or held_until + 0 <= now then
    needed, ends[i] = needed + weight, nil
    over = held_until and {i, over} or over
    if weight > limit and not runtime then
      return redis.error_reply(string.format(
        'SEM_TOO_HEAVY ARGV[%d] (word) weighs %.0f, the limit is %.0f', 2 * i + 2, weight, limit
      ))
    end
  end
end
while over do
  permits, held = permits - 1, held - parts[over[1]][3]
  redis.call('ZREM', PERMITS, words[over[1]])
  over = over[2]
end
-- Removes ended leases, so that what is left can be counted.

if last > now_us + 1000000 then
  -- The server's clock was set back, and the dead would stay longer by that. So nothing may reach
  -- further ahead than it can since then.
  redis.call('ZREM', PERMITS, '') -- no word is empty; see release.lua
  local longest_liveness = redis.call('ZSCORE', CLIENTS, '*') or 0
  for key, latest in pairs({[PERMITS] = now + longest, [CLIENTS] = now + longest_liveness}) do
    local beyond = redis.call('ZRANGEBYSCORE', key, '(' .. latest, '+inf', 'LIMIT', 0, BOUND)
    local cut = 0
    for _, member in ipairs(beyond) do
      if not string.find(member, '^%a:[^:]*:0:') then -- marks of `limit` hold nothing
        redis.call('ZADD', key, latest, member)
        first, cut = 0, cut + 1
      end
    end
    more = more or cut == BOUND
  end
end
if first <= now then
  local ended = redis.call('ZRANGEBYSCORE', PERMITS, 0, now, 'LIMIT', 0, BOUND)
  for _, word in ipairs(ended) do
    permits, held = permits - 1, held - string.match(word, '^%a:[^:]*:(%d+)')
  end
  if ended[1] then
    redis.call('ZREM', PERMITS, unpack(ended))
  end
  local next = redis.call('ZRANGEBYSCORE', PERMITS, 0, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  first = set('first', (next[2] or MAX_NUMBER) + 0)
  more = more or #ended == BOUND
  need = math.max(need, now)
end

-- Those with a place of their own, which may be in front of others, come first. A ticket is
-- believed when it can have been given. A head start counts from the last number given, and for
-- nothing where the server's clock is far behind that.
local tickets = queued > 0 and redis.call('ZMSCORE', QUEUE, unpack(words)) or {}
local may_wait = false
for i = 1, (queued > 0 or held + needed > limit) and #words or 0 do
  local place = ARGV[2 * i + 3]
  local ticket, ahead = tonumber(place), string.match(place, '^%+(.*)')
  may_wait = may_wait or place ~= 'try'
  if ticket and not ends[i] and not tickets[i] then
    if ahead or ticket > math.max(last, now_us) then
      last = math.max(last + 1, now_us)
      ticket = (not ahead or last > now_us + 1000000) and last or last - ahead * 1000
    end
    last, tickets[i] = math.max(last, ticket), ticket
    has_new_key, queued = has_new_key or queued == 0, queued + 1
    redis.call('ZADD', QUEUE, ticket, words[i])
  end
end
if may_wait then
  -- The client is there for as long as it says, with all that it waits for. Of those who have died
  -- two leave with each that is new.
  local client, heard_until = parts[1][2], now + liveness
  local added = redis.call('ZADD', CLIENTS, 'GT', liveness, '*', heard_until, client)
  if added > 0 then
    has_new_key = has_new_key or added == 2
    local dead = redis.call('ZRANGEBYSCORE', CLIENTS, '(604800000', '(' .. now, 'LIMIT', 0, 2)
    redis.call('ZREM', CLIENTS, '', unpack(dead))
  end
  need, last = math.max(need, heard_until), math.max(last, now_us - 1) -- shows a step back
end
-- Gives what is free to the waiters in the order of their tickets, until the first of them does not
-- fit. Whoever is not there any more leaves without a permit.

local leaving, told = {}, {} -- words that leave the queue, and those of whom a client must be told
if queued > 0 and held < limit then
  local listening = {} -- whether anybody listens, by channel

  -- Whether a client was heard of in time (as the caller was, with what it asks for) and listens. A
  -- server that does not say who listens counts as one where somebody does.
  local function is_there(how, client)
    local heard_until = redis.call('ZSCORE', CLIENTS, client) or 0
    if heard_until + 0 < now or how == 'N' then
      return heard_until + 0 >= now
    end
    local channel = channel_of(how, client)
    if listening[channel] == nil then
      local answer = redis.pcall('PUBSUB', how == 'S' and 'SHARDNUMSUB' or 'NUMSUB', channel)
      listening[channel] = answer[2] ~= 0
    end
    return listening[channel]
  end

  local is_blocked = false
  while queued > 0 and held < limit and not is_blocked do
    if #leaving >= BOUND then
      more = true
      break
    end
    local last_one = #leaving + math.min(100, math.max(limit - held, #leaving)) - 1
    for _, word in ipairs(redis.call('ZRANGE', QUEUE, #leaving, last_one)) do
      local how, client, weight, lease = string.match(word, '^(%a):([^:]*):(%d+):(%d+)')
      local is_too_heavy = not runtime and weight + 0 > limit
      if held >= limit then
        break
      end
      if asked[word] or is_there(how, client) then
        if not is_too_heavy and held + weight > limit then
          is_blocked = true
          break
        end
        if not is_too_heavy then
          local index = #granted + 1
          granted[index], leases[index], index_of[word] = word, lease + 0, index
          permits, held = permits + 1, held + weight
        end
        if how ~= 'N' and not asked[word] then
          told[#told + 1] = {word, how, client, lease}
        end
      end
      leaving[#leaving + 1], queued = word, queued - 1
    end
  end
end

local indexes, others, refused = {}, {}, 0 -- of those granted, in `granted`; the others' answers
local waits, alike, same = false, words[2] ~= nil, parts[1][4]
for i = 1, #words do
  local word, part = words[i], parts[i]
  local index = index_of[word]
  if ends[i] or not index and queued == 0 and held + part[3] <= limit then
    index = #granted + 1
    granted[index], leases[index] = word, part[4]
    if not ends[i] then
      permits, held = permits + 1, held + part[3]
    end
  elseif not index and tickets[i] then
    local rank = redis.call('ZRANK', QUEUE, word) - #leaving + 1
    others[i], waits = {2, tickets[i] + 0, rank}, true
  elseif not index and ARGV[2 * i + 3] == 'try' then
    others[i], refused = {0, 0, 0}, refused + 1
  elseif not index then
    last = math.max(last + 1, now_us)
    has_new_key, queued = has_new_key or queued == 0, queued + 1
    redis.call('ZADD', QUEUE, last, word)
    others[i], waits = {2, last, queued}, true
  end
  indexes[i] = index
  alike = alike and index == i and part[4] == same
end
if refused == #words then
  redis.call('ZREM', QUEUE, unpack(words)) -- which only a server does that may write
end
-- Writes what was decided, and tells last: a write that the server refuses (too few replicas, no
-- disk) ends the script before anybody is told. `token` is that of the first word of `granted`, the
-- next ones count on. `wake_in` is 0 where a bound was met, else when the next lease ends, for
-- those who wait.

local token = math.max(last + 1, now_us)
local entries = {}
for i, word in ipairs(granted) do
  local lease = leases[i]
  if lease ~= leases[i - 1] then
    -- Where all leases in use begin now, none is longer than the longest of these.
    if lease > longest or i == 1 and #granted == permits and lease ~= longest then
      longest = set('longest', lease)
    end
    if now + lease < first then
      first = set('first', now + lease)
    end
    need = math.max(need, now + lease)
    leases.text = string.format('%.0f', now + lease)
  end
  entries[2 * i - 1], entries[2 * i] = leases.text, word
end
if granted[1] then
  last = token + #granted - 1
end
if held - permits ~= extra and (extra or permits > 0) then
  entries[#entries + 1], entries[#entries + 2] = held - permits - NO_EXTRA, '*'
  need = math.max(need, now)
end
for from = 1, #entries, 1000 do
  redis.call('ZADD', PERMITS, unpack(entries, from, math.min(from + 999, #entries)))
end
if need > 0 then
  local must_last = math.max(need, math.floor(last / 1000)) -- numbers must not go back
  local moves = must_last > keep
  if moves then
    keep = set('keep', must_last + math.max(60000, must_last - now))
  end
  changed[2] = last
  redis.call('HSET', STATE, unpack(changed))
  if moves or has_new_key then
    for _, key in ipairs({PERMITS, QUEUE, CLIENTS}) do
      redis.pcall('PEXPIREAT', key, keep) -- one that is empty may have moved to another node
    end
  end
  if runtime and has_new_limit then
    redis.call('PERSIST', STATE) -- a limit set at run time stays until it is cleared
  elseif not runtime and (moves or has_new_limit) then
    -- It stays longer, so that numbers grow on when the clock steps back while nobody is there.
    redis.call('PEXPIREAT', STATE, keep + 7200000)
  end
end
-- Last, since the queue may be empty after that.
for from = 1, #leaving, 1000 do
  redis.call('ZREM', QUEUE, unpack(leaving, from, math.min(from + 999, #leaving)))
end
if told[1] then
  local messages = {}
  for _, it in ipairs(told) do
    local word, how, client, lease = unpack(it)
    local channel, index = channel_of(how, client), index_of[word]
    local message = messages[channel]
      or {how == 'S' and 'SPUBLISH' or 'PUBLISH', channel, string.match(stem, '{(.*)}')}
    message[3] = string.format('%s\n%s %.0f %.0f', message[3], word,
      index and token + index - 1 or 0, index and now + lease or 0)
    messages[channel] = message
  end
  for _, message in pairs(messages) do
    redis.pcall(unpack(message))
  end
end
local wake_in = more and 0 or waits and first < MAX_NUMBER and math.max(1, first - now) or -1

if alike then
  return {now, wake_in, declared_before, 3, token, now + same}
end
local reply = {now, wake_in, declared_before}
for i = 1, #words do
  local index, other = indexes[i], others[i]
  reply[3 * i + 1] = index and 1 or other[1]
  reply[3 * i + 2] = index and token + index - 1 or other[2]
  reply[3 * i + 3] = index and now + parts[i][4] or other[3]
end
return reply
end,
}

redis.register_function{
  function_name = 'sem_inspect',
  flags = {'no-writes'},
  callback = function(KEYS, ARGV)
-- inspect: tells who holds and who waits, a page at a time. Changes nothing.
--
-- Tokens are not stored: the holder has its own. `last` is the newest token or ticket given.
--
-- KEYS[1] permits   sorted set: word -> end of its lease, ms on the server's clock
-- KEYS[2] queue     sorted set: word -> ticket
-- KEYS[3] clients   sorted set: client -> heard until, ms on the server's clock
-- KEYS[4] state     hash: version, limits, last number, longest lease, expiry
-- ARGV[1] skip_held 0 to 9007199254740991: how many holders to leave out
-- ARGV[2] holders   0 to 1000: how many holders to tell
-- ARGV[3] skip_wait 0 to 9007199254740991: how many waiters to leave out
-- ARGV[4] waiters   0 to 1000: how many waiters to tell
-- Reply             server time (ms), then seven integers and two lists:
--   limit           in force, -1 where there is none
--   declared        -1 where there is none
--   runtime         -1 where there is none
--   held            the weight of all permits whose lease has not ended; too high for a moment when
--                   more than 1,000 have
--   members         entries in the list of holders, over all pages
--   queued          the length of the queue
--   last            the last number given, or one before the next; 0 before the first
--   holders         for each, by the end of lease: word, ms left. Marks of `limit` are among them:
--                   they weigh 0
--   waiters         for each, in the queue's order: word, ms waited (a head start counts), and ms
--                   for which its client is taken to be there, -1 where it is not
-- Errors            SEM_KEYS, SEM_ARG, SEM_TYPE, SEM_VERSION
-- Cost              O(log N) and O(1) for each entry told. Commands:
--   9               nobody holds or waits
--   10              holders and waiters told
-- Flags             no-writes
-- Checks of KEYS and ARGV. All of them run before the first write, so a call that is refused has
-- changed nothing. `refusal` is the error reply for the first thing that is wrong.

local MAX_COUNT = 4294967295 -- a limit or a weight: an unsigned 32-bit number
local MAX_TIME = 604800000 -- a lease or a liveness: seven days in ms
local MAX_NUMBER = 9007199254740991 -- a token or a ticket: the largest that a double holds exactly

local PERMITS, QUEUE, CLIENTS, STATE = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local refusal

-- What all four keys begin with: the prefix, and the semaphore's name in braces.
local stem = string.match(PERMITS or '', '^([^{}]*:{[^{}]+}):permits$')
if #KEYS ~= 4 or not stem or QUEUE ~= stem .. ':queue' or CLIENTS ~= stem .. ':clients'
  or STATE ~= stem .. ':state' then
  refusal = redis.error_reply('SEM_KEYS 4 keys are needed, in this order: PREFIX:{NAME}:permits, '
    .. 'PREFIX:{NAME}:queue, PREFIX:{NAME}:clients, PREFIX:{NAME}:state')
end

local function wrong(index, name, wanted)
  local got = ARGV[index] and string.gsub(string.sub(ARGV[index], 1, 40), '[^\32-\126]', '?')
  refusal = refusal or redis.error_reply('SEM_ARG ARGV[' .. index .. '] (' .. name .. ') must be '
    .. wanted .. ', got ' .. (got and '"' .. got .. '"' or 'nothing'))
end

-- Whether a text is a decimal integer, without needless zeros, from `min` to `max`.
local function is_integer(text, min, max)
  return text and #text <= 16 and string.find(text, '^%d+$') and text + 0 >= min and text + 0 <= max
    and (string.byte(text) ~= 48 or text == '0')
end

local function check_count(count)
  if #ARGV ~= count then
    refusal = refusal
      or redis.error_reply('SEM_ARG ' .. count .. ' arguments are needed, got ' .. #ARGV)
  end
end

-- After the first `fixed` arguments there must be 1 to 1,000 requests of `size` arguments each.
local function check_requests(fixed, size)
  local count = (#ARGV - fixed) / size
  if count < 1 or count > 1000 or count % 1 ~= 0 then
    refusal = refusal or redis.error_reply('SEM_ARG 1 to 1000 requests of ' .. size
      .. ' arguments must follow the first ' .. fixed .. ', got ' .. #ARGV .. ' in all')
  end
end

local asked = {} -- the words of this call

-- The words among the arguments, from `from` on one in `step`, which are called `name`; and what
-- each says, {how, client, weight, lease}.
local function read_words(name, from, step, min_weight, max_weight)
  local words, parts, sub, find = {}, {}, string.sub, string.find
  local start, said, size = nil, nil, 0 -- mostly all words begin alike, up to the nonce
  for index = from, refusal and 0 or #ARGV, step do
    local word = ARGV[index]
    if sub(word, 1, size) ~= start then
      local how, client, weight, lease, nonce =
        string.match(sub(word, 1, 256), '^([PSN]):([%w._-]+):(%d+):(%d+):()')
      if not how or #client > 100 or not is_integer(weight, min_weight, max_weight)
        or not is_integer(lease, 1, MAX_TIME) then
        wrong(index, name, 'HOW:CLIENT:WEIGHT:LEASE:NONCE with a weight from '
          .. min_weight .. ' to ' .. max_weight)
        return words, parts
      end
      size, said = nonce - 1, {how, client, weight + 0, lease + 0}
      start = sub(word, 1, size)
    end
    if #word < size + 16 or #word > size + 64 or not find(word, '^[%w_-]+$', size + 1) then
      wrong(index, name, 'one with a nonce of 16 to 64 letters, digits, "_" or "-"')
    elseif asked[word] then
      wrong(index, name, 'given once in a call')
    end
    local i = #words + 1
    words[i], parts[i], asked[word] = word, said, true
  end
  return words, parts
end

-- Where a client hears of its permits.
local function channel_of(how, client)
  return string.match(stem, how == 'S' and '.*' or '^(.*):{') .. ':wake:' .. client
end

check_count(4)
for index, argument in ipairs({'skip_held', 'holders', 'skip_wait', 'waiters'}) do
  local max = index % 2 == 0 and 1000 or MAX_NUMBER
  if not refusal and not is_integer(ARGV[index], 0, max) then
    wrong(index, argument, string.format('an integer from 0 to %.0f', max))
  end
end
local lookup = {}
if refusal then
  return refusal
end
-- Reads the keys, before anything is written, and when the leases of the words in `lookup` end.
--
-- `permits` and `clients` have one member more, '*', so that neither key is ever emptied. (While a
-- slot of a cluster moves, an empty key ends the script that comes back to it.) In `permits` its
-- score is what is held less the number of permits, less NO_EXTRA: so both can be counted whatever
-- other key is lost. In `clients` it is the longest liveness in use.

local NO_EXTRA = 10000000000 -- more than any sum of weights: the score stays below all times
local BOUND = 1000 -- ended leases, and waiters, that one script looks at at most

local clock = redis.call('TIME')
local now_us = clock[1] * 1000000 + clock[2]
local now = math.floor(now_us / 1000) -- ms

local state = redis.pcall('HMGET', STATE,
  'version', 'declared', 'runtime', 'last', 'longest', 'first', 'keep')
local permits, queued = redis.pcall('ZCARD', PERMITS), redis.pcall('ZCARD', QUEUE)
local clients = redis.pcall('ZCARD', CLIENTS)
local strange = state.err and STATE or type(permits) == 'table' and PERMITS
  or type(queued) == 'table' and QUEUE or type(clients) == 'table' and CLIENTS
if strange then
  return redis.error_reply('SEM_TYPE the key ' .. strange .. ' exists and is not a '
    .. (strange == STATE and 'hash' or 'sorted set'))
elseif state[1] and state[1] ~= '2' then
  return redis.error_reply('SEM_VERSION the semaphore was written by protocol version '
    .. state[1] .. ', these scripts speak version 2')
end

lookup[#lookup + 1] = '*'
local ends = redis.call('ZMSCORE', PERMITS, unpack(lookup)) -- of the leases of `lookup`
local extra = ends[#lookup] and ends[#lookup] + NO_EXTRA
lookup[#lookup] = nil
permits = extra and permits - 1 or permits
local held = permits + (extra or 0) -- what all permits weigh

local declared, runtime = tonumber(state[2]), tonumber(state[3])
local limit = runtime or declared or 0 -- the one in force
local last = (state[4] or 0) + 0 -- the last number given, as a token or as a ticket
local longest = (state[5] or 0) + 0 -- no lease in use is longer, ms
local first = (state[6] or 0) + 0 -- no lease ends before, ms
local keep = (state[7] or 0) + 0 -- when the keys expire, ms

-- What is decided from here on, for lib/write.lua.
local need = 0 -- until when the keys must live for this call, ms; 0 where nothing changes
local changed = {'last', last} -- fields of `state`, and their values
local granted, leases, index_of = {}, {}, {} -- words whose lease begins now
local has_new_key, has_new_limit = not extra, false
local more = false -- the script stopped at a bound: somebody must call `wake`

if not state[1] then
  -- New, or `state` was lost: whoever is there may have any lease, and any ticket.
  if permits + queued + clients > 0 then
    longest, first, need = MAX_TIME, 0, now + MAX_TIME
    last = (redis.call('ZRANGE', QUEUE, -1, -1, 'WITHSCORES')[2] or 0) + 0
  else
    first = MAX_NUMBER
  end
  changed = {'last', last, 'version', '2', 'longest', longest, 'first', first}
end

local function set(field, value)
  changed[#changed + 1], changed[#changed + 2] = field, value
  return value
end

-- Calls `tell` with each member of a page, and its score.
local function each(key, from, count, tell)
  local flat = count > 0 and redis.call('ZRANGE', key, from, from + count - 1, 'WITHSCORES') or {}
  for i = 1, #flat, 2 do
    tell(flat[i], flat[i + 1] + 0)
  end
end

local from = extra and 1 or 0 -- '*' comes before all words
local ended = redis.call('ZCOUNT', PERMITS, 0, now)
each(PERMITS, from, math.min(ended, BOUND), function(word)
  held = held - string.match(word, '^%a:[^:]*:(%d+)')
end)
local held_by, waiting, waiters = {}, {}, {}
each(PERMITS, from + ended + ARGV[1], ARGV[2] + 0, function(word, held_until)
  held_by[#held_by + 1], held_by[#held_by + 2] = word, held_until - now
end)
each(QUEUE, ARGV[3] + 0, ARGV[4] + 0, function(word, ticket)
  waiters[#waiters + 1] = string.match(word, '^%a:([^:]*)')
  waiting[#waiting + 1] = word
  waiting[#waiting + 1] = math.max(0, now - math.floor(ticket / 1000))
  waiting[#waiting + 1] = -1
end)
local heard = waiters[1] and redis.call('ZMSCORE', CLIENTS, unpack(waiters)) or {}
for i, heard_until in ipairs(heard) do
  waiting[3 * i] = math.max(-1, (heard_until or 0) - now)
end
return {
  now, runtime or declared or -1, declared or -1, runtime or -1,
  held, permits - ended, queued, last, held_by, waiting,
}
end,
}

redis.register_function{
  function_name = 'sem_limit',
  flags = {},
  callback = function(KEYS, ARGV)
-- limit: declares, sets, adds to or clears the limit, then serves the queue.
--
-- The limit in force is the one set at run time, else the declared one. A lower limit takes no
-- permit away: it drains. A limit of 0 pauses the semaphore.
--
-- KEYS[1] permits   sorted set: word -> end of its lease, ms on the server's clock
-- KEYS[2] queue     sorted set: word -> ticket
-- KEYS[3] clients   sorted set: client -> heard until, ms on the server's clock
-- KEYS[4] state     hash: version, limits, last number, longest lease, expiry
-- ARGV[1] action    one of these, with the arguments that follow it:
--   "declare" n     the limit of the client's configuration; the newest one counts
--   "initial" n     sets n at run time, unless one is set at run time
--   "set" n mark    sets n at run time, for everyone, until "clear"
--   "add" n mark    sets what is in force plus n at run time
--   "clear" mark    the declared limit is in force again
-- ARGV[2] n         0 to 4294967295; not with "clear"
-- ARGV[3] mark      a word of weight 0 (README.md): a change that comes again with the same word
--                   within its lease counts once; ARGV[2] with "clear"
-- Reply             server time (ms), wake_in, then four integers, -1 where there is none:
--   limit           in force now
--   before          in force before
--   declared        declared now
--   before          declared before
--   wake_in         0: call `wake` at once, -1 no need
-- Errors            SEM_KEYS, SEM_ARG, SEM_TYPE, SEM_VERSION
-- Cost              O(log N) for each waiter served. Commands:
--   6               the same limit declared again
-- Flags             none
-- Checks of KEYS and ARGV. All of them run before the first write, so a call that is refused has
-- changed nothing. `refusal` is the error reply for the first thing that is wrong.

local MAX_COUNT = 4294967295 -- a limit or a weight: an unsigned 32-bit number
local MAX_TIME = 604800000 -- a lease or a liveness: seven days in ms
local MAX_NUMBER = 9007199254740991 -- a token or a ticket: the largest that a double holds exactly

local PERMITS, QUEUE, CLIENTS, STATE = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local refusal

-- What all four keys begin with: the prefix, and the semaphore's name in braces.
local stem = string.match(PERMITS or '', '^([^{}]*:{[^{}]+}):permits$')
if #KEYS ~= 4 or not stem or QUEUE ~= stem .. ':queue' or CLIENTS ~= stem .. ':clients'
  or STATE ~= stem .. ':state' then
  refusal = redis.error_reply('SEM_KEYS 4 keys are needed, in this order: PREFIX:{NAME}:permits, '
    .. 'PREFIX:{NAME}:queue, PREFIX:{NAME}:clients, PREFIX:{NAME}:state')
end

local function wrong(index, name, wanted)
  local got = ARGV[index] and string.gsub(string.sub(ARGV[index], 1, 40), '[^\32-\126]', '?')
  refusal = refusal or redis.error_reply('SEM_ARG ARGV[' .. index .. '] (' .. name .. ') must be '
    .. wanted .. ', got ' .. (got and '"' .. got .. '"' or 'nothing'))
end

-- Whether a text is a decimal integer, without needless zeros, from `min` to `max`.
local function is_integer(text, min, max)
  return text and #text <= 16 and string.find(text, '^%d+$') and text + 0 >= min and text + 0 <= max
    and (string.byte(text) ~= 48 or text == '0')
end

local function check_count(count)
  if #ARGV ~= count then
    refusal = refusal
      or redis.error_reply('SEM_ARG ' .. count .. ' arguments are needed, got ' .. #ARGV)
  end
end

-- After the first `fixed` arguments there must be 1 to 1,000 requests of `size` arguments each.
local function check_requests(fixed, size)
  local count = (#ARGV - fixed) / size
  if count < 1 or count > 1000 or count % 1 ~= 0 then
    refusal = refusal or redis.error_reply('SEM_ARG 1 to 1000 requests of ' .. size
      .. ' arguments must follow the first ' .. fixed .. ', got ' .. #ARGV .. ' in all')
  end
end

local asked = {} -- the words of this call

-- The words among the arguments, from `from` on one in `step`, which are called `name`; and what
-- each says, {how, client, weight, lease}.
local function read_words(name, from, step, min_weight, max_weight)
  local words, parts, sub, find = {}, {}, string.sub, string.find
  local start, said, size = nil, nil, 0 -- mostly all words begin alike, up to the nonce
  for index = from, refusal and 0 or #ARGV, step do
    local word = ARGV[index]
    if sub(word, 1, size) ~= start then
      local how, client, weight, lease, nonce =
        string.match(sub(word, 1, 256), '^([PSN]):([%w._-]+):(%d+):(%d+):()')
      if not how or #client > 100 or not is_integer(weight, min_weight, max_weight)
        or not is_integer(lease, 1, MAX_TIME) then
        wrong(index, name, 'HOW:CLIENT:WEIGHT:LEASE:NONCE with a weight from '
          .. min_weight .. ' to ' .. max_weight)
        return words, parts
      end
      size, said = nonce - 1, {how, client, weight + 0, lease + 0}
      start = sub(word, 1, size)
    end
    if #word < size + 16 or #word > size + 64 or not find(word, '^[%w_-]+$', size + 1) then
      wrong(index, name, 'one with a nonce of 16 to 64 letters, digits, "_" or "-"')
    elseif asked[word] then
      wrong(index, name, 'given once in a call')
    end
    local i = #words + 1
    words[i], parts[i], asked[word] = word, said, true
  end
  return words, parts
end

-- Where a client hears of its permits.
local function channel_of(how, client)
  return string.match(stem, how == 'S' and '.*' or '^(.*):{') .. ':wake:' .. client
end

local ARGUMENTS = {declare = 2, initial = 2, set = 3, add = 3, clear = 2}
local action, number, words, marks = ARGV[1], 0, {}, nil
local size = ARGUMENTS[action]
if not size then
  wrong(1, 'action', '"declare", "initial", "set", "add" or "clear"')
else
  check_count(size)
end
if not refusal and action ~= 'clear' then
  number = is_integer(ARGV[2], 0, MAX_COUNT) and ARGV[2] + 0
    or wrong(2, 'n', 'an integer from 0 to 4294967295')
end
if not refusal and (size == 3 or action == 'clear') then
  words, marks = read_words('mark', size, 1, 0, 0)
end
if refusal then
  return refusal
end
local lookup = words
-- Reads the keys, before anything is written, and when the leases of the words in `lookup` end.
--
-- `permits` and `clients` have one member more, '*', so that neither key is ever emptied. (While a
-- slot of a cluster moves, an empty key ends the script that comes back to it.) In `permits` its
-- score is what is held less the number of permits, less NO_EXTRA: so both can be counted whatever
-- other key is lost. In `clients` it is the longest liveness in use.

local NO_EXTRA = 10000000000 -- more than any sum of weights: the score stays below all times
local BOUND = 1000 -- ended leases, and waiters, that one script looks at at most

local clock = redis.call('TIME')
local now_us = clock[1] * 1000000 + clock[2]
local now = math.floor(now_us / 1000) -- ms

local state = redis.pcall('HMGET', STATE,
  'version', 'declared', 'runtime', 'last', 'longest', 'first', 'keep')
local permits, queued = redis.pcall('ZCARD', PERMITS), redis.pcall('ZCARD', QUEUE)
local clients = redis.pcall('ZCARD', CLIENTS)
local strange = state.err and STATE or type(permits) == 'table' and PERMITS
  or type(queued) == 'table' and QUEUE or type(clients) == 'table' and CLIENTS
if strange then
  return redis.error_reply('SEM_TYPE the key ' .. strange .. ' exists and is not a '
    .. (strange == STATE and 'hash' or 'sorted set'))
elseif state[1] and state[1] ~= '2' then
  return redis.error_reply('SEM_VERSION the semaphore was written by protocol version '
    .. state[1] .. ', these scripts speak version 2')
end

lookup[#lookup + 1] = '*'
local ends = redis.call('ZMSCORE', PERMITS, unpack(lookup)) -- of the leases of `lookup`
local extra = ends[#lookup] and ends[#lookup] + NO_EXTRA
lookup[#lookup] = nil
permits = extra and permits - 1 or permits
local held = permits + (extra or 0) -- what all permits weigh

local declared, runtime = tonumber(state[2]), tonumber(state[3])
local limit = runtime or declared or 0 -- the one in force
local last = (state[4] or 0) + 0 -- the last number given, as a token or as a ticket
local longest = (state[5] or 0) + 0 -- no lease in use is longer, ms
local first = (state[6] or 0) + 0 -- no lease ends before, ms
local keep = (state[7] or 0) + 0 -- when the keys expire, ms

-- What is decided from here on, for lib/write.lua.
local need = 0 -- until when the keys must live for this call, ms; 0 where nothing changes
local changed = {'last', last} -- fields of `state`, and their values
local granted, leases, index_of = {}, {}, {} -- words whose lease begins now
local has_new_key, has_new_limit = not extra, false
local more = false -- the script stopped at a bound: somebody must call `wake`

if not state[1] then
  -- New, or `state` was lost: whoever is there may have any lease, and any ticket.
  if permits + queued + clients > 0 then
    longest, first, need = MAX_TIME, 0, now + MAX_TIME
    last = (redis.call('ZRANGE', QUEUE, -1, -1, 'WITHSCORES')[2] or 0) + 0
  else
    first = MAX_NUMBER
  end
  changed = {'last', last, 'version', '2', 'longest', longest, 'first', first}
end

local function set(field, value)
  changed[#changed + 1], changed[#changed + 2] = field, value
  return value
end

local before, declared_before = runtime or declared or -1, declared or -1
local is_new = not (ends[1] and ends[1] + 0 > now)
if action == 'add' and is_new and limit + number > MAX_COUNT then
  wrong(2, 'n', string.format('at most %.0f: the limit cannot exceed %.0f',
    MAX_COUNT - limit, MAX_COUNT))
  return refusal
end
if marks and is_new then
  -- It is no lease in use: holders who die are not to stay longer for it.
  local forgotten = now + marks[1][4]
  redis.call('ZADD', PERMITS, forgotten, words[1])
  permits, need = permits + (ends[1] and 0 or 1), math.max(need, forgotten)
  first = forgotten < first and set('first', forgotten) or first
end
if action == 'declare' and number ~= declared then
  declared, need = set('declared', number), math.max(need, now)
elseif action == 'set' and is_new or action == 'initial' and not runtime then
  runtime, has_new_limit = set('runtime', number), true
elseif action == 'add' and is_new then
  runtime, has_new_limit = set('runtime', limit + number), true
elseif action == 'clear' and is_new and runtime then
  redis.call('HDEL', STATE, 'runtime')
  runtime, has_new_limit = nil, true
end
limit, need = runtime or declared or 0, has_new_limit and math.max(need, now) or need
-- Removes ended leases, so that what is left can be counted.

if last > now_us + 1000000 then
  -- The server's clock was set back, and the dead would stay longer by that. So nothing may reach
  -- further ahead than it can since then.
  redis.call('ZREM', PERMITS, '') -- no word is empty; see release.lua
  local longest_liveness = redis.call('ZSCORE', CLIENTS, '*') or 0
  for key, latest in pairs({[PERMITS] = now + longest, [CLIENTS] = now + longest_liveness}) do
    local beyond = redis.call('ZRANGEBYSCORE', key, '(' .. latest, '+inf', 'LIMIT', 0, BOUND)
    local cut = 0
    for _, member in ipairs(beyond) do
      if not string.find(member, '^%a:[^:]*:0:') then -- marks of `limit` hold nothing
        redis.call('ZADD', key, latest, member)
        first, cut = 0, cut + 1
      end
    end
    more = more or cut == BOUND
  end
end
if first <= now then
  local ended = redis.call('ZRANGEBYSCORE', PERMITS, 0, now, 'LIMIT', 0, BOUND)
  for _, word in ipairs(ended) do
    permits, held = permits - 1, held - string.match(word, '^%a:[^:]*:(%d+)')
  end
  if ended[1] then
    redis.call('ZREM', PERMITS, unpack(ended))
  end
  local next = redis.call('ZRANGEBYSCORE', PERMITS, 0, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  first = set('first', (next[2] or MAX_NUMBER) + 0)
  more = more or #ended == BOUND
  need = math.max(need, now)
end
-- Gives what is free to the waiters in the order of their tickets, until the first of them does not
-- fit. Whoever is not there any more leaves without a permit.

local leaving, told = {}, {} -- words that leave the queue, and those of whom a client must be told
if queued > 0 and held < limit then
  local listening = {} -- whether anybody listens, by channel

  -- Whether a client was heard of in time (as the caller was, with what it asks for) and listens. A
  -- server that does not say who listens counts as one where somebody does.
  local function is_there(how, client)
    local heard_until = redis.call('ZSCORE', CLIENTS, client) or 0
    if heard_until + 0 < now or how == 'N' then
      return heard_until + 0 >= now
    end
    local channel = channel_of(how, client)
    if listening[channel] == nil then
      local answer = redis.pcall('PUBSUB', how == 'S' and 'SHARDNUMSUB' or 'NUMSUB', channel)
      listening[channel] = answer[2] ~= 0
    end
    return listening[channel]
  end

  local is_blocked = false
  while queued > 0 and held < limit and not is_blocked do
    if #leaving >= BOUND then
      more = true
      break
    end
    local last_one = #leaving + math.min(100, math.max(limit - held, #leaving)) - 1
    for _, word in ipairs(redis.call('ZRANGE', QUEUE, #leaving, last_one)) do
      local how, client, weight, lease = string.match(word, '^(%a):([^:]*):(%d+):(%d+)')
      local is_too_heavy = not runtime and weight + 0 > limit
      if held >= limit then
        break
      end
      if asked[word] or is_there(how, client) then
        if not is_too_heavy and held + weight > limit then
          is_blocked = true
          break
        end
        if not is_too_heavy then
          local index = #granted + 1
          granted[index], leases[index], index_of[word] = word, lease + 0, index
          permits, held = permits + 1, held + weight
        end
        if how ~= 'N' and not asked[word] then
          told[#told + 1] = {word, how, client, lease}
        end
      end
      leaving[#leaving + 1], queued = word, queued - 1
    end
  end
end
local waits = false
-- Writes what was decided, and tells last: a write that the server refuses (too few replicas, no
-- disk) ends the script before anybody is told. `token` is that of the first word of `granted`, the
-- next ones count on. `wake_in` is 0 where a bound was met, else when the next lease ends, for
-- those who wait.

local token = math.max(last + 1, now_us)
local entries = {}
for i, word in ipairs(granted) do
  local lease = leases[i]
  if lease ~= leases[i - 1] then
    -- Where all leases in use begin now, none is longer than the longest of these.
    if lease > longest or i == 1 and #granted == permits and lease ~= longest then
      longest = set('longest', lease)
    end
    if now + lease < first then
      first = set('first', now + lease)
    end
    need = math.max(need, now + lease)
    leases.text = string.format('%.0f', now + lease)
  end
  entries[2 * i - 1], entries[2 * i] = leases.text, word
end
if granted[1] then
  last = token + #granted - 1
end
if held - permits ~= extra and (extra or permits > 0) then
  entries[#entries + 1], entries[#entries + 2] = held - permits - NO_EXTRA, '*'
  need = math.max(need, now)
end
for from = 1, #entries, 1000 do
  redis.call('ZADD', PERMITS, unpack(entries, from, math.min(from + 999, #entries)))
end
if need > 0 then
  local must_last = math.max(need, math.floor(last / 1000)) -- numbers must not go back
  local moves = must_last > keep
  if moves then
    keep = set('keep', must_last + math.max(60000, must_last - now))
  end
  changed[2] = last
  redis.call('HSET', STATE, unpack(changed))
  if moves or has_new_key then
    for _, key in ipairs({PERMITS, QUEUE, CLIENTS}) do
      redis.pcall('PEXPIREAT', key, keep) -- one that is empty may have moved to another node
    end
  end
  if runtime and has_new_limit then
    redis.call('PERSIST', STATE) -- a limit set at run time stays until it is cleared
  elseif not runtime and (moves or has_new_limit) then
    -- It stays longer, so that numbers grow on when the clock steps back while nobody is there.
    redis.call('PEXPIREAT', STATE, keep + 7200000)
  end
end
-- Last, since the queue may be empty after that.
for from = 1, #leaving, 1000 do
  redis.call('ZREM', QUEUE, unpack(leaving, from, math.min(from + 999, #leaving)))
end
if told[1] then
  local messages = {}
  for _, it in ipairs(told) do
    local word, how, client, lease = unpack(it)
    local channel, index = channel_of(how, client), index_of[word]
    local message = messages[channel]
      or {how == 'S' and 'SPUBLISH' or 'PUBLISH', channel, string.match(stem, '{(.*)}')}
    message[3] = string.format('%s\n%s %.0f %.0f', message[3], word,
      index and token + index - 1 or 0, index and now + lease or 0)
    messages[channel] = message
  end
  for _, message in pairs(messages) do
    redis.pcall(unpack(message))
  end
end
local wake_in = more and 0 or waits and first < MAX_NUMBER and math.max(1, first - now) or -1

return {now, wake_in, runtime or declared or -1, before, declared or -1, declared_before}
end,
}

redis.register_function{
  function_name = 'sem_probe',
  flags = {'allow-oom'},
  callback = function(KEYS, ARGV)
-- probe: tries every command that the scripts use, on the keys of a semaphore that nobody has.
--
-- A client calls this once when it connects, with a random name. It finds a user whose ACL lacks a
-- command, a key or a channel, a replica, and a server too old, before they do harm half-way.
--
-- KEYS[1] permits   as for every script, but of a name that is used for this only
-- KEYS[2] queue
-- KEYS[3] clients
-- KEYS[4] state
-- ARGV[1] how       "P", "S" or "N", as in a word
-- ARGV[2] client    1 to 100 bytes, as in a word
-- Reply             for each command that failed two strings: its name, the server's error
-- Errors            SEM_KEYS, SEM_ARG
-- Cost              O(1)
-- Flags             allow-oom
-- Checks of KEYS and ARGV. All of them run before the first write, so a call that is refused has
-- changed nothing. `refusal` is the error reply for the first thing that is wrong.

local MAX_COUNT = 4294967295 -- a limit or a weight: an unsigned 32-bit number
local MAX_TIME = 604800000 -- a lease or a liveness: seven days in ms
local MAX_NUMBER = 9007199254740991 -- a token or a ticket: the largest that a double holds exactly

local PERMITS, QUEUE, CLIENTS, STATE = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local refusal

-- What all four keys begin with: the prefix, and the semaphore's name in braces.
local stem = string.match(PERMITS or '', '^([^{}]*:{[^{}]+}):permits$')
if #KEYS ~= 4 or not stem or QUEUE ~= stem .. ':queue' or CLIENTS ~= stem .. ':clients'
  or STATE ~= stem .. ':state' then
  refusal = redis.error_reply('SEM_KEYS 4 keys are needed, in this order: PREFIX:{NAME}:permits, '
    .. 'PREFIX:{NAME}:queue, PREFIX:{NAME}:clients, PREFIX:{NAME}:state')
end

local function wrong(index, name, wanted)
  local got = ARGV[index] and string.gsub(string.sub(ARGV[index], 1, 40), '[^\32-\126]', '?')
  refusal = refusal or redis.error_reply('SEM_ARG ARGV[' .. index .. '] (' .. name .. ') must be '
    .. wanted .. ', got ' .. (got and '"' .. got .. '"' or 'nothing'))
end

-- Whether a text is a decimal integer, without needless zeros, from `min` to `max`.
local function is_integer(text, min, max)
  return text and #text <= 16 and string.find(text, '^%d+$') and text + 0 >= min and text + 0 <= max
    and (string.byte(text) ~= 48 or text == '0')
end

local function check_count(count)
  if #ARGV ~= count then
    refusal = refusal
      or redis.error_reply('SEM_ARG ' .. count .. ' arguments are needed, got ' .. #ARGV)
  end
end

-- After the first `fixed` arguments there must be 1 to 1,000 requests of `size` arguments each.
local function check_requests(fixed, size)
  local count = (#ARGV - fixed) / size
  if count < 1 or count > 1000 or count % 1 ~= 0 then
    refusal = refusal or redis.error_reply('SEM_ARG 1 to 1000 requests of ' .. size
      .. ' arguments must follow the first ' .. fixed .. ', got ' .. #ARGV .. ' in all')
  end
end

local asked = {} -- the words of this call

-- The words among the arguments, from `from` on one in `step`, which are called `name`; and what
-- each says, {how, client, weight, lease}.
local function read_words(name, from, step, min_weight, max_weight)
  local words, parts, sub, find = {}, {}, string.sub, string.find
  local start, said, size = nil, nil, 0 -- mostly all words begin alike, up to the nonce
  for index = from, refusal and 0 or #ARGV, step do
    local word = ARGV[index]
    if sub(word, 1, size) ~= start then
      local how, client, weight, lease, nonce =
        string.match(sub(word, 1, 256), '^([PSN]):([%w._-]+):(%d+):(%d+):()')
      if not how or #client > 100 or not is_integer(weight, min_weight, max_weight)
        or not is_integer(lease, 1, MAX_TIME) then
        wrong(index, name, 'HOW:CLIENT:WEIGHT:LEASE:NONCE with a weight from '
          .. min_weight .. ' to ' .. max_weight)
        return words, parts
      end
      size, said = nonce - 1, {how, client, weight + 0, lease + 0}
      start = sub(word, 1, size)
    end
    if #word < size + 16 or #word > size + 64 or not find(word, '^[%w_-]+$', size + 1) then
      wrong(index, name, 'one with a nonce of 16 to 64 letters, digits, "_" or "-"')
    elseif asked[word] then
      wrong(index, name, 'given once in a call')
    end
    local i = #words + 1
    words[i], parts[i], asked[word] = word, said, true
  end
  return words, parts
end

-- Where a client hears of its permits.
local function channel_of(how, client)
  return string.match(stem, how == 'S' and '.*' or '^(.*):{') .. ':wake:' .. client
end

local how, client = ARGV[1], ARGV[2] or ''
check_count(2)
if how ~= 'P' and how ~= 'S' and how ~= 'N' then
  wrong(1, 'how', '"P", "S" or "N"')
end
if #client > 100 or not string.find(client, '^[%w._-]+$') then
  wrong(2, 'client', '1 to 100 letters, digits, ".", "_" or "-"')
end
if refusal then
  return refusal
end

-- Runs calls; answers name and error of each that failed.
local function try(calls)
  local failed = {}
  for _, call in ipairs(calls) do
    local answer = redis.pcall(unpack(call))
    if type(answer) == 'table' and answer.err then
      failed[#failed + 1] = call[1]
      failed[#failed + 1] = answer.err
    end
  end
  return failed
end

-- What cleans up comes first: where it is refused nothing must be written.
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
if how ~= 'N' then
  local channel = string.match(stem, how == 'S' and '.*' or '^(.*):{') .. ':wake:' .. client
  calls[5] = {'PUBSUB', how == 'S' and 'SHARDNUMSUB' or 'NUMSUB', channel}
  calls[6] = {how == 'S' and 'SPUBLISH' or 'PUBLISH', channel, ''} -- tells nothing
end
return try(calls)
end,
}

redis.register_function{
  function_name = 'sem_refresh',
  flags = {'allow-oom'},
  callback = function(KEYS, ARGV)
-- refresh: starts the lease of permits anew, if they are still held.
--
-- An ended lease is lost, also when nothing has removed it yet. A permit may get another word: then
-- that stands for it from now on, and the word it had is unknown. Repeated, that changes nothing
-- more.
--
-- KEYS[1] permits   sorted set: word -> end of its lease, ms on the server's clock
-- KEYS[2] queue     sorted set: word -> ticket
-- KEYS[3] clients   sorted set: client -> heard until, ms on the server's clock
-- KEYS[4] state     hash: version, limits, last number, longest lease, expiry
-- ARGV[1+] requests 1 to 1000 times: word, next
--   word            as given to `acquire`
--   next            the lease, 1 ms to the lease in the word; or another word of the same weight
-- Reply             server time (ms), wake_in, then for each word one integer:
--   end             the new end of its lease, ms on the server's clock
--   0               lost
--   wake_in         0: call `wake` at once, -1 no need
-- Errors            SEM_KEYS, SEM_ARG, SEM_TYPE, SEM_VERSION
-- Cost              O(log N) for each word and each waiter served. Commands for one word:
--   9               held
-- Flags             allow-oom
-- Checks of KEYS and ARGV. All of them run before the first write, so a call that is refused has
-- changed nothing. `refusal` is the error reply for the first thing that is wrong.

local MAX_COUNT = 4294967295 -- a limit or a weight: an unsigned 32-bit number
local MAX_TIME = 604800000 -- a lease or a liveness: seven days in ms
local MAX_NUMBER = 9007199254740991 -- a token or a ticket: the largest that a double holds exactly

local PERMITS, QUEUE, CLIENTS, STATE = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local refusal

-- What all four keys begin with: the prefix, and the semaphore's name in braces.
local stem = string.match(PERMITS or '', '^([^{}]*:{[^{}]+}):permits$')
if #KEYS ~= 4 or not stem or QUEUE ~= stem .. ':queue' or CLIENTS ~= stem .. ':clients'
  or STATE ~= stem .. ':state' then
  refusal = redis.error_reply('SEM_KEYS 4 keys are needed, in this order: PREFIX:{NAME}:permits, '
    .. 'PREFIX:{NAME}:queue, PREFIX:{NAME}:clients, PREFIX:{NAME}:state')
end

local function wrong(index, name, wanted)
  local got = ARGV[index] and string.gsub(string.sub(ARGV[index], 1, 40), '[^\32-\126]', '?')
  refusal = refusal or redis.error_reply('SEM_ARG ARGV[' .. index .. '] (' .. name .. ') must be '
    .. wanted .. ', got ' .. (got and '"' .. got .. '"' or 'nothing'))
end

-- Whether a text is a decimal integer, without needless zeros, from `min` to `max`.
local function is_integer(text, min, max)
  return text and #text <= 16 and string.find(text, '^%d+$') and text + 0 >= min and text + 0 <= max
    and (string.byte(text) ~= 48 or text == '0')
end

local function check_count(count)
  if #ARGV ~= count then
    refusal = refusal
      or redis.error_reply('SEM_ARG ' .. count .. ' arguments are needed, got ' .. #ARGV)
  end
end

-- After the first `fixed` arguments there must be 1 to 1,000 requests of `size` arguments each.
local function check_requests(fixed, size)
  local count = (#ARGV - fixed) / size
  if count < 1 or count > 1000 or count % 1 ~= 0 then
    refusal = refusal or redis.error_reply('SEM_ARG 1 to 1000 requests of ' .. size
      .. ' arguments must follow the first ' .. fixed .. ', got ' .. #ARGV .. ' in all')
  end
end

local asked = {} -- the words of this call

-- The words among the arguments, from `from` on one in `step`, which are called `name`; and what
-- each says, {how, client, weight, lease}.
local function read_words(name, from, step, min_weight, max_weight)
  local words, parts, sub, find = {}, {}, string.sub, string.find
  local start, said, size = nil, nil, 0 -- mostly all words begin alike, up to the nonce
  for index = from, refusal and 0 or #ARGV, step do
    local word = ARGV[index]
    if sub(word, 1, size) ~= start then
      local how, client, weight, lease, nonce =
        string.match(sub(word, 1, 256), '^([PSN]):([%w._-]+):(%d+):(%d+):()')
      if not how or #client > 100 or not is_integer(weight, min_weight, max_weight)
        or not is_integer(lease, 1, MAX_TIME) then
        wrong(index, name, 'HOW:CLIENT:WEIGHT:LEASE:NONCE with a weight from '
          .. min_weight .. ' to ' .. max_weight)
        return words, parts
      end
      size, said = nonce - 1, {how, client, weight + 0, lease + 0}
      start = sub(word, 1, size)
    end
    if #word < size + 16 or #word > size + 64 or not find(word, '^[%w_-]+$', size + 1) then
      wrong(index, name, 'one with a nonce of 16 to 64 letters, digits, "_" or "-"')
    elseif asked[word] then
      wrong(index, name, 'given once in a call')
    end
    local i = #words + 1
    words[i], parts[i], asked[word] = word, said, true
  end
  return words, parts
end

-- Where a client hears of its permits.
local function channel_of(how, client)
  return string.match(stem, how == 'S' and '.*' or '^(.*):{') .. ':wake:' .. client
end

check_requests(0, 2)
local words, parts = read_words('word', 1, 2, 0, MAX_COUNT)
local requests, nexts, durations = #words, {}, {}
for i = 1, requests do
  local index, weight, lease = 2 * i, parts[i][3], parts[i][4]
  local next = ARGV[index]
  if string.find(next, ':', 1, true) then
    local _, next_parts = read_words('next', index, #ARGV, weight, weight)
    nexts[i], durations[i] = next, next_parts[1] and next_parts[1][4]
  elseif is_integer(next, 1, lease) then
    durations[i] = next + 0
  else
    wrong(index, 'next', 'an integer from 1 to the lease in the word, or another word')
  end
end
if refusal then
  return refusal
end
for _, next in pairs(nexts) do
  words[#words + 1] = next
end
local lookup = words
-- Reads the keys, before anything is written, and when the leases of the words in `lookup` end.
--
-- `permits` and `clients` have one member more, '*', so that neither key is ever emptied. (While a
-- slot of a cluster moves, an empty key ends the script that comes back to it.) In `permits` its
-- score is what is held less the number of permits, less NO_EXTRA: so both can be counted whatever
-- other key is lost. In `clients` it is the longest liveness in use.

local NO_EXTRA = 10000000000 -- more than any sum of weights: the score stays below all times
local BOUND = 1000 -- ended leases, and waiters, that one script looks at at most

local clock = redis.call('TIME')
local now_us = clock[1] * 1000000 + clock[2]
local now = math.floor(now_us / 1000) -- ms

local state = redis.pcall('HMGET', STATE,
  'version', 'declared', 'runtime', 'last', 'longest', 'first', 'keep')
local permits, queued = redis.pcall('ZCARD', PERMITS), redis.pcall('ZCARD', QUEUE)
local clients = redis.pcall('ZCARD', CLIENTS)
local strange = state.err and STATE or type(permits) == 'table' and PERMITS
  or type(queued) == 'table' and QUEUE or type(clients) == 'table' and CLIENTS
if strange then
  return redis.error_reply('SEM_TYPE the key ' .. strange .. ' exists and is not a '
    .. (strange == STATE and 'hash' or 'sorted set'))
elseif state[1] and state[1] ~= '2' then
  return redis.error_reply('SEM_VERSION the semaphore was written by protocol version '
    .. state[1] .. ', these scripts speak version 2')
end

lookup[#lookup + 1] = '*'
local ends = redis.call('ZMSCORE', PERMITS, unpack(lookup)) -- of the leases of `lookup`
local extra = ends[#lookup] and ends[#lookup] + NO_EXTRA
lookup[#lookup] = nil
permits = extra and permits - 1 or permits
local held = permits + (extra or 0) -- what all permits weigh

local declared, runtime = tonumber(state[2]), tonumber(state[3])
local limit = runtime or declared or 0 -- the one in force
local last = (state[4] or 0) + 0 -- the last number given, as a token or as a ticket
local longest = (state[5] or 0) + 0 -- no lease in use is longer, ms
local first = (state[6] or 0) + 0 -- no lease ends before, ms
local keep = (state[7] or 0) + 0 -- when the keys expire, ms

-- What is decided from here on, for lib/write.lua.
local need = 0 -- until when the keys must live for this call, ms; 0 where nothing changes
local changed = {'last', last} -- fields of `state`, and their values
local granted, leases, index_of = {}, {}, {} -- words whose lease begins now
local has_new_key, has_new_limit = not extra, false
local more = false -- the script stopped at a bound: somebody must call `wake`

if not state[1] then
  -- New, or `state` was lost: whoever is there may have any lease, and any ticket.
  if permits + queued + clients > 0 then
    longest, first, need = MAX_TIME, 0, now + MAX_TIME
    last = (redis.call('ZRANGE', QUEUE, -1, -1, 'WITHSCORES')[2] or 0) + 0
  else
    first = MAX_NUMBER
  end
  changed = {'last', last, 'version', '2', 'longest', longest, 'first', first}
end

local function set(field, value)
  changed[#changed + 1], changed[#changed + 2] = field, value
  return value
end

local end_of = {}
for i, word in ipairs(words) do
  end_of[word] = (ends[i] or 0) + 0
end
local reply, gone = {now, 0}, {''} -- no word is empty
for i = 1, requests do
  local word, kept, weight = words[i], nexts[i] or words[i], parts[i][3]
  local is_held = end_of[kept] > now -- else it is lost, or `kept` takes its place
  if not is_held then
    for _, it in ipairs({word, nexts[i]}) do
      gone[#gone + 1] = it
      if end_of[it] > 0 then
        permits, held = permits - 1, held - weight
      end
    end
    if end_of[word] > now then
      is_held, permits, held = true, permits + 1, held + weight
    end
  end
  reply[i + 2] = 0
  if is_held then
    granted[#granted + 1], leases[#leases + 1] = kept, durations[i]
    reply[i + 2] = now + durations[i]
  end
end
redis.call('ZREM', PERMITS, unpack(gone)) -- as `release` begins
if queued > 0 then
  -- What is lost, or stands for a permit, waits for none.
  queued = queued - redis.call('ZREM', QUEUE, unpack(words))
end
-- Removes ended leases, so that what is left can be counted.

if last > now_us + 1000000 then
  -- The server's clock was set back, and the dead would stay longer by that. So nothing may reach
  -- further ahead than it can since then.
  redis.call('ZREM', PERMITS, '') -- no word is empty; see release.lua
  local longest_liveness = redis.call('ZSCORE', CLIENTS, '*') or 0
  for key, latest in pairs({[PERMITS] = now + longest, [CLIENTS] = now + longest_liveness}) do
    local beyond = redis.call('ZRANGEBYSCORE', key, '(' .. latest, '+inf', 'LIMIT', 0, BOUND)
    local cut = 0
    for _, member in ipairs(beyond) do
      if not string.find(member, '^%a:[^:]*:0:') then -- marks of `limit` hold nothing
        redis.call('ZADD', key, latest, member)
        first, cut = 0, cut + 1
      end
    end
    more = more or cut == BOUND
  end
end
if first <= now then
  local ended = redis.call('ZRANGEBYSCORE', PERMITS, 0, now, 'LIMIT', 0, BOUND)
  for _, word in ipairs(ended) do
    permits, held = permits - 1, held - string.match(word, '^%a:[^:]*:(%d+)')
  end
  if ended[1] then
    redis.call('ZREM', PERMITS, unpack(ended))
  end
  local next = redis.call('ZRANGEBYSCORE', PERMITS, 0, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  first = set('first', (next[2] or MAX_NUMBER) + 0)
  more = more or #ended == BOUND
  need = math.max(need, now)
end
-- Gives what is free to the waiters in the order of their tickets, until the first of them does not
-- fit. Whoever is not there any more leaves without a permit.

local leaving, told = {}, {} -- words that leave the queue, and those of whom a client must be told
if queued > 0 and held < limit then
  local listening = {} -- whether anybody listens, by channel

  -- Whether a client was heard of in time (as the caller was, with what it asks for) and listens. A
  -- server that does not say who listens counts as one where somebody does.
  local function is_there(how, client)
    local heard_until = redis.call('ZSCORE', CLIENTS, client) or 0
    if heard_until + 0 < now or how == 'N' then
      return heard_until + 0 >= now
    end
    local channel = channel_of(how, client)
    if listening[channel] == nil then
      local answer = redis.pcall('PUBSUB', how == 'S' and 'SHARDNUMSUB' or 'NUMSUB', channel)
      listening[channel] = answer[2] ~= 0
    end
    return listening[channel]
  end

  local is_blocked = false
  while queued > 0 and held < limit and not is_blocked do
    if #leaving >= BOUND then
      more = true
      break
    end
    local last_one = #leaving + math.min(100, math.max(limit - held, #leaving)) - 1
    for _, word in ipairs(redis.call('ZRANGE', QUEUE, #leaving, last_one)) do
      local how, client, weight, lease = string.match(word, '^(%a):([^:]*):(%d+):(%d+)')
      local is_too_heavy = not runtime and weight + 0 > limit
      if held >= limit then
        break
      end
      if asked[word] or is_there(how, client) then
        if not is_too_heavy and held + weight > limit then
          is_blocked = true
          break
        end
        if not is_too_heavy then
          local index = #granted + 1
          granted[index], leases[index], index_of[word] = word, lease + 0, index
          permits, held = permits + 1, held + weight
        end
        if how ~= 'N' and not asked[word] then
          told[#told + 1] = {word, how, client, lease}
        end
      end
      leaving[#leaving + 1], queued = word, queued - 1
    end
  end
end
local waits = false
-- Writes what was decided, and tells last: a write that the server refuses (too few replicas, no
-- disk) ends the script before anybody is told. `token` is that of the first word of `granted`, the
-- next ones count on. `wake_in` is 0 where a bound was met, else when the next lease ends, for
-- those who wait.

local token = math.max(last + 1, now_us)
local entries = {}
for i, word in ipairs(granted) do
  local lease = leases[i]
  if lease ~= leases[i - 1] then
    -- Where all leases in use begin now, none is longer than the longest of these.
    if lease > longest or i == 1 and #granted == permits and lease ~= longest then
      longest = set('longest', lease)
    end
    if now + lease < first then
      first = set('first', now + lease)
    end
    need = math.max(need, now + lease)
    leases.text = string.format('%.0f', now + lease)
  end
  entries[2 * i - 1], entries[2 * i] = leases.text, word
end
if granted[1] then
  last = token + #granted - 1
end
if held - permits ~= extra and (extra or permits > 0) then
  entries[#entries + 1], entries[#entries + 2] = held - permits - NO_EXTRA, '*'
  need = math.max(need, now)
end
for from = 1, #entries, 1000 do
  redis.call('ZADD', PERMITS, unpack(entries, from, math.min(from + 999, #entries)))
end
if need > 0 then
  local must_last = math.max(need, math.floor(last / 1000)) -- numbers must not go back
  local moves = must_last > keep
  if moves then
    keep = set('keep', must_last + math.max(60000, must_last - now))
  end
  changed[2] = last
  redis.call('HSET', STATE, unpack(changed))
  if moves or has_new_key then
    for _, key in ipairs({PERMITS, QUEUE, CLIENTS}) do
      redis.pcall('PEXPIREAT', key, keep) -- one that is empty may have moved to another node
    end
  end
  if runtime and has_new_limit then
    redis.call('PERSIST', STATE) -- a limit set at run time stays until it is cleared
  elseif not runtime and (moves or has_new_limit) then
    -- It stays longer, so that numbers grow on when the clock steps back while nobody is there.
    redis.call('PEXPIREAT', STATE, keep + 7200000)
  end
end
-- Last, since the queue may be empty after that.
for from = 1, #leaving, 1000 do
  redis.call('ZREM', QUEUE, unpack(leaving, from, math.min(from + 999, #leaving)))
end
if told[1] then
  local messages = {}
  for _, it in ipairs(told) do
    local word, how, client, lease = unpack(it)
    local channel, index = channel_of(how, client), index_of[word]
    local message = messages[channel]
      or {how == 'S' and 'SPUBLISH' or 'PUBLISH', channel, string.match(stem, '{(.*)}')}
    message[3] = string.format('%s\n%s %.0f %.0f', message[3], word,
      index and token + index - 1 or 0, index and now + lease or 0)
    messages[channel] = message
  end
  for _, message in pairs(messages) do
    redis.pcall(unpack(message))
  end
end
local wake_in = more and 0 or waits and first < MAX_NUMBER and math.max(1, first - now) or -1

reply[2] = wake_in
return reply
end,
}

redis.register_function{
  function_name = 'sem_release',
  flags = {'allow-oom'},
  callback = function(KEYS, ARGV)
-- release: gives permits back, or takes requests out of the queue, then serves the queue.
--
-- A call may be repeated: the second time the words are unknown, and no other permit is touched.
--
-- KEYS[1] permits   sorted set: word -> end of its lease, ms on the server's clock
-- KEYS[2] queue     sorted set: word -> ticket
-- KEYS[3] clients   sorted set: client -> heard until, ms on the server's clock
-- KEYS[4] state     hash: version, limits, last number, longest lease, expiry
-- ARGV[1] how       "return", or "consume": the weight of the permits comes off the limit for good
-- ARGV[2+] requests 1 to 1000 times: word
--   word            as given to `acquire`
-- Reply             server time (ms), wake_in, then for each word one integer:
--   1               it held a permit
--   2               it was queued
--   0               unknown: released before, or its lease ended
--   3               to several words, once: each of them held a permit
--   wake_in         0: call `wake` at once, -1 no need
-- Errors            SEM_KEYS, SEM_ARG, SEM_TYPE, SEM_VERSION
-- Cost              O(log N) for each word and each waiter served. Commands for one word:
--   7               held, and nobody waits
--   14              held, and handed to the first who waits
--   7               unknown
-- Flags             allow-oom
-- Checks of KEYS and ARGV. All of them run before the first write, so a call that is refused has
-- changed nothing. `refusal` is the error reply for the first thing that is wrong.

local MAX_COUNT = 4294967295 -- a limit or a weight: an unsigned 32-bit number
local MAX_TIME = 604800000 -- a lease or a liveness: seven days in ms
local MAX_NUMBER = 9007199254740991 -- a token or a ticket: the largest that a double holds exactly

local PERMITS, QUEUE, CLIENTS, STATE = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local refusal

-- What all four keys begin with: the prefix, and the semaphore's name in braces.
local stem = string.match(PERMITS or '', '^([^{}]*:{[^{}]+}):permits$')
if #KEYS ~= 4 or not stem or QUEUE ~= stem .. ':queue' or CLIENTS ~= stem .. ':clients'
  or STATE ~= stem .. ':state' then
  refusal = redis.error_reply('SEM_KEYS 4 keys are needed, in this order: PREFIX:{NAME}:permits, '
    .. 'PREFIX:{NAME}:queue, PREFIX:{NAME}:clients, PREFIX:{NAME}:state')
end

local function wrong(index, name, wanted)
  local got = ARGV[index] and string.gsub(string.sub(ARGV[index], 1, 40), '[^\32-\126]', '?')
  refusal = refusal or redis.error_reply('SEM_ARG ARGV[' .. index .. '] (' .. name .. ') must be '
    .. wanted .. ', got ' .. (got and '"' .. got .. '"' or 'nothing'))
end

-- Whether a text is a decimal integer, without needless zeros, from `min` to `max`.
local function is_integer(text, min, max)
  return text and #text <= 16 and string.find(text, '^%d+$') and text + 0 >= min and text + 0 <= max
    and (string.byte(text) ~= 48 or text == '0')
end

local function check_count(count)
  if #ARGV ~= count then
    refusal = refusal
      or redis.error_reply('SEM_ARG ' .. count .. ' arguments are needed, got ' .. #ARGV)
  end
end

-- After the first `fixed` arguments there must be 1 to 1,000 requests of `size` arguments each.
local function check_requests(fixed, size)
  local count = (#ARGV - fixed) / size
  if count < 1 or count > 1000 or count % 1 ~= 0 then
    refusal = refusal or redis.error_reply('SEM_ARG 1 to 1000 requests of ' .. size
      .. ' arguments must follow the first ' .. fixed .. ', got ' .. #ARGV .. ' in all')
  end
end

local asked = {} -- the words of this call

-- The words among the arguments, from `from` on one in `step`, which are called `name`; and what
-- each says, {how, client, weight, lease}.
local function read_words(name, from, step, min_weight, max_weight)
  local words, parts, sub, find = {}, {}, string.sub, string.find
  local start, said, size = nil, nil, 0 -- mostly all words begin alike, up to the nonce
  for index = from, refusal and 0 or #ARGV, step do
    local word = ARGV[index]
    if sub(word, 1, size) ~= start then
      local how, client, weight, lease, nonce =
        string.match(sub(word, 1, 256), '^([PSN]):([%w._-]+):(%d+):(%d+):()')
      if not how or #client > 100 or not is_integer(weight, min_weight, max_weight)
        or not is_integer(lease, 1, MAX_TIME) then
        wrong(index, name, 'HOW:CLIENT:WEIGHT:LEASE:NONCE with a weight from '
          .. min_weight .. ' to ' .. max_weight)
        return words, parts
      end
      size, said = nonce - 1, {how, client, weight + 0, lease + 0}
      start = sub(word, 1, size)
    end
    if #word < size + 16 or #word > size + 64 or not find(word, '^[%w_-]+$', size + 1) then
      wrong(index, name, 'one with a nonce of 16 to 64 letters, digits, "_" or "-"')
    elseif asked[word] then
      wrong(index, name, 'given once in a call')
    end
    local i = #words + 1
    words[i], parts[i], asked[word] = word, said, true
  end
  return words, parts
end

-- Where a client hears of its permits.
local function channel_of(how, client)
  return string.match(stem, how == 'S' and '.*' or '^(.*):{') .. ':wake:' .. client
end

local mode = ARGV[1]
if mode ~= 'return' and mode ~= 'consume' then
  wrong(1, 'how', '"return" or "consume"')
end
check_requests(1, 1)
local words, parts = read_words('word', 2, 1, 0, MAX_COUNT)
if refusal then
  return refusal
end
local lookup = {}
-- Reads the keys, before anything is written, and when the leases of the words in `lookup` end.
--
-- `permits` and `clients` have one member more, '*', so that neither key is ever emptied. (While a
-- slot of a cluster moves, an empty key ends the script that comes back to it.) In `permits` its
-- score is what is held less the number of permits, less NO_EXTRA: so both can be counted whatever
-- other key is lost. In `clients` it is the longest liveness in use.

local NO_EXTRA = 10000000000 -- more than any sum of weights: the score stays below all times
local BOUND = 1000 -- ended leases, and waiters, that one script looks at at most

local clock = redis.call('TIME')
local now_us = clock[1] * 1000000 + clock[2]
local now = math.floor(now_us / 1000) -- ms

local state = redis.pcall('HMGET', STATE,
  'version', 'declared', 'runtime', 'last', 'longest', 'first', 'keep')
local permits, queued = redis.pcall('ZCARD', PERMITS), redis.pcall('ZCARD', QUEUE)
local clients = redis.pcall('ZCARD', CLIENTS)
local strange = state.err and STATE or type(permits) == 'table' and PERMITS
  or type(queued) == 'table' and QUEUE or type(clients) == 'table' and CLIENTS
if strange then
  return redis.error_reply('SEM_TYPE the key ' .. strange .. ' exists and is not a '
    .. (strange == STATE and 'hash' or 'sorted set'))
elseif state[1] and state[1] ~= '2' then
  return redis.error_reply('SEM_VERSION the semaphore was written by protocol version '
    .. state[1] .. ', these scripts speak version 2')
end

lookup[#lookup + 1] = '*'
local ends = redis.call('ZMSCORE', PERMITS, unpack(lookup)) -- of the leases of `lookup`
local extra = ends[#lookup] and ends[#lookup] + NO_EXTRA
lookup[#lookup] = nil
permits = extra and permits - 1 or permits
local held = permits + (extra or 0) -- what all permits weigh

local declared, runtime = tonumber(state[2]), tonumber(state[3])
local limit = runtime or declared or 0 -- the one in force
local last = (state[4] or 0) + 0 -- the last number given, as a token or as a ticket
local longest = (state[5] or 0) + 0 -- no lease in use is longer, ms
local first = (state[6] or 0) + 0 -- no lease ends before, ms
local keep = (state[7] or 0) + 0 -- when the keys expire, ms

-- What is decided from here on, for lib/write.lua.
local need = 0 -- until when the keys must live for this call, ms; 0 where nothing changes
local changed = {'last', last} -- fields of `state`, and their values
local granted, leases, index_of = {}, {}, {} -- words whose lease begins now
local has_new_key, has_new_limit = not extra, false
local more = false -- the script stopped at a bound: somebody must call `wake`

if not state[1] then
  -- New, or `state` was lost: whoever is there may have any lease, and any ticket.
  if permits + queued + clients > 0 then
    longest, first, need = MAX_TIME, 0, now + MAX_TIME
    last = (redis.call('ZRANGE', QUEUE, -1, -1, 'WITHSCORES')[2] or 0) + 0
  else
    first = MAX_NUMBER
  end
  changed = {'last', last, 'version', '2', 'longest', longest, 'first', first}
end

local function set(field, value)
  changed[#changed + 1], changed[#changed + 2] = field, value
  return value
end
-- Removes ended leases, so that what is left can be counted.

if last > now_us + 1000000 then
  -- The server's clock was set back, and the dead would stay longer by that. So nothing may reach
  -- further ahead than it can since then.
  redis.call('ZREM', PERMITS, '') -- no word is empty; see release.lua
  local longest_liveness = redis.call('ZSCORE', CLIENTS, '*') or 0
  for key, latest in pairs({[PERMITS] = now + longest, [CLIENTS] = now + longest_liveness}) do
    local beyond = redis.call('ZRANGEBYSCORE', key, '(' .. latest, '+inf', 'LIMIT', 0, BOUND)
    local cut = 0
    for _, member in ipairs(beyond) do
      if not string.find(member, '^%a:[^:]*:0:') then -- marks of `limit` hold nothing
        redis.call('ZADD', key, latest, member)
        first, cut = 0, cut + 1
      end
    end
    more = more or cut == BOUND
  end
end
if first <= now then
  local ended = redis.call('ZRANGEBYSCORE', PERMITS, 0, now, 'LIMIT', 0, BOUND)
  for _, word in ipairs(ended) do
    permits, held = permits - 1, held - string.match(word, '^%a:[^:]*:(%d+)')
  end
  if ended[1] then
    redis.call('ZREM', PERMITS, unpack(ended))
  end
  local next = redis.call('ZRANGEBYSCORE', PERMITS, 0, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  first = set('first', (next[2] or MAX_NUMBER) + 0)
  more = more or #ended == BOUND
  need = math.max(need, now)
end

-- The removals come first, whether they find anything or not: a server that may not write refuses
-- them, and one whose memory is full lets a script go on that began like this.
local reply, freed, all_held = {now, 0}, 0, words[2] ~= nil
for i = 1, #words do
  local word = words[i]
  local has_ended = more and (redis.call('ZSCORE', PERMITS, word) or 0) + 0 <= now
  if redis.call('ZREM', PERMITS, word) == 1 then
    permits, held = permits - 1, held - parts[i][3]
    reply[i + 2] = has_ended and 0 or 1
    freed = has_ended and freed or freed + parts[i][3]
  elseif queued > 0 and redis.call('ZREM', QUEUE, word) == 1 then
    reply[i + 2], queued = 2, queued - 1
  else
    reply[i + 2] = 0
  end
  all_held = all_held and reply[i + 2] == 1
end
if mode == 'consume' and freed > 0 and (runtime or declared) then
  runtime = set('runtime', math.max(0, limit - freed))
  limit, need, has_new_limit = runtime, math.max(need, now), true
end
-- Gives what is free to the waiters in the order of their tickets, until the first of them does not
-- fit. Whoever is not there any more leaves without a permit.

local leaving, told = {}, {} -- words that leave the queue, and those of whom a client must be told
if queued > 0 and held < limit then
  local listening = {} -- whether anybody listens, by channel

  -- Whether a client was heard of in time (as the caller was, with what it asks for) and listens. A
  -- server that does not say who listens counts as one where somebody does.
  local function is_there(how, client)
    local heard_until = redis.call('ZSCORE', CLIENTS, client) or 0
    if heard_until + 0 < now or how == 'N' then
      return heard_until + 0 >= now
    end
    local channel = channel_of(how, client)
    if listening[channel] == nil then
      local answer = redis.pcall('PUBSUB', how == 'S' and 'SHARDNUMSUB' or 'NUMSUB', channel)
      listening[channel] = answer[2] ~= 0
    end
    return listening[channel]
  end

  local is_blocked = false
  while queued > 0 and held < limit and not is_blocked do
    if #leaving >= BOUND then
      more = true
      break
    end
    local last_one = #leaving + math.min(100, math.max(limit - held, #leaving)) - 1
    for _, word in ipairs(redis.call('ZRANGE', QUEUE, #leaving, last_one)) do
      local how, client, weight, lease = string.match(word, '^(%a):([^:]*):(%d+):(%d+)')
      local is_too_heavy = not runtime and weight + 0 > limit
      if held >= limit then
        break
      end
      if asked[word] or is_there(how, client) then
        if not is_too_heavy and held + weight > limit then
          is_blocked = true
          break
        end
        if not is_too_heavy then
          local index = #granted + 1
          granted[index], leases[index], index_of[word] = word, lease + 0, index
          permits, held = permits + 1, held + weight
        end
        if how ~= 'N' and not asked[word] then
          told[#told + 1] = {word, how, client, lease}
        end
      end
      leaving[#leaving + 1], queued = word, queued - 1
    end
  end
end
local waits = false
-- Writes what was decided, and tells last: a write that the server refuses (too few replicas, no
-- disk) ends the script before anybody is told. `token` is that of the first word of `granted`, the
-- next ones count on. `wake_in` is 0 where a bound was met, else when the next lease ends, for
-- those who wait.

local token = math.max(last + 1, now_us)
local entries = {}
for i, word in ipairs(granted) do
  local lease = leases[i]
  if lease ~= leases[i - 1] then
    -- Where all leases in use begin now, none is longer than the longest of these.
    if lease > longest or i == 1 and #granted == permits and lease ~= longest then
      longest = set('longest', lease)
    end
    if now + lease < first then
      first = set('first', now + lease)
    end
    need = math.max(need, now + lease)
    leases.text = string.format('%.0f', now + lease)
  end
  entries[2 * i - 1], entries[2 * i] = leases.text, word
end
if granted[1] then
  last = token + #granted - 1
end
if held - permits ~= extra and (extra or permits > 0) then
  entries[#entries + 1], entries[#entries + 2] = held - permits - NO_EXTRA, '*'
  need = math.max(need, now)
end
for from = 1, #entries, 1000 do
  redis.call('ZADD', PERMITS, unpack(entries, from, math.min(from + 999, #entries)))
end
if need > 0 then
  local must_last = math.max(need, math.floor(last / 1000)) -- numbers must not go back
  local moves = must_last > keep
  if moves then
    keep = set('keep', must_last + math.max(60000, must_last - now))
  end
  changed[2] = last
  redis.call('HSET', STATE, unpack(changed))
  if moves or has_new_key then
    for _, key in ipairs({PERMITS, QUEUE, CLIENTS}) do
      redis.pcall('PEXPIREAT', key, keep) -- one that is empty may have moved to another node
    end
  end
  if runtime and has_new_limit then
    redis.call('PERSIST', STATE) -- a limit set at run time stays until it is cleared
  elseif not runtime and (moves or has_new_limit) then
    -- It stays longer, so that numbers grow on when the clock steps back while nobody is there.
    redis.call('PEXPIREAT', STATE, keep + 7200000)
  end
end
-- Last, since the queue may be empty after that.
for from = 1, #leaving, 1000 do
  redis.call('ZREM', QUEUE, unpack(leaving, from, math.min(from + 999, #leaving)))
end
if told[1] then
  local messages = {}
  for _, it in ipairs(told) do
    local word, how, client, lease = unpack(it)
    local channel, index = channel_of(how, client), index_of[word]
    local message = messages[channel]
      or {how == 'S' and 'SPUBLISH' or 'PUBLISH', channel, string.match(stem, '{(.*)}')}
    message[3] = string.format('%s\n%s %.0f %.0f', message[3], word,
      index and token + index - 1 or 0, index and now + lease or 0)
    messages[channel] = message
  end
  for _, message in pairs(messages) do
    redis.pcall(unpack(message))
  end
end
local wake_in = more and 0 or waits and first < MAX_NUMBER and math.max(1, first - now) or -1

reply[2] = wake_in
return all_held and {now, wake_in, 3} or reply
end,
}

redis.register_function{
  function_name = 'sem_wake',
  flags = {'allow-oom'},
  callback = function(KEYS, ARGV)
-- wake: removes ended leases, and hands what is free to the queue.
--
-- A waiting client calls this when `wake_in` of an earlier reply has passed. It is never wrong to
-- call it.
--
-- KEYS[1] permits   sorted set: word -> end of its lease, ms on the server's clock
-- KEYS[2] queue     sorted set: word -> ticket
-- KEYS[3] clients   sorted set: client -> heard until, ms on the server's clock
-- KEYS[4] state     hash: version, limits, last number, longest lease, expiry
-- Reply             server time (ms), wake_in, queue length
--   wake_in         ms until the next call is worth it: 0 at once, -1 no need
-- Errors            SEM_KEYS, SEM_ARG, SEM_TYPE, SEM_VERSION
-- Cost              O(log N) for each waiter served. Commands:
--   7               nothing to do
-- Flags             allow-oom
-- Checks of KEYS and ARGV. All of them run before the first write, so a call that is refused has
-- changed nothing. `refusal` is the error reply for the first thing that is wrong.

local MAX_COUNT = 4294967295 -- a limit or a weight: an unsigned 32-bit number
local MAX_TIME = 604800000 -- a lease or a liveness: seven days in ms
local MAX_NUMBER = 9007199254740991 -- a token or a ticket: the largest that a double holds exactly

local PERMITS, QUEUE, CLIENTS, STATE = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local refusal

-- What all four keys begin with: the prefix, and the semaphore's name in braces.
local stem = string.match(PERMITS or '', '^([^{}]*:{[^{}]+}):permits$')
if #KEYS ~= 4 or not stem or QUEUE ~= stem .. ':queue' or CLIENTS ~= stem .. ':clients'
  or STATE ~= stem .. ':state' then
  refusal = redis.error_reply('SEM_KEYS 4 keys are needed, in this order: PREFIX:{NAME}:permits, '
    .. 'PREFIX:{NAME}:queue, PREFIX:{NAME}:clients, PREFIX:{NAME}:state')
end

local function wrong(index, name, wanted)
  local got = ARGV[index] and string.gsub(string.sub(ARGV[index], 1, 40), '[^\32-\126]', '?')
  refusal = refusal or redis.error_reply('SEM_ARG ARGV[' .. index .. '] (' .. name .. ') must be '
    .. wanted .. ', got ' .. (got and '"' .. got .. '"' or 'nothing'))
end

-- Whether a text is a decimal integer, without needless zeros, from `min` to `max`.
local function is_integer(text, min, max)
  return text and #text <= 16 and string.find(text, '^%d+$') and text + 0 >= min and text + 0 <= max
    and (string.byte(text) ~= 48 or text == '0')
end

local function check_count(count)
  if #ARGV ~= count then
    refusal = refusal
      or redis.error_reply('SEM_ARG ' .. count .. ' arguments are needed, got ' .. #ARGV)
  end
end

-- After the first `fixed` arguments there must be 1 to 1,000 requests of `size` arguments each.
local function check_requests(fixed, size)
  local count = (#ARGV - fixed) / size
  if count < 1 or count > 1000 or count % 1 ~= 0 then
    refusal = refusal or redis.error_reply('SEM_ARG 1 to 1000 requests of ' .. size
      .. ' arguments must follow the first ' .. fixed .. ', got ' .. #ARGV .. ' in all')
  end
end

local asked = {} -- the words of this call

-- The words among the arguments, from `from` on one in `step`, which are called `name`; and what
-- each says, {how, client, weight, lease}.
local function read_words(name, from, step, min_weight, max_weight)
  local words, parts, sub, find = {}, {}, string.sub, string.find
  local start, said, size = nil, nil, 0 -- mostly all words begin alike, up to the nonce
  for index = from, refusal and 0 or #ARGV, step do
    local word = ARGV[index]
    if sub(word, 1, size) ~= start then
      local how, client, weight, lease, nonce =
        string.match(sub(word, 1, 256), '^([PSN]):([%w._-]+):(%d+):(%d+):()')
      if not how or #client > 100 or not is_integer(weight, min_weight, max_weight)
        or not is_integer(lease, 1, MAX_TIME) then
        wrong(index, name, 'HOW:CLIENT:WEIGHT:LEASE:NONCE with a weight from '
          .. min_weight .. ' to ' .. max_weight)
        return words, parts
      end
      size, said = nonce - 1, {how, client, weight + 0, lease + 0}
      start = sub(word, 1, size)
    end
    if #word < size + 16 or #word > size + 64 or not find(word, '^[%w_-]+$', size + 1) then
      wrong(index, name, 'one with a nonce of 16 to 64 letters, digits, "_" or "-"')
    elseif asked[word] then
      wrong(index, name, 'given once in a call')
    end
    local i = #words + 1
    words[i], parts[i], asked[word] = word, said, true
  end
  return words, parts
end

-- Where a client hears of its permits.
local function channel_of(how, client)
  return string.match(stem, how == 'S' and '.*' or '^(.*):{') .. ':wake:' .. client
end

check_count(0)
local lookup = {}
if refusal then
  return refusal
end
-- Reads the keys, before anything is written, and when the leases of the words in `lookup` end.
--
-- `permits` and `clients` have one member more, '*', so that neither key is ever emptied. (While a
-- slot of a cluster moves, an empty key ends the script that comes back to it.) In `permits` its
-- score is what is held less the number of permits, less NO_EXTRA: so both can be counted whatever
-- other key is lost. In `clients` it is the longest liveness in use.

local NO_EXTRA = 10000000000 -- more than any sum of weights: the score stays below all times
local BOUND = 1000 -- ended leases, and waiters, that one script looks at at most

local clock = redis.call('TIME')
local now_us = clock[1] * 1000000 + clock[2]
local now = math.floor(now_us / 1000) -- ms

local state = redis.pcall('HMGET', STATE,
  'version', 'declared', 'runtime', 'last', 'longest', 'first', 'keep')
local permits, queued = redis.pcall('ZCARD', PERMITS), redis.pcall('ZCARD', QUEUE)
local clients = redis.pcall('ZCARD', CLIENTS)
local strange = state.err and STATE or type(permits) == 'table' and PERMITS
  or type(queued) == 'table' and QUEUE or type(clients) == 'table' and CLIENTS
if strange then
  return redis.error_reply('SEM_TYPE the key ' .. strange .. ' exists and is not a '
    .. (strange == STATE and 'hash' or 'sorted set'))
elseif state[1] and state[1] ~= '2' then
  return redis.error_reply('SEM_VERSION the semaphore was written by protocol version '
    .. state[1] .. ', these scripts speak version 2')
end

lookup[#lookup + 1] = '*'
local ends = redis.call('ZMSCORE', PERMITS, unpack(lookup)) -- of the leases of `lookup`
local extra = ends[#lookup] and ends[#lookup] + NO_EXTRA
lookup[#lookup] = nil
permits = extra and permits - 1 or permits
local held = permits + (extra or 0) -- what all permits weigh

local declared, runtime = tonumber(state[2]), tonumber(state[3])
local limit = runtime or declared or 0 -- the one in force
local last = (state[4] or 0) + 0 -- the last number given, as a token or as a ticket
local longest = (state[5] or 0) + 0 -- no lease in use is longer, ms
local first = (state[6] or 0) + 0 -- no lease ends before, ms
local keep = (state[7] or 0) + 0 -- when the keys expire, ms

-- What is decided from here on, for lib/write.lua.
local need = 0 -- until when the keys must live for this call, ms; 0 where nothing changes
local changed = {'last', last} -- fields of `state`, and their values
local granted, leases, index_of = {}, {}, {} -- words whose lease begins now
local has_new_key, has_new_limit = not extra, false
local more = false -- the script stopped at a bound: somebody must call `wake`

if not state[1] then
  -- New, or `state` was lost: whoever is there may have any lease, and any ticket.
  if permits + queued + clients > 0 then
    longest, first, need = MAX_TIME, 0, now + MAX_TIME
    last = (redis.call('ZRANGE', QUEUE, -1, -1, 'WITHSCORES')[2] or 0) + 0
  else
    first = MAX_NUMBER
  end
  changed = {'last', last, 'version', '2', 'longest', longest, 'first', first}
end

local function set(field, value)
  changed[#changed + 1], changed[#changed + 2] = field, value
  return value
end

redis.call('ZREM', PERMITS, '') -- as `release` begins
-- Removes ended leases, so that what is left can be counted.

if last > now_us + 1000000 then
  -- The server's clock was set back, and the dead would stay longer by that. So nothing may reach
  -- further ahead than it can since then.
  redis.call('ZREM', PERMITS, '') -- no word is empty; see release.lua
  local longest_liveness = redis.call('ZSCORE', CLIENTS, '*') or 0
  for key, latest in pairs({[PERMITS] = now + longest, [CLIENTS] = now + longest_liveness}) do
    local beyond = redis.call('ZRANGEBYSCORE', key, '(' .. latest, '+inf', 'LIMIT', 0, BOUND)
    local cut = 0
    for _, member in ipairs(beyond) do
      if not string.find(member, '^%a:[^:]*:0:') then -- marks of `limit` hold nothing
        redis.call('ZADD', key, latest, member)
        first, cut = 0, cut + 1
      end
    end
    more = more or cut == BOUND
  end
end
if first <= now then
  local ended = redis.call('ZRANGEBYSCORE', PERMITS, 0, now, 'LIMIT', 0, BOUND)
  for _, word in ipairs(ended) do
    permits, held = permits - 1, held - string.match(word, '^%a:[^:]*:(%d+)')
  end
  if ended[1] then
    redis.call('ZREM', PERMITS, unpack(ended))
  end
  local next = redis.call('ZRANGEBYSCORE', PERMITS, 0, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  first = set('first', (next[2] or MAX_NUMBER) + 0)
  more = more or #ended == BOUND
  need = math.max(need, now)
end
-- Gives what is free to the waiters in the order of their tickets, until the first of them does not
-- fit. Whoever is not there any more leaves without a permit.

local leaving, told = {}, {} -- words that leave the queue, and those of whom a client must be told
if queued > 0 and held < limit then
  local listening = {} -- whether anybody listens, by channel

  -- Whether a client was heard of in time (as the caller was, with what it asks for) and listens. A
  -- server that does not say who listens counts as one where somebody does.
  local function is_there(how, client)
    local heard_until = redis.call('ZSCORE', CLIENTS, client) or 0
    if heard_until + 0 < now or how == 'N' then
      return heard_until + 0 >= now
    end
    local channel = channel_of(how, client)
    if listening[channel] == nil then
      local answer = redis.pcall('PUBSUB', how == 'S' and 'SHARDNUMSUB' or 'NUMSUB', channel)
      listening[channel] = answer[2] ~= 0
    end
    return listening[channel]
  end

  local is_blocked = false
  while queued > 0 and held < limit and not is_blocked do
    if #leaving >= BOUND then
      more = true
      break
    end
    local last_one = #leaving + math.min(100, math.max(limit - held, #leaving)) - 1
    for _, word in ipairs(redis.call('ZRANGE', QUEUE, #leaving, last_one)) do
      local how, client, weight, lease = string.match(word, '^(%a):([^:]*):(%d+):(%d+)')
      local is_too_heavy = not runtime and weight + 0 > limit
      if held >= limit then
        break
      end
      if asked[word] or is_there(how, client) then
        if not is_too_heavy and held + weight > limit then
          is_blocked = true
          break
        end
        if not is_too_heavy then
          local index = #granted + 1
          granted[index], leases[index], index_of[word] = word, lease + 0, index
          permits, held = permits + 1, held + weight
        end
        if how ~= 'N' and not asked[word] then
          told[#told + 1] = {word, how, client, lease}
        end
      end
      leaving[#leaving + 1], queued = word, queued - 1
    end
  end
end
local waits = queued > 0
-- Writes what was decided, and tells last: a write that the server refuses (too few replicas, no
-- disk) ends the script before anybody is told. `token` is that of the first word of `granted`, the
-- next ones count on. `wake_in` is 0 where a bound was met, else when the next lease ends, for
-- those who wait.

local token = math.max(last + 1, now_us)
local entries = {}
for i, word in ipairs(granted) do
  local lease = leases[i]
  if lease ~= leases[i - 1] then
    -- Where all leases in use begin now, none is longer than the longest of these.
    if lease > longest or i == 1 and #granted == permits and lease ~= longest then
      longest = set('longest', lease)
    end
    if now + lease < first then
      first = set('first', now + lease)
    end
    need = math.max(need, now + lease)
    leases.text = string.format('%.0f', now + lease)
  end
  entries[2 * i - 1], entries[2 * i] = leases.text, word
end
if granted[1] then
  last = token + #granted - 1
end
if held - permits ~= extra and (extra or permits > 0) then
  entries[#entries + 1], entries[#entries + 2] = held - permits - NO_EXTRA, '*'
  need = math.max(need, now)
end
for from = 1, #entries, 1000 do
  redis.call('ZADD', PERMITS, unpack(entries, from, math.min(from + 999, #entries)))
end
if need > 0 then
  local must_last = math.max(need, math.floor(last / 1000)) -- numbers must not go back
  local moves = must_last > keep
  if moves then
    keep = set('keep', must_last + math.max(60000, must_last - now))
  end
  changed[2] = last
  redis.call('HSET', STATE, unpack(changed))
  if moves or has_new_key then
    for _, key in ipairs({PERMITS, QUEUE, CLIENTS}) do
      redis.pcall('PEXPIREAT', key, keep) -- one that is empty may have moved to another node
    end
  end
  if runtime and has_new_limit then
    redis.call('PERSIST', STATE) -- a limit set at run time stays until it is cleared
  elseif not runtime and (moves or has_new_limit) then
    -- It stays longer, so that numbers grow on when the clock steps back while nobody is there.
    redis.call('PEXPIREAT', STATE, keep + 7200000)
  end
end
-- Last, since the queue may be empty after that.
for from = 1, #leaving, 1000 do
  redis.call('ZREM', QUEUE, unpack(leaving, from, math.min(from + 999, #leaving)))
end
if told[1] then
  local messages = {}
  for _, it in ipairs(told) do
    local word, how, client, lease = unpack(it)
    local channel, index = channel_of(how, client), index_of[word]
    local message = messages[channel]
      or {how == 'S' and 'SPUBLISH' or 'PUBLISH', channel, string.match(stem, '{(.*)}')}
    message[3] = string.format('%s\n%s %.0f %.0f', message[3], word,
      index and token + index - 1 or 0, index and now + lease or 0)
    messages[channel] = message
  end
  for _, message in pairs(messages) do
    redis.pcall(unpack(message))
  end
end
local wake_in = more and 0 or waits and first < MAX_NUMBER and math.max(1, first - now) or -1

return {now, wake_in, queued}
end,
}
