-- A semaphore: what its keys say, and what is written back. In between, the table `sem` has
--
--   now_us, now        the server's clock, in us and in ms
--   declared, runtime  limits: of the configuration, and set at run time; nil where there is none
--   limit              the one in force, 0 where none is known
--   last               the last number given, as a token or as a ticket
--   longest            no lease in use is longer, ms
--   first              no lease ends before, ms
--   keep               when the keys expire, ms; `need` is how long this call needs them
--   permits, extra     how many permits there are, and the sum of (weight - 1) over them
--   known_extra        that sum as it stands in `permits`, nil where there is none
--   queued             how many wait
--   changed            fields of `state` to write, and their values
--   grants             ends and words to write to `permits`
--   leaving            words that leave `queue`
--   more               the script stopped at a bound: somebody must call `wake`
--
-- `permits` and `clients` have one member more, '*', so that neither key is ever emptied. (While a
-- slot of a cluster moves, an empty key ends the script that comes back to it.) In `permits` its score
-- is `extra` less NO_EXTRA, so the weight that is held can be counted whatever other key is lost. In
-- `clients` it is the longest liveness in use.
-- include: lib/arguments.lua

local NO_EXTRA = 10000000000 -- more than any sum of weights: the score stays below all times
local BOUND = 1000 -- ended leases, and waiters, that one script looks at at most

-- Reads the keys. Answers `sem`, and when the leases of these words end.
local function open(words)
  local clock = redis.call('TIME')
  local now_us = clock[1] * 1000000 + clock[2]
  local state = redis.pcall('HMGET', STATE,
    'version', 'declared', 'runtime', 'last', 'longest', 'first', 'keep')
  local permits, queued = redis.pcall('ZCARD', PERMITS), redis.pcall('ZCARD', QUEUE)
  local clients = queued ~= 0 and redis.pcall('ZCARD', CLIENTS)
  local strange = state.err and STATE or type(permits) == 'table' and PERMITS
    or type(queued) == 'table' and QUEUE or type(clients) == 'table' and CLIENTS
  if strange then
    refusal = redis.error_reply('SEM_TYPE the key ' .. strange .. ' exists and is not a '
      .. (strange == STATE and 'hash' or 'sorted set'))
    return
  elseif state[1] and state[1] ~= '2' then
    refusal = redis.error_reply('SEM_VERSION the semaphore was written by protocol version '
      .. state[1] .. ', these scripts speak version 2')
    return
  end
  local count = #words
  words[count + 1] = '*'
  local ends = redis.call('ZMSCORE', PERMITS, unpack(words))
  words[count + 1] = nil
  local extra = ends[count + 1] and ends[count + 1] + NO_EXTRA
  local sem = {
    now_us = now_us, now = math.floor(now_us / 1000),
    declared = state[2] and state[2] + 0, runtime = state[3] and state[3] + 0,
    limit = (state[3] or state[2] or 0) + 0,
    last = (state[4] or 0) + 0, longest = (state[5] or 0) + 0, first = (state[6] or 0) + 0,
    keep = (state[7] or 0) + 0, need = 0,
    permits = extra and permits - 1 or 0, extra = extra or 0, known_extra = extra, queued = queued,
    changed = {}, grants = {}, granted = {}, leaving = {}, messages = {}, more = false,
  }
  if not state[1] then
    -- New, or `state` was lost: whoever is there may have any lease, and any ticket.
    local is_used = permits + queued > 0
    sem.longest, sem.first = is_used and MAX_TIME or 0, is_used and 0 or MAX_NUMBER
    sem.need = is_used and sem.now + MAX_TIME or 0
    sem.last = (redis.call('ZRANGE', QUEUE, -1, -1, 'WITHSCORES')[2] or 0) + 0
    sem.changed = {'version', '2', 'longest', sem.longest, 'first', sem.first}
  end
  return sem, ends
end

local function set(sem, field, value)
  local changed = sem.changed
  changed[#changed + 1], changed[#changed + 2], sem[field] = field, value, value
end

-- The lease of a permit begins, or begins anew. Answers a token, and the end of the lease. Numbers
-- follow the server's clock in us, so they stay ahead when the keys have expired, and count on when
-- the clock steps back.
local function renew(sem, word, lease)
  local ends, grants = sem.now + lease, sem.grants
  grants[#grants + 1], grants[#grants + 2] = ends, word
  if lease > sem.longest or sem.permits == 1 and lease ~= sem.longest then
    set(sem, 'longest', lease)
  end
  if ends < sem.first then
    set(sem, 'first', ends)
  end
  sem.need = math.max(sem.need, ends)
  sem.last = math.max(sem.last + 1, sem.now_us)
  return sem.last, ends
end

-- A word becomes a permit, as above.
local function grant(sem, word, weight, lease)
  sem.permits, sem.extra = sem.permits + 1, sem.extra + weight - 1
  return renew(sem, word, lease)
end

-- A permit is no more.
local function uncount(sem, weight)
  sem.permits, sem.extra = sem.permits - 1, sem.extra - weight + 1
end

-- Takes words out of `permits` that are in it.
local function remove(sem, words)
  for _, word in ipairs(words) do
    uncount(sem, string.match(word, '^%a:[^:]*:(%d+)') + 0)
  end
  redis.call('ZREM', PERMITS, unpack(words))
end

-- Removes ended leases, so that what is left can be counted.
local function purge(sem)
  -- After the server's clock was set back, the dead would stay longer by that. So nothing may reach
  -- further ahead than it can since then.
  local function cut(key, latest)
    local beyond = redis.call('ZRANGEBYSCORE', key, '(' .. latest, '+inf', 'LIMIT', 0, BOUND)
    for _, member in ipairs(beyond) do
      redis.call('ZADD', key, latest, member)
    end
    sem.more = sem.more or #beyond == BOUND
  end
  if sem.last > sem.now_us + 1000000 then
    cut(PERMITS, sem.now + sem.longest)
    cut(CLIENTS, sem.now + (redis.call('ZSCORE', CLIENTS, '*') or 0))
    sem.first = 0
  end
  if sem.first <= sem.now then
    local ended = redis.call('ZRANGEBYSCORE', PERMITS, 0, sem.now, 'LIMIT', 0, BOUND)
    if ended[1] then
      remove(sem, ended)
    end
    local next = redis.call('ZRANGEBYSCORE', PERMITS, 0, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    local first = (next[2] or MAX_NUMBER) + 0
    for i = 1, #sem.grants, 2 do
      first = math.min(first, sem.grants[i]) -- not written yet
    end
    set(sem, 'first', first)
    sem.more = sem.more or #ended == BOUND
    sem.need = math.max(sem.need, sem.now)
  end
end

-- The limit of the configuration, or with `is_runtime` the one set at run time; nil clears that.
local function set_limit(sem, number, is_runtime)
  if is_runtime then
    sem.has_new_limit = true
  end
  if number then
    set(sem, is_runtime and 'runtime' or 'declared', number)
  else
    redis.call('HDEL', STATE, 'runtime')
    sem.runtime = nil
  end
  sem.limit, sem.need = sem.runtime or sem.declared or 0, math.max(sem.need, sem.now)
end

local function call_in_chunks(command, key, values)
  for from = 1, #values, 1000 do
    redis.call(command, key, unpack(values, from, math.min(from + 999, #values)))
  end
end

-- Writes what this call changes, and moves the expiry of the keys when it comes too near.
local function save(sem)
  local changed, grants = sem.changed, sem.grants
  if sem.extra ~= sem.known_extra and (grants[1] or sem.known_extra) then
    grants[#grants + 1], grants[#grants + 2] = sem.extra - NO_EXTRA, '*'
  elseif sem.need == 0 then
    return
  end
  call_in_chunks('ZADD', PERMITS, grants)
  changed[#changed + 1], changed[#changed + 2] = 'last', sem.last
  local need = math.max(sem.need, sem.now, math.floor(sem.last / 1000)) -- numbers must not go back
  local moves = need > sem.keep
  if moves then
    set(sem, 'keep', need + math.max(60000, need - sem.now))
  end
  redis.call('HSET', STATE, unpack(changed))
  if moves or sem.has_new_key or not sem.known_extra then
    for _, key in ipairs({PERMITS, QUEUE, CLIENTS}) do
      redis.pcall('PEXPIREAT', key, sem.keep) -- one that is empty may have moved to another node
    end
  end
  if sem.runtime and sem.has_new_limit then
    redis.call('PERSIST', STATE) -- a limit set at run time stays until it is cleared
  elseif not sem.runtime and (moves or sem.has_new_limit) then
    -- It stays longer, so that numbers grow on when the clock steps back while nobody is there.
    redis.call('PEXPIREAT', STATE, sem.keep + 7200000)
  end
end
