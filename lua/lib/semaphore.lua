-- Opens a semaphore at the head of a script and saves it at the end. In between, the table `sem`
-- carries what every part of the scripts needs:
--
--   now        the server's clock, ms
--   version    as `state` has it, nil when the semaphore is new to it
--   limit      in force: `runtime` (set at run time, or nil), else `declared` (configured, or nil)
--   last       the last token or ticket given; the next one must exceed `sequence`
--   longest    the longest lease in use, ms
--   members    of `permits`, of which `marks` are marks of `limit add`
--   extra      sum of (weight - 1) over the permits
--   queued     members of `queue`; `waiting` fields of `waiting`, at least
--   keep       when the keys expire, ms; `need` how long they must live for this call
--   changed    fields of `state` to write
--   writes     ends and ids to write to `permits`, of which `unwritten` are new members
--   retired    the last members of `permits`, and `left` those of `queue`: they don't count any
--              more, and are removed when the script needs the key no more. While a slot of a
--              cluster moves, a key that is empty ends the script that comes back to it half way
--   tickets    tickets and ids to write to `queue`; `records` the same for `waiting`
--   asking     ids that hear of their grant from this call's reply
--   granted    id -> {token, end of lease}
--   listens    whether anybody listens at a client's address; `messages` what to tell there
--   more       the script stopped at a bound: somebody must call `wake`
-- include: lib/constants.lua

local SLACK = 60000 -- ms that keys outlive their use; expiry is moved at most once in that time
-- `state` stays longer, so that tokens grow on when the clock steps back while nobody is there.
local STATE_SLACK = 7200000

-- What the error of a read means to the caller.
local function failed(answer, key, wanted)
  if string.find(answer.err, '^%-?WRONGTYPE ') then
    return redis.error_reply('SEM_TYPE the key ' .. key .. ' exists and is not a ' .. wanted)
  end
  return answer
end

-- Answers sem, or nil and an error reply: what a check of the arguments refused, or what is wrong
-- with the keys.
local function open(refusal)
  if refusal then
    return nil, refusal
  end
  local clock = redis.call('TIME')
  local state = redis.pcall('HMGET', STATE, 'version', 'declared', 'runtime', 'sequence', 'longest',
    'marks', 'extra', 'keep')
  if state.err then
    return nil, failed(state, STATE, 'hash')
  end
  if state[1] and state[1] ~= VERSION and state[1] ~= LIGHT and state[1] ~= PLAIN then
    return nil, redis.error_reply(
      'SEM_VERSION the semaphore was written by protocol version ' .. state[1]
      .. ', these scripts speak version ' .. VERSION
    )
  end
  local members = redis.pcall('ZCARD', PERMITS)
  if type(members) == 'table' then
    return nil, failed(members, PERMITS, 'sorted set')
  end
  local queued = redis.pcall('ZCARD', QUEUE)
  if type(queued) == 'table' then
    return nil, failed(queued, QUEUE, 'sorted set')
  end
  local waiting = redis.pcall('HLEN', WAITING)
  if type(waiting) == 'table' then
    return nil, failed(waiting, WAITING, 'hash')
  end
  local now_us = clock[1] * 1000000 + clock[2]
  local sem = {
    now = math.floor(now_us / 1000),
    declared = tonumber(state[2]),
    runtime = tonumber(state[3]),
    last = tonumber(state[4] or 0),
    sequence = math.max(tonumber(state[4] or 0), now_us - 1),
    longest = tonumber(state[5] or 0),
    marks = tonumber(state[6] or 0),
    extra = tonumber(state[7] or 0),
    keep = tonumber(state[8] or 0),
    members = members,
    queued = queued,
    waiting = waiting,
    version = state[1],
    is_new = not state[1],
    need = 0,
    more = false,
    changed = {},
    granted = {},
    writes = {},
    unwritten = 0,
    tickets = {},
    records = {},
    asking = {},
    retired = {},
    left = {},
    listens = {},
    messages = {},
  }
  sem.limit = sem.runtime or sem.declared or 0
  if members == 0 and (sem.extra > 0 or sem.marks > 0) then
    -- `permits` expired or was lost: the weights in `state` belong to nobody.
    sem.extra, sem.marks, sem.has_strays = 0, 0, true
  end
  return sem
end

-- Sets a field of `state` when the script saves.
local function set(sem, field, value)
  sem[field] = value
  sem.changed[field] = value
end

local function set_declared(sem, limit)
  set(sem, 'declared', limit)
  set(sem, 'limit', sem.runtime or limit)
end

-- A limit set at run time must not be forgotten: while there is one, `state` does not expire.
local function set_runtime(sem, limit)
  sem.persist = sem.persist or not sem.runtime
  set(sem, 'runtime', limit)
  set(sem, 'limit', limit)
end

local function clear_runtime(sem)
  if sem.runtime then
    redis.call('HDEL', STATE, 'runtime')
    sem.runtime, sem.changed.runtime = nil, nil
    set(sem, 'limit', sem.declared or 0)
    sem.expire = true
    sem.need = math.max(sem.need, sem.now)
  end
end

-- The next number in the order of grants and tickets. It follows the server's clock in us, so it
-- stays ahead when the keys have expired, and counts on when the clock steps back.
local function next_sequence(sem)
  set(sem, 'sequence', sem.sequence + 1)
  return sem.sequence
end

-- The keys must live at least until then (ms).
local function need_until(sem, time)
  sem.need = math.max(sem.need, time)
end

local function call_in_chunks(command, key, values)
  for from = 1, #values, 1000 do
    redis.call(command, key, unpack(values, from, math.min(from + 999, #values)))
  end
end

-- Mends what the loss or expiry of single keys left behind. Where `state` was lost, the permits
-- and waiters that are still there may have any lease or liveness, so the longest is not known.
local function repair(sem)
  if sem.is_new and (sem.members > 0 or sem.queued > 0) then
    set(sem, 'longest', MAX_LEASE)
    need_until(sem, sem.now + MAX_LEASE)
  elseif sem.has_strays then
    redis.call('UNLINK', STATE)
    sem.is_new, sem.version = true, nil
    for _, field in ipairs({'declared', 'runtime', 'limit', 'longest', 'keep'}) do
      sem.changed[field] = sem[field]
    end
    sem.changed.sequence = sem.last
  end
  if sem.queued == 0 and sem.waiting > 0 then
    -- `queue` was lost: its waiters come back with their tickets.
    redis.call('UNLINK', WAITING)
  end
end

-- Whether the next call may take a quick way.
local function mark_version(sem)
  local version = VERSION
  if sem.extra == 0 and sem.marks == 0 and (sem.runtime or sem.declared) then
    version = sem.queued == 0 and PLAIN or LIGHT
  end
  if version ~= sem.version then
    set(sem, 'version', version)
  end
end

-- Writes what changed in `state`, and moves the expiry of the keys when it comes too near.
local function save(sem)
  if sem.is_new and not next(sem.changed) and sem.need == 0 then
    return
  end
  mark_version(sem)
  if not next(sem.changed) and sem.need == 0 then
    return
  end
  if sem.is_new then
    set(sem, 'limit', sem.runtime or sem.declared or 0)
    set(sem, 'longest', sem.longest)
    sem.changed.sequence = sem.changed.sequence or sem.sequence
  end
  -- The sequence must not be forgotten while it is ahead of the clock.
  need_until(sem, math.floor(sem.sequence / 1000))
  local keys = {}
  if sem.need > sem.keep then
    set(sem, 'keep', sem.need + math.max(SLACK, sem.need - sem.now))
    keys = {PERMITS, QUEUE, WAITING}
  else
    if sem.new_permits then
      keys = {PERMITS}
    end
    if sem.new_queue then
      keys[#keys + 1], keys[#keys + 2] = QUEUE, WAITING
    end
  end
  local fields = {}
  for field, value in pairs(sem.changed) do
    fields[#fields + 1] = field
    fields[#fields + 1] = value
  end
  if #fields > 0 then
    call_in_chunks('HSET', STATE, fields)
  end
  for _, key in ipairs(keys) do
    -- One that was emptied is gone, and an error where its slot moves to another node.
    redis.pcall('PEXPIREAT', key, sem.keep)
  end
  if sem.persist then
    redis.call('PERSIST', STATE)
  elseif not sem.runtime and (sem.expire or sem.changed.keep) then
    redis.call('PEXPIREAT', STATE, sem.keep + STATE_SLACK)
  end
end
