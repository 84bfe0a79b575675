-- inspect: tells who holds and who waits, a page at a time. Changes nothing.
--
-- Tokens are not stored: the holder has its own. `sequence` is the newest token or ticket given.
--
-- KEYS[1] permits   sorted set: permit id -> end of lease, ms on the server's clock
-- KEYS[2] queue     sorted set: request id -> ticket
-- KEYS[3] waiting   hash: request id -> weight, lease, heard until, wake, client
-- KEYS[4] state     hash: version, limits, last sequence number, weights above 1
-- ARGV[1] skip_held 0 to 9007199254740991: how many holders to leave out
-- ARGV[2] holders   0 to 1000: how many holders to tell
-- ARGV[3] skip_wait 0 to 9007199254740991: how many waiters to leave out
-- ARGV[4] waiters   0 to 1000: how many waiters to tell
-- Reply             server time (ms), then seven integers and two lists:
--   limit           in force, -1 where there is none
--   declared        -1 where there is none
--   runtime         -1 where there is none
--   held            the weight of all permits whose lease has not ended (at least 1,000 ended ones
--                   are left out; more than that at once may still count where weights differ)
--   members         entries in the list of holders, over all pages
--   queued          the length of the queue
--   sequence        the last sequence number, 0 before the first
--   holders         for each, by the end of lease: id, weight, ms left. Marks of `limit` "add" are
--                   members, too, but are left out, so a page can be shorter than asked for
--   waiters         for each, in the queue's order: id, weight, ms waited
-- Errors            SEM_KEYS, SEM_ARG, SEM_TYPE, SEM_VERSION
-- Cost              O(log N) and O(1) for each entry told. Commands:
--   8               nobody holds or waits
--   9               holders and waiters told
-- Flags             no-writes
-- include: lib/arguments.lua
-- include: lib/queue.lua

local function check()
  return check_keys()
    or check_count(4)
    or check_integer(1, 'skip_held', 0, MAX_SEQUENCE)
    or check_integer(2, 'holders', 0, MAX_REQUESTS)
    or check_integer(3, 'skip_wait', 0, MAX_SEQUENCE)
    or check_integer(4, 'waiters', 0, MAX_REQUESTS)
end

-- The ids of a page, and every id's score.
local function page(key, from, count)
  local ids, scores = {}, {}
  if count > 0 then
    local flat = redis.call('ZRANGE', key, from, from + count - 1, 'WITHSCORES')
    for i = 1, #flat, 2 do
      ids[#ids + 1] = flat[i]
      scores[#scores + 1] = tonumber(flat[i + 1])
    end
  end
  return ids, scores
end

local function weights_of(sem, ids)
  local weights, fields = {}, {}
  for i, id in ipairs(ids) do
    weights[i], fields[i] = 1, 'w:' .. id
  end
  if sem.extra > 0 and #ids > 0 then
    for i, weight in ipairs(redis.call('HMGET', STATE, unpack(fields))) do
      weights[i] = tonumber(weight) or 1
    end
  end
  return weights
end

-- The weight of the permits whose lease has not ended. Ended ones count on only past the bound.
local function live_weight(sem)
  local ended = redis.call('ZCOUNT', PERMITS, '-inf', sem.now)
  local weight = held(sem)
  if sem.extra == 0 and sem.marks == 0 then
    return weight - ended, ended
  end
  local ids = page(PERMITS, 0, math.min(ended, PURGE_CHUNK))
  for i, ended_weight in ipairs(weights_of(sem, ids)) do
    if string.sub(ids[i], 1, 1) ~= '+' then
      weight = weight - ended_weight
    end
  end
  return weight, ended
end

local function inspect()
  local sem, refusal = open(check())
  if refusal then
    return refusal
  end
  local weight, ended = live_weight(sem)

  local holders, waiters = {}, {}
  local ids, ends = page(PERMITS, ended + ARGV[1], tonumber(ARGV[2]))
  for i, permit_weight in ipairs(weights_of(sem, ids)) do
    if string.sub(ids[i], 1, 1) ~= '+' then
      holders[#holders + 1] = ids[i]
      holders[#holders + 1] = permit_weight
      holders[#holders + 1] = ends[i] - sem.now
    end
  end
  local waiting, tickets = page(QUEUE, tonumber(ARGV[3]), tonumber(ARGV[4]))
  local values = #waiting > 0 and redis.call('HMGET', WAITING, unpack(waiting))
  for i, id in ipairs(waiting) do
    waiters[#waiters + 1] = id
    waiters[#waiters + 1] = read_waiter(values[i]).weight or 0
    waiters[#waiters + 1] = math.max(0, sem.now - math.floor(tickets[i] / 1000))
  end
  return {
    sem.now, sem.runtime or sem.declared or -1, sem.declared or -1, sem.runtime or -1, weight,
    sem.members - ended, sem.queued, sem.last, holders, waiters,
  }
end

return inspect()
