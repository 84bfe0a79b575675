-- acquire: grants a permit to each request, or queues it, or refuses it.
--
-- A call may be repeated: a word that holds a permit is granted again (same permit, its lease starts
-- anew, the token is newer), a word that is queued keeps its ticket and its client counts as heard of.
-- While anybody is queued, new requests go behind, and tries are refused.
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
--   7               granted
-- Flags             none
-- include: lib/queue.lua

local kind, limit, liveness = ARGV[1], ARGV[2], ARGV[3]
if kind ~= 'declare' and kind ~= 'declared' and kind ~= 'initial' then
  wrong(1, 'kind', '"declare", "declared" or "initial"')
elseif not is_integer(limit, 0, MAX_COUNT) then
  wrong(2, 'limit', 'an integer from 0 to 4294967295')
elseif not is_integer(liveness, 1, MAX_TIME) then
  wrong(3, 'liveness', 'an integer from 1 to 604800000')
end
local words, parts, caller = {}, {}, nil
for i = 1, count_requests(3, 2) do
  local place, part = ARGV[2 * i + 3], read_word(2 * i + 2, 1, MAX_COUNT)
  words[i], parts[i], caller = ARGV[2 * i + 2], part, caller or part
  if part ~= caller and part and (part[1] ~= caller[1] or part[2] ~= caller[2]) then
    wrong(2 * i + 2, 'word', 'of the same HOW and CLIENT as the first')
  end
  if place ~= 'wait' and place ~= 'try' and not is_integer(place, 1, MAX_NUMBER)
    and not is_integer(string.match(place, '^%+(.*)'), 0, 3600000) then
    wrong(2 * i + 3, 'place', '"wait", "try", "+0" to "+3600000" or a ticket')
  end
end
local sem, ends
if not refusal then
  sem, ends = open(words)
end
if refusal then
  return refusal
end

local now, declared_before = sem.now, sem.declared or -1
local is_known = sem.declared or sem.runtime
if kind == 'declare' and limit + 0 ~= sem.declared or kind == 'declared' and not is_known then
  set_limit(sem, limit + 0)
elseif kind == 'initial' and not is_known then
  set_limit(sem, limit + 0, true)
end
local needed, ended = 0, {} -- of those that hold no permit: the weight; and whose lease has ended
for i, word in ipairs(words) do
  local weight, held_until = parts[i][3], ends[i]
  if not held_until or held_until + 0 <= now then
    needed, ends[i] = needed + weight, nil
    ended[#ended + 1] = held_until and word or nil
    if weight > sem.limit and not sem.runtime then
      return redis.error_reply(string.format(
        'SEM_TOO_HEAVY ARGV[%d] (word) weighs %.0f, the limit is %.0f', 2 * i + 2, weight, sem.limit
      ))
    end
  end
end
if ended[1] then
  remove(sem, ended)
end
purge(sem)

local function next_number()
  sem.last = math.max(sem.last + 1, sem.now_us)
  return sem.last
end

-- Puts a word in the queue. Answers its ticket and its rank.
local function join(word, ticket)
  sem.has_new_key = sem.has_new_key or sem.queued == 0
  sem.queued = sem.queued + 1
  redis.call('ZADD', QUEUE, ticket, word)
  return ticket, sem.queued
end

-- Those with a place of their own, which may be in front of others, come first. A ticket is believed
-- when it can have been given. A head start counts from the last number given, and for nothing where
-- the server's clock is far behind that.
local tickets = sem.queued > 0 and redis.call('ZMSCORE', QUEUE, unpack(words)) or {}
if sem.queued > 0 or sem.permits + sem.extra + needed > sem.limit then
  for i, word in ipairs(words) do
    local place = ARGV[2 * i + 3]
    local ticket, ahead = tonumber(place), string.match(place, '^%+(.*)')
    if not ends[i] and not tickets[i] and ticket then
      if ahead then
        ticket = next_number()
        ticket = ticket > sem.now_us + 1000000 and ticket or ticket - ahead * 1000
      elseif ticket > math.max(sem.last, sem.now_us) then
        ticket = next_number()
      end
      sem.last = math.max(sem.last, ticket)
      tickets[i] = join(word, ticket)
    end
  end
  serve(sem, caller[2])
end

local reply, waits, refused, all_alike = {now, 0, declared_before}, false, {}, words[2] ~= nil
for i, word in ipairs(words) do
  local weight, lease = parts[i][3], parts[i][4]
  local code, number, detail = 1, nil, nil
  if ends[i] then
    number, detail = renew(sem, word, lease)
  elseif sem.granted[word] then
    number, detail = unpack(sem.granted[word])
  elseif tickets[i] then
    local rank = redis.call('ZRANK', QUEUE, word) - #sem.leaving + 1
    code, number, detail = 2, tickets[i] + 0, rank
  elseif sem.queued == 0 and sem.permits + sem.extra + weight <= sem.limit then
    number, detail = grant(sem, word, weight, lease)
  elseif ARGV[2 * i + 3] == 'try' then
    code, number, detail, refused[#refused + 1] = 0, 0, 0, word
  else
    code, number, detail = 2, join(word, next_number())
  end
  reply[3 * i + 1], reply[3 * i + 2], reply[3 * i + 3] = code, number, detail
  waits = waits or code == 2
  all_alike = all_alike and code == 1 and number == reply[5] + i - 1 and detail == reply[6]
end
if waits then
  -- The client is there for as long as it says, with all that it waits for. Of those who have died
  -- two leave with each that is new.
  local heard_until = now + liveness
  local added = redis.call('ZADD', CLIENTS, 'GT', liveness, '*', heard_until, caller[2])
  if added > 0 then
    sem.has_new_key = sem.has_new_key or added == 2
    local dead = redis.call('ZRANGEBYSCORE', CLIENTS, '(' .. MAX_TIME, '(' .. now, 'LIMIT', 0, 2)
    redis.call('ZREM', CLIENTS, '', unpack(dead))
  end
  sem.need = math.max(sem.need, heard_until)
elseif refused[#words] then
  redis.call('ZREM', QUEUE, unpack(refused)) -- which only a server does that may write
end
reply[2] = finish(sem, waits)
return all_alike and {now, reply[2], declared_before, 3, reply[5], reply[6]} or reply
