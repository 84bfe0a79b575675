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
--   6               held, and nobody waits
-- Flags             allow-oom
-- include: lib/queue.lua

local how = ARGV[1]
if how ~= 'return' and how ~= 'consume' then
  wrong(1, 'how', '"return" or "consume"')
end
local words, parts = {}, {}
for i = 1, count_requests(1, 1) do
  words[i], parts[i] = ARGV[i + 1], read_word(i + 1, 0, MAX_COUNT)
end
local sem, ends
if not refusal then
  sem, ends = open(words)
end
if refusal then
  return refusal
end

-- This comes first, whether it removes anything or not: a server that may not write refuses it, and
-- one whose memory is full lets a script go on that began like this.
redis.call('ZREM', PERMITS, unpack(words))
local tickets = sem.queued > 0 and redis.call('ZMSCORE', QUEUE, unpack(words)) or {}
local reply, weight, left, all_held = {sem.now, 0}, 0, {}, words[2] ~= nil
for i, word in ipairs(words) do
  local status = 0
  if ends[i] then
    uncount(sem, parts[i][3])
    if ends[i] + 0 > sem.now then
      status, weight = 1, weight + parts[i][3]
    end
  elseif tickets[i] then
    status, left[#left + 1] = 2, word
  end
  reply[i + 2] = status
  all_held = all_held and status == 1
end
if left[1] then
  sem.queued = sem.queued - redis.call('ZREM', QUEUE, unpack(left))
end
if how == 'consume' and weight > 0 and (sem.runtime or sem.declared) then
  set_limit(sem, math.max(0, sem.limit - weight), true)
end
if sem.queued > 0 then
  purge(sem)
  serve(sem)
end
reply[2] = finish(sem)
return all_held and {sem.now, reply[2], 3} or reply
