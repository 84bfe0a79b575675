-- limit: declares, sets, adds to or clears the limit, then serves the queue.
--
-- The limit in force is the one set at run time, else the declared one. A lower limit takes no
-- permit away: it drains. A limit of 0 pauses the semaphore.
--
-- KEYS[1] permits   sorted set: permit id -> end of lease, ms on the server's clock
-- KEYS[2] queue     sorted set: request id -> ticket
-- KEYS[3] waiting   hash: request id -> weight, lease, heard until, wake, client
-- KEYS[4] state     hash: version, limits, last sequence number, weights above 1
-- ARGV[1] action    one of these, with the arguments that follow it:
--   "declare" n     the limit of the client's configuration; the newest one counts
--   "initial" n     sets n at run time, unless a limit is already set at run time
--   "set" n         sets n at run time, for everyone, until "clear"
--   "add" n id      sets what is in force plus n at run time; repeated with the same id within a
--                   minute it counts once
--   "clear"         the declared limit is in force again
-- ARGV[2] n         0 to 4294967295; not with "clear"
-- ARGV[3] id        1 to 256 bytes, no blank or control character, no "+" in front; only with
--                   "add"
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
-- include: lib/queue.lua

local ARGUMENTS = {declare = 2, initial = 2, set = 2, add = 3, clear = 1}
local REMEMBER = 60000 -- ms that the id of an "add" is kept

local function check()
  local count = ARGUMENTS[ARGV[1]]
  local refusal = check_keys()
    or (not count and wrong(1, 'action', '"declare", "initial", "set", "add" or "clear"'))
    or check_count(count)
  if not refusal and count > 1 then
    refusal = check_integer(2, 'n', 0, MAX_COUNT)
  end
  if not refusal and count > 2 then
    refusal = check_id(3, {})
  end
  return refusal
end

-- An "add" leaves a mark among the permits that weighs nothing, so that a repeated one is known.
-- Marks end like leases; they are purged here, since they alone never make room short. The new one
-- goes first, so that the purge never empties the key.
local function add(sem, number, mark, has_ended)
  redis.call('ZADD', PERMITS, sem.now + REMEMBER, mark)
  if has_ended then
    uncount(sem, {mark})
  end
  sem.new_permits = sem.members == 0
  sem.members = sem.members + 1
  set(sem, 'marks', sem.marks + 1)
  purge_chunk(sem)
  set(sem, 'longest', math.max(sem.longest, REMEMBER))
  need_until(sem, sem.now + REMEMBER)
  set_runtime(sem, sem.limit + number)
end

local function limit()
  local sem, refusal = open(check())
  if refusal then
    return refusal
  end
  local action, number = ARGV[1], tonumber(ARGV[2])
  local mark, ends = nil, nil
  if action == 'add' then
    mark = '+' .. ARGV[3]
    ends = ends_of(sem, {mark})[1]
  end
  local is_repeated = ends and ends > sem.now
  if action == 'add' and not is_repeated and sem.limit + number > MAX_COUNT then
    return wrong(2, 'n', string.format('at most %.0f: the limit cannot exceed %.0f',
      MAX_COUNT - sem.limit, MAX_COUNT))
  end
  repair(sem)
  local before, declared_before = sem.runtime or sem.declared or -1, sem.declared or -1
  if action == 'declare' then
    set_declared(sem, number)
  elseif action == 'set' or (action == 'initial' and not sem.runtime) then
    set_runtime(sem, number)
  elseif action == 'add' and not is_repeated then
    add(sem, number, mark, ends)
  elseif action == 'clear' then
    clear_runtime(sem)
  end
  hand_off(sem)
  finish(sem)
  return {
    sem.now, wake_in(sem, false),
    sem.runtime or sem.declared or -1, before, sem.declared or -1, declared_before,
  }
end

return limit()
