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
--   "declared" n    the same, if no limit is known
--   "initial" n     sets n at run time, unless one is set at run time
--   "set" n mark    sets n at run time, for everyone, until "clear"
--   "add" n mark    sets what is in force plus n at run time
--   "clear" mark    the declared limit is in force again
-- ARGV[2] n         0 to 4294967295; not with "clear"
-- ARGV[3] mark      a word of weight 0 (docs/protocol.md): a change that comes again with the same
--                   word within its lease counts once; ARGV[2] with "clear"
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

local ARGUMENTS = {declare = 2, declared = 2, initial = 2, set = 3, add = 3, clear = 2}
local action, number, mark = ARGV[1], 0, nil
local arguments = ARGUMENTS[action]
if not arguments then
  return wrong(1, 'action', '"declare", "declared", "initial", "set", "add" or "clear"')
elseif #ARGV ~= arguments then
  return wrong_number(arguments)
end
if action ~= 'clear' then
  if not is_integer(ARGV[2], 0, MAX_COUNT) then
    return wrong(2, 'n', 'an integer from 0 to 4294967295')
  end
  number = ARGV[2] + 0
end
if arguments == 3 or action == 'clear' then
  mark = read_word(arguments, 'mark', 0, 0)
  if mark.err then
    return mark
  end
end
local lookup = {}
-- include: lib/read.lua

local before, declared_before = runtime or declared or -1, declared or -1
local known_until = mark and redis.call('ZSCORE', CLIENTS, ARGV[arguments]) or 0
local is_new = known_until + 0 <= now
if action == 'add' and is_new and limit + number > MAX_COUNT then
  return wrong(2, 'n', string.format('at most %.0f: the limit cannot exceed %.0f',
    MAX_COUNT - limit, MAX_COUNT))
end
local remembered, duration = mark and is_new and ARGV[arguments], mark and mark[4]
-- include: lib/remember.lua

if action == 'declare' and number ~= declared
  or action == 'declared' and not (declared or runtime) then
  declared, changed.declared, live_until = number, number, math.max(live_until, now)
elseif action == 'set' and is_new or action == 'initial' and not runtime then
  runtime, has_new_limit = number, true
elseif action == 'add' and is_new then
  runtime, has_new_limit = limit + number, true
elseif action == 'clear' and is_new and runtime then
  redis.call('HDEL', STATE, 'runtime')
  runtime, has_new_limit = nil, true
end
if has_new_limit then
  changed.runtime, live_until = runtime, math.max(live_until, now)
end
limit = runtime or declared or 0
-- include: lib/purge.lua
-- include: lib/serve.lua
local waits = false
-- include: lib/write.lua

return {now, wake_in, runtime or declared or -1, before, declared or -1, declared_before}
