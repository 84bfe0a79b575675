-- refresh: starts the lease of permits anew, if they are still held.
--
-- An ended lease is lost, also when nothing has removed it yet. A permit may get another word: then
-- that stands for it from now on, and the word it had is unknown. Repeated, that changes nothing more.
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
--   7               held
-- Flags             allow-oom
-- include: lib/queue.lua

local words, parts, all = {}, {}, {}
local next_of, lease_of = {}, {}
for i = 1, count_requests(0, 2) do
  local index = 2 * i - 1
  local word, next, part = ARGV[index], ARGV[index + 1], read_word(index, 0, MAX_COUNT)
  words[i], parts[i], all[#all + 1] = word, part, word
  if part and string.find(next, ':', 1, true) then
    part = read_word(index + 1, part[3], part[3])
    next_of[word], lease_of[word], all[#all + 1] = next, part and part[4], next
  elseif part and is_integer(next, 1, part[4]) then
    lease_of[word] = next + 0
  else
    wrong(index + 1, 'next', 'an integer from 1 to the lease in the word, or another word')
  end
end
local sem, scores
if not refusal then
  sem, scores = open(all)
end
if refusal then
  return refusal
end

local ends = {}
for i, word in ipairs(all) do
  ends[word] = (scores[i] or 0) + 0
end
local reply, gone = {sem.now, 0}, {''} -- no word is empty
for i, word in ipairs(words) do
  local next, lease, weight = next_of[word], lease_of[word], parts[i][3]
  if next and ends[next] > sem.now then -- it was asked for before
    reply[i + 2] = select(2, renew(sem, next, lease))
  elseif ends[word] > sem.now then
    reply[i + 2] = select(2, renew(sem, next or word, lease))
    gone[#gone + 1] = next and word
    if next and ends[next] > 0 then
      uncount(sem, weight) -- it was a permit whose lease has ended
    end
  else
    reply[i + 2] = 0
    for _, lost in ipairs({word, next}) do
      gone[#gone + 1] = lost
      if ends[lost] > 0 then
        uncount(sem, weight)
      end
    end
  end
end
redis.call('ZREM', PERMITS, unpack(gone)) -- as `release` begins
if sem.queued > 0 then
  -- A word that stands for a permit waits for none, and one that is lost neither.
  sem.queued = sem.queued - redis.call('ZREM', QUEUE, unpack(all))
end
if sem.queued > 0 then
  purge(sem)
  serve(sem)
end
reply[2] = finish(sem)
return reply
