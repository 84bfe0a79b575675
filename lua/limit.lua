-- limit: takes over a configuration's limit, changes the limit in force, then serves the queue.
--
-- The limit in force is the one set at run time, else the declared one. A lower limit takes no
-- permit away: it drains. 0, set at run time, pauses the semaphore.
--
-- KEYS[1] permits   sorted set: word -> end of its lease, ms on the server's clock
-- KEYS[2] queue     sorted set: word -> ticket
-- KEYS[3] clients   sorted set: client -> heard until, ms on the server's clock
-- KEYS[4] state     hash: version, limits, last number, longest lease, expiry
-- ARGV[1] kind      "declare" (the limit is declared now, and the newest one counts), "declared" or
--                   "initial" (declared, or set at run time, if none is known), or "known" (no
--                   limit is brought)
-- ARGV[2] limit     0 to 4294967295
-- ARGV[3] change    may be left out; one of these, with the arguments that follow it:
--   "set" n mark    sets n at run time, for everyone, until "clear"
--   "add" n mark    sets what is in force plus n at run time
--   "clear" mark    the declared limit is in force again
-- ARGV[4] n         0 to 4294967295; not with "clear"
-- ARGV[5] mark      a word of weight 0 (docs/protocol.md): a change that comes again with the same
--                   word within its lease counts once; ARGV[4] with "clear"
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
-- include: lib/arguments.lua
-- include: lib/words.lua

local change, lengths = ARGV[3], {set = 5, add = 5, clear = 4}
local length, n = not change and 2 or lengths[change], integer(ARGV[4], 0, MAX_COUNT)
if not length then
  return wrong(3, 'change', '"set", "add" or "clear"')
elseif #ARGV ~= length then
  return wrong_number(length)
elseif length == 5 and not n then
  return wrong(4, 'n', 'an integer from 0 to 4294967295')
end
local mark = change and read_word(length, 'mark', 0)
if change and mark.err then
  return mark
end
local lookup = {}
-- include: lib/read.lua

local before = runtime or declared or -1
-- include: lib/configure.lua

local marked = change and redis.call('ZMSCORE', CLIENTS, '*', ARGV[length]) or {}
local is_new = change and now + (marked[2] or 0) >= 0
if is_new and change == 'add' and limit + n > MAX_COUNT then
  return wrong(4, 'n', string.format('at most %.0f: the limit cannot exceed %.0f',
    MAX_COUNT - limit, MAX_COUNT))
end
if is_new then
  -- A score below zero is cut by no step back, nor taken for a client's. Two that are over leave.
  local known_until = now + mark[4]
  local added = redis.call('ZADD', CLIENTS, marked[1] or 0, '*', -known_until, ARGV[length])
  local over = redis.call('ZRANGEBYSCORE', CLIENTS, -now, '(0', 'LIMIT', 0, 2)
  redis.call('ZREM', CLIENTS, '', unpack(over))
  has_new_key, live_until = has_new_key or added == 2, math.max(live_until, known_until)
  last_number = math.max(last_number, now_us - 1) -- a later step back will show
end
if is_new and change == 'clear' then
  redis.call('HDEL', STATE, 'runtime')
  has_new_limit, runtime = has_new_limit or runtime ~= nil, nil
elseif is_new then
  has_new_limit, runtime = true, change == 'set' and n or limit + n
end
changed.runtime, limit = has_new_limit and runtime or nil, runtime or declared or 0
-- include: lib/purge.lua
-- include: lib/serve.lua
local waits = false
-- include: lib/write.lua

return {now, wake_in, runtime or declared or -1, before, declared or -1, declared_before}
