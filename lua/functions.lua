#!lua name=redis_semaphore
-- Made from scripts: change those, not this file.

redis.register_function{
  function_name = 'sem_acquire',
  flags = {},
  callback = function(KEYS, ARGV)
-- acquire: grants a permit to each request, or queues it, or refuses it.
--
-- A call may be repeated: an id that holds a permit is granted again (same permit, its lease starts
-- anew, the token is newer), an id that is queued keeps its ticket and counts as heard of. While
-- anybody is queued, new requests go behind, and tries are refused. Who is queued is served first.
--
-- KEYS[1] permits   sorted set: permit id -> end of lease, ms on the server's clock
-- KEYS[2] queue     sorted set: request id -> ticket
-- KEYS[3] waiting   hash: request id -> weight, lease, heard until, wake, client
-- KEYS[4] state     hash: version, limits, last sequence number, weights above 1
-- ARGV[1] kind      "declared" or "initial": what `limit` is when the state is gone
-- ARGV[2] limit     0 to 4294967295: used when no limit is in force, else ignored
-- ARGV[3] client    1 to 256 bytes, no blank or control character: the channel of the client's
--                   wake-ups, with "poll" any name
-- ARGV[4] wake      "publish", "spublish" (sharded channel), or "poll" (no message: ask again)
-- ARGV[5] liveness  1 to 604800000 ms: a queued request not asked for again in that time may go
-- ARGV[6+] requests 1 to 1000 times: id, weight, lease, place
--   id              1 to 256 bytes, no blank or control character, no "+" in front, unique for
--                   each acquire
--   weight          1 to 4294967295
--   lease           1 to 604800000 ms
--   place           "try" (never queue), "wait" (queue), or the ticket that the request had,
--                   1 to 9007199254740991
-- Reply             server time (ms), wake_in, then for each request three integers:
--   1 token end     granted: fencing token, end of lease (ms on the server's clock)
--   2 ticket rank   queued: ticket, rank in the queue (1 is the head)
--   0 0 0           refused
--   3 token end     to several requests, once: all are granted, with the same end of lease; the
--                   first has this token, each next one the next number
--   wake_in         ms until `wake` is worth a call: 0 at once, -1 no need
-- Errors            SEM_KEYS, SEM_ARG, SEM_TYPE, SEM_VERSION, SEM_TOO_HEAVY
-- Cost              O(log N) for each request and each waiter served. Commands for one request:
--   5               granted
--   6               granted, and nobody else holds
--   8               granted with a weight above 1
--   10              refused
--   12              queued behind others
--   12              queued, asked for again with its ticket
-- Flags             none
-- Whether these are ids as nearly all are: printable ASCII without "+", and each given once. Cheap,
-- for most calls; what else may be right, and what is wrong, is for lib/arguments.lua to say.
-- Names and bounds that all scripts share.

local PERMITS, QUEUE, WAITING, STATE = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local ARE_FOUR_KEYS = #KEYS == 4
  and PERMITS ~= QUEUE and PERMITS ~= WAITING and PERMITS ~= STATE
  and QUEUE ~= WAITING and QUEUE ~= STATE and WAITING ~= STATE

-- `version` in `state`. The quick ways rely on it: LIGHT says that a limit is in force, all permits
-- weigh 1 and no mark is kept, PLAIN that the queue is empty, too. Otherwise it is VERSION.
local VERSION, LIGHT, PLAIN = '1', '1 light', '1 plain'

local ALL = 3 -- alone in a reply to several requests: one answer for all of them

local MAX_REQUESTS = 1000
local MAX_COUNT = 4294967295 -- a limit or a weight: an unsigned 32-bit number
local MAX_LEASE = 604800000 -- seven days in ms
local MAX_SEQUENCE = 9007199254740991 -- the largest integer that a double holds exactly
local MAX_ID = 256 -- bytes

local function are_plain(ids)
  local seen, text = {}, ids[2] and table.concat(ids) or ids[1]
  if not string.find(text, '^[!-~]+$') or string.find(text, '+', 1, true) then
    return false
  end
  for i = 1, #ids do
    local id = ids[i]
    if id == '' or #id > MAX_ID or seen[id] then
      return false
    end
    seen[id] = true
  end
  return true
end
-- For the quick ways: whether all leases run, so that nobody's place has become free unseen.

-- The permit whose lease ends first: {id, end}. Nil where its lease has ended, or the last one ends
-- later than any can (the server's clock stepped back).
local function first_to_end(members, now, longest)
  local first = redis.call('ZRANGE', PERMITS, 0, 0, 'WITHSCORES')
  local last = members == 1 and first or redis.call('ZRANGE', PERMITS, -1, -1, 'WITHSCORES')
  return first[2] + 0 > now and last[2] + 0 <= now + longest and first or nil
end

-- Functions are made anew in each call, which takes time. So the common case comes first, and what
-- is seldom needed is made inside of what needs it.

local FIXED, SIZE = 5, 4
local LARGEST_COUNT, LAST_TICKET = '4294967295', '9007199254740991' -- MAX_COUNT, MAX_SEQUENCE

-- The ids, and their lease where all want the same, weigh 1 and are new; nil where anything about
-- the arguments wants a closer look.
local function read_requests()
  local arguments = ARGV
  local kind, limit, client, wake, liveness = unpack(arguments, 1, FIXED)
  local count = (#arguments - FIXED) / SIZE
  if not ARE_FOUR_KEYS or count < 1 or count > MAX_REQUESTS or count % 1 ~= 0
    or (kind ~= 'declared' and kind ~= 'initial')
    or (wake ~= 'publish' and wake ~= 'spublish' and wake ~= 'poll')
    or client == '' or #client > MAX_ID
    -- What is less than '1' is nothing, or begins with a zero. Nine digits are less than the
    -- largest count, eight less than the longest lease.
    or limit < '0' or #limit > 9 and (#limit > 10 or limit > LARGEST_COUNT)
    or liveness < '1' or #liveness > 8 then
    return
  end
  local ids, numbers, are_light = {}, {limit, liveness}, true
  local last_weight, last_lease, last_place
  local index = FIXED + 1
  for i = 1, count do
    local weight, lease, place = arguments[index + 1], arguments[index + 2], arguments[index + 3]
    ids[i] = arguments[index]
    index = index + SIZE
    -- Mostly all requests of a call want the same.
    if lease ~= last_lease or weight ~= last_weight or place ~= last_place then
      if weight < '1' or #weight > 9 or lease < '1' or #lease > 8 then
        return
      end
      numbers[#numbers + 1] = lease .. weight
      are_light = are_light and weight == '1' and (i == 1 or lease == last_lease)
      if place ~= 'wait' and place ~= 'try' then
        if place < '1' or #place > 16 or #place == 16 and place > LAST_TICKET then
          return
        end
        numbers[#numbers + 1], are_light = place, false
      end
      last_weight, last_lease, last_place = weight, lease, place
    end
  end
  if string.find(table.concat(numbers) .. ' ' .. client, '^%d+ [!-~]+$') and are_plain(ids) then
    return ids, are_light and last_lease
  end
end

-- The quick way where nobody queues, and whatever is asked for is new and fits. Answers nil where
-- that is not so.
local function grant_at_once(ids, lease, state)
  local members = redis.pcall('ZCARD', PERMITS)
  if type(members) == 'table' or members + #ids > state[2] + 0 then
    return
  end
  local clock = redis.call('TIME')
  local now_us = clock[1] * 1000000 + clock[2]
  local now = math.floor(now_us / 1000)
  local token = math.max(state[3], now_us - 1)
  local ends, longest = now + lease, math.max(members == 0 and 0 or state[4], lease)
  local text = string.format('%.0f', ends)
  local reply = {now, -1, ids[2] and ALL or 1, token + 1, ends}
  local entries = {}
  for i = 1, #ids do
    entries[2 * i - 1], entries[2 * i] = text, ids[i]
  end
  token = token + #ids
  if math.max(now + longest, token / 1000) > state[5] + 0 then
    return -- the expiry must be moved
  end
  local added = 0
  for from = 1, #entries, MAX_REQUESTS do
    local last = math.min(from + MAX_REQUESTS - 1, #entries)
    added = added + redis.call('ZADD', PERMITS, 'NX', unpack(entries, from, last))
  end
  if added < #ids then
    -- Some are not new: they hold, or their lease has ended, which the long way tells. Those that
    -- are new are taken back for it, if they can be told from others that end in the same ms.
    local new = {}
    for i, found in ipairs(redis.call('ZMSCORE', PERMITS, unpack(ids))) do
      new[#new + 1] = found == entries[2 * i - 1] and ids[i] or nil
    end
    if #new == added then
      if added > 0 then
        redis.call('ZREM', PERMITS, unpack(new))
      end
      return
    end
    -- Those others hold, so the leases of all begin anew.
    for from = 1, #entries, MAX_REQUESTS do
      local last = math.min(from + MAX_REQUESTS - 1, #entries)
      redis.call('ZADD', PERMITS, unpack(entries, from, last))
    end
  end
  if longest == state[4] + 0 then
    redis.call('HSET', STATE, 'sequence', token)
  else
    redis.call('HSET', STATE, 'sequence', token, 'longest', longest)
  end
  if members == 0 then
    redis.call('PEXPIREAT', PERMITS, state[5])
  end
  return reply
end

-- The quick way behind others who queue, where all that may be held is held. Answers nil where
-- there is more to it.
local function queue_at_once(ids, lease, state)
  local members, queued = redis.pcall('ZCARD', PERMITS), redis.pcall('ZCARD', QUEUE)
  local limit = state[2] + 0
  if type(members) == 'table' or members < limit or limit == 0 or queued == 0
    or redis.pcall('HLEN', WAITING) ~= queued then
    return
  end
  local clock = redis.call('TIME')
  local now_us = clock[1] * 1000000 + clock[2]
  local now = math.floor(now_us / 1000)
  local ticket, heard_until = math.max(state[3], now_us - 1), now + ARGV[5]
  local first = first_to_end(members, now, state[4])
  if not first or math.max(heard_until, (ticket + #ids) / 1000) > state[5] + 0 then
    return -- the expiry must be moved
  end
  local ends = redis.call('ZMSCORE', PERMITS, unpack(ids))
  local queued_as = redis.call('ZMSCORE', QUEUE, unpack(ids))
  for i = 1, #ids do
    if ends[i] or queued_as[i] or ARGV[FIXED + SIZE * i] ~= 'wait' then
      return -- it holds, or is queued already, or does not queue
    end
  end
  local record =
    table.concat({1, lease, string.format('%.0f', heard_until), ARGV[4], ARGV[3]}, ' ')
  local reply, tickets, records = {now, math.max(1, first[2] - now)}, {}, {}
  for i, id in ipairs(ids) do
    tickets[2 * i - 1], tickets[2 * i] = ticket + i, id
    records[2 * i - 1], records[2 * i] = id, record
    reply[3 * i], reply[3 * i + 1], reply[3 * i + 2] = 2, ticket + i, queued + i
  end
  for from = 1, #tickets, MAX_REQUESTS do
    local last = math.min(from + MAX_REQUESTS - 1, #tickets)
    redis.call('ZADD', QUEUE, unpack(tickets, from, last))
    redis.call('HSET', WAITING, unpack(records, from, last))
  end
  redis.call('HSET', STATE, 'sequence', ticket + #ids)
  return reply
end

local function acquire_at_once(ids, lease)
  local state = redis.pcall('HMGET', STATE, 'version', 'limit', 'sequence', 'longest', 'keep')
  if state[1] == PLAIN then
    return grant_at_once(ids, lease, state)
  elseif state[1] == LIGHT then
    return queue_at_once(ids, lease, state)
  end
end

local plain_ids, light_lease = read_requests()
local acquired = light_lease and acquire_at_once(plain_ids, light_lease)
if acquired then
  return acquired
end

-- The queue: requests in the order of their tickets, and the hand-off to its head.
-- Permits: count them, purge those whose lease ended, grant and remove them.
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

local PURGE_CHUNK = 1000
local PURGE_BOUND = 2000 -- ended leases that one script removes at most, when it needs room

local function held(sem)
  return sem.members - sem.marks + sem.extra
end

-- Takes members that have left `permits` out of the count. Answers the weight of each by its id.
local function uncount(sem, ids)
  sem.members = sem.members - #ids
  local weights, marks = {}, 0
  for _, id in ipairs(ids) do
    if sem.marks > 0 and string.sub(id, 1, 1) == '+' then
      marks = marks + 1
    end
    weights[id] = 1
  end
  if marks > 0 then
    -- Marks made before a loss of `state` are not in its number.
    set(sem, 'marks', math.max(0, sem.marks - marks))
  end
  if sem.extra > 0 then
    local fields, known, extra = {}, {}, 0
    for i, id in ipairs(ids) do
      fields[i] = 'w:' .. id
    end
    for i, weight in ipairs(redis.call('HMGET', STATE, unpack(fields))) do
      if weight then
        weights[ids[i]] = tonumber(weight)
        extra = extra + weight - 1
        known[#known + 1] = fields[i]
      end
    end
    if #known > 0 then
      redis.call('HDEL', STATE, unpack(known))
      set(sem, 'extra', sem.extra - extra)
    end
  end
  return weights
end

-- The scores of ids (at most 1,000) in a sorted set of so many members, false where there is none.
local function scores_of(key, members, ids)
  local scores = {}
  if members > 0 then
    scores = redis.call('ZMSCORE', key, unpack(ids))
  end
  for i = 1, #ids do
    scores[i] = tonumber(scores[i]) or false
  end
  return scores
end

-- When the leases of ids end.
local function ends_of(sem, ids)
  return scores_of(PERMITS, sem.members, ids)
end

-- Removes nothing: no id is empty. But a server that is out of memory runs a script to its end if
-- its first write may free some.
local function touch_permits()
  redis.call('ZREM', PERMITS, '')
end

-- Removes ids (at most 1,000) that are members of `permits`, or retires them; answers their weights
-- by id.
local function remove_permits(sem, ids)
  if #ids == 0 then
    return {}
  end
  if #ids < sem.members - sem.unwritten then
    redis.call('ZREM', PERMITS, unpack(ids))
  else
    touch_permits()
    sem.retired = ids
  end
  return uncount(sem, ids)
end

-- One that was granted anew meanwhile stays.
local function remove_retired(sem)
  local ids = {}
  for _, id in ipairs(sem.retired) do
    ids[#ids + 1] = not sem.granted[id] and id or nil
  end
  if #ids > 0 then
    redis.call('ZREM', PERMITS, unpack(ids))
  end
  sem.retired = {}
end

-- Members of `permits` whose leases end between these, at most one chunk.
local function chunk_between(sem, from, to)
  if sem.members == sem.unwritten then
    return {}
  end
  return redis.call('ZRANGEBYSCORE', PERMITS, from, to, 'LIMIT', 0, PURGE_CHUNK)
end

-- Removes one chunk of ended leases; answers whether there may be more.
local function purge_chunk(sem)
  local ended = chunk_between(sem, '-inf', sem.now)
  remove_permits(sem, ended)
  sem.purged = (sem.purged or 0) + #ended
  return #ended == PURGE_CHUNK
end

-- No lease can truly end later than the longest lease from now. One that seems to was given before
-- the server's clock stepped back; without a cut its dead holder would keep it longer by the step.
local function cut_leases(sem)
  local last = sem.now + sem.longest
  local beyond = chunk_between(sem, '(' .. last, '+inf')
  local cut = {}
  for _, id in ipairs(beyond) do
    cut[#cut + 1] = last
    cut[#cut + 1] = id
  end
  if #cut > 0 then
    call_in_chunks('ZADD', PERMITS, cut)
  end
  sem.more = sem.more or #beyond == PURGE_CHUNK
end

-- Whether `weight` fits, after purging as far as it must. Leases are looked at only while room is
-- short, and once in a script: time stands still inside it.
local function make_room(sem, weight)
  while held(sem) + weight > sem.limit and not sem.all_purged do
    if (sem.purged or 0) >= PURGE_BOUND then
      sem.more = true
      return false
    end
    if not purge_chunk(sem) then
      sem.all_purged = true
      cut_leases(sem)
    end
  end
  return held(sem) + weight <= sem.limit
end

-- Counts a permit as granted. `write_permits` must follow.
local function grant(sem, id, weight, lease)
  local token, ends = next_sequence(sem), sem.now + lease
  local longest = sem.members == 0 and lease or math.max(sem.longest, lease)
  if longest ~= sem.longest then
    set(sem, 'longest', longest)
  end
  sem.members, sem.unwritten = sem.members + 1, sem.unwritten + 1
  if weight > 1 then
    set(sem, 'extra', sem.extra + weight - 1)
    sem.changed['w:' .. id] = weight
  end
  sem.writes[#sem.writes + 1] = ends
  sem.writes[#sem.writes + 1] = id
  sem.granted[id] = {token, ends}
  need_until(sem, ends)
end

-- Starts the lease of a permit that is held anew; answers its new end. `write_permits` must follow.
local function renew(sem, id, lease)
  local ends = sem.now + lease
  if lease > sem.longest then
    set(sem, 'longest', lease)
  end
  sem.writes[#sem.writes + 1] = ends
  sem.writes[#sem.writes + 1] = id
  need_until(sem, ends)
  return ends
end

local function write_permits(sem)
  if #sem.writes > 0 then
    -- A key that this call creates (its last member may just have left) has no expiry yet.
    sem.new_permits = sem.new_permits or sem.members == sem.unwritten
    sem.unwritten = 0
    call_in_chunks('ZADD', PERMITS, sem.writes)
    sem.writes = {}
    remove_retired(sem)
  end
end

-- When the next lease ends, in ms from now, for those who wait: 0 asks for `wake` at once because
-- the script stopped at a bound, -1 says that there is nothing to wait for.
local function wake_in(sem, is_waiting)
  if sem.more then
    return 0
  end
  if not is_waiting or sem.members == 0 then
    return -1
  end
  local first = redis.call('ZRANGE', PERMITS, 0, 0, 'WITHSCORES')
  return first[2] and math.max(1, first[2] - sem.now) or -1
end

local LOOK_CHUNK = 100
local LOOK_BOUND = 1000 -- waiters that one script looks at at most

-- A waiter's record in `waiting`.
local function record(sem, weight, lease, liveness, wake, client)
  local heard_until = sem.now + liveness
  need_until(sem, heard_until)
  return table.concat({weight, lease, string.format('%.0f', heard_until), wake, client}, ' ')
end

-- Puts a request in the queue. `write_queue` must follow.
local function enqueue(sem, id, ticket, value)
  sem.new_queue = sem.new_queue or sem.queued == 0 or sem.waiting <= 0
  sem.queued = sem.queued + 1
  sem.tickets[#sem.tickets + 1] = ticket
  sem.tickets[#sem.tickets + 1] = id
  sem.records[#sem.records + 1] = id
  sem.records[#sem.records + 1] = value
end

-- Removes ids (at most 1,000) that are members of `queue`. The last ones are only noted as `left`.
local function leave_queue(sem, ids)
  if #ids == 0 then
    return
  end
  if #ids < sem.queued then
    redis.call('ZREM', QUEUE, unpack(ids))
    sem.waiting = sem.waiting - redis.call('HDEL', WAITING, unpack(ids))
  else
    redis.call('ZREM', QUEUE, '') -- as touch_permits does
    sem.left, sem.waiting = ids, 0
  end
  sem.queued = sem.queued - #ids
end

local function remove_left(sem)
  if #sem.left > 0 then
    redis.call('ZREM', QUEUE, unpack(sem.left))
    redis.call('HDEL', WAITING, unpack(sem.left))
    sem.left = {}
  end
end

local function write_queue(sem)
  if #sem.tickets > 0 then
    call_in_chunks('ZADD', QUEUE, sem.tickets)
    call_in_chunks('HSET', WAITING, sem.records)
    sem.tickets, sem.records = {}, {}
    remove_left(sem)
  end
end

-- The tickets of ids.
local function tickets_of(sem, ids)
  return scores_of(QUEUE, sem.queued, ids)
end

local function read_waiter(value)
  local weight, lease, heard_until, wake, client =
    string.match(value or '', '^(%d+) (%d+) (%d+) (%a+) (%S+)$')
  return {
    weight = tonumber(weight),
    lease = tonumber(lease),
    heard_until = tonumber(heard_until),
    wake = wake,
    client = client,
  }
end

-- Gives what is free to the queue, in its order, until its head does not fit. Waiters whose client
-- is gone, or was not heard of in time, leave the queue without a permit.
local function serve_queue(sem)
  -- Whether anybody listens at a waiter's address: a client that is gone is granted nothing. Where
  -- the server refuses to say, the client counts as there.
  local function is_listening(waiter)
    if waiter.wake == 'poll' then
      return true
    end
    local known = sem.listens[waiter.client]
    if known == nil then
      local count = waiter.wake == 'spublish' and 'SHARDNUMSUB' or 'NUMSUB'
      local answer = redis.pcall('PUBSUB', count, waiter.client)
      known = answer.err ~= nil or answer[2] ~= 0
      sem.listens[waiter.client] = known
    end
    return known
  end

  -- Has a waiter's client told of its grant, or with token 0 that it left the queue without one.
  -- `finish` must follow.
  local function tell(waiter, id, token, ends)
    if waiter.wake == 'poll' or sem.asking[id] then
      return
    end
    local message = sem.messages[waiter.client]
    if not message then
      local command = waiter.wake == 'spublish' and 'SPUBLISH' or 'PUBLISH'
      message = {command = command, lines = {string.match(PERMITS, '{(.*)}') or PERMITS}}
      sem.messages[waiter.client] = message
    end
    message.lines[#message.lines + 1] = string.format('%s %.0f %.0f', id, token, ends)
  end

  -- What the queue's head gets: true when it leaves the queue, false when it must wait.
  local function serve(id, waiter)
    local is_here = sem.asking[id]
      or (waiter.weight and waiter.heard_until >= sem.now and is_listening(waiter))
    if not is_here then
      return true
    end
    if not sem.runtime and waiter.weight > sem.limit then
      tell(waiter, id, 0, 0)
      return true
    end
    if not make_room(sem, waiter.weight) then
      return false
    end
    grant(sem, id, waiter.weight, waiter.lease)
    tell(waiter, id, unpack(sem.granted[id]))
    return true
  end

  local looked, blocked = 0, false
  while sem.queued > 0 and not blocked and make_room(sem, 1) do
    if looked >= LOOK_BOUND then
      sem.more = true
      break
    end
    local free = sem.limit - held(sem)
    local count = math.min(LOOK_CHUNK, sem.queued, math.max(free, looked))
    local ids = redis.call('ZRANGE', QUEUE, 0, count - 1)
    local values = redis.call('HMGET', WAITING, unpack(ids))
    local leaving = {}
    for i, id in ipairs(ids) do
      if not make_room(sem, 1) or not serve(id, read_waiter(values[i])) then
        blocked = true
        break
      end
      leaving[i] = id
    end
    leave_queue(sem, leaving)
    looked = looked + #ids
  end
  write_permits(sem)
end

-- Invariant S5: after each script the queue is empty, or its head does not fit.
local function hand_off(sem)
  if sem.queued > 0 and make_room(sem, 1) then
    serve_queue(sem)
  end
end

-- Ends a script: saves, and then tells the clients, one message each. A write that the server
-- refuses (too few replicas, no disk, no primary any more) ends the script before anybody is told.
local function finish(sem)
  save(sem)
  remove_retired(sem)
  remove_left(sem)
  for client, message in pairs(sem.messages) do
    redis.pcall(message.command, client, table.concat(message.lines, '\n'))
  end
end

local function check()
-- Checks of KEYS and ARGV. All of them run before the first write, so a call that is refused has
-- changed nothing. A check answers nil when all is well, else the error reply for the caller.

local function wrong(index, name, wanted)
  local got = ARGV[index]
  if got == nil then
    got = 'nothing'
  else
    got = '"' .. string.gsub(string.sub(got, 1, 40), '[^\32-\126]', '?') .. '"'
  end
  return redis.error_reply(
    'SEM_ARG ARGV[' .. index .. '] (' .. name .. ') must be ' .. wanted .. ', got ' .. got
  )
end

local function check_keys()
  if #KEYS ~= 4 then
    return redis.error_reply(
      'SEM_KEYS 4 keys are needed (permits, queue, waiting, state), got ' .. #KEYS
    )
  end
  -- The types of the keys tell too little: what does not exist has none.
  if not ARE_FOUR_KEYS then
    return redis.error_reply(
      'SEM_KEYS the 4 keys (permits, queue, waiting, state) must differ from each other'
    )
  end
end

local function check_count(count)
  if #ARGV ~= count then
    return redis.error_reply('SEM_ARG ' .. count .. ' arguments are needed, got ' .. #ARGV)
  end
end

-- After the first `fixed` arguments there must be 1 to 1,000 requests of `size` arguments each.
local function check_requests(fixed, size)
  local count = (#ARGV - fixed) / size
  if count < 1 or count > MAX_REQUESTS or count % 1 ~= 0 then
    return redis.error_reply(
      'SEM_ARG 1 to ' .. MAX_REQUESTS .. ' requests of ' .. size
      .. ' arguments must follow the first ' .. fixed .. ', got ' .. #ARGV .. ' in all'
    )
  end
end

local function check_integer(index, name, min, max)
  local text = ARGV[index]
  local number = text and #text <= 16 and string.find(text, '^%d+$') and tonumber(text)
  if not number or number < min or number > max then
    return wrong(index, name, string.format('an integer from %.0f to %.0f', min, max))
  end
end

-- Ids and client names travel in wake-up messages, which are split at white space.
local function check_word(index, name)
  local text = ARGV[index]
  if not text or text == '' or #text > MAX_ID or string.find(text, '[%s%c]') then
    return wrong(
      index, name, '1 to ' .. MAX_ID .. ' bytes without white space or control characters'
    )
  end
end

-- An id that stands twice in a call has no single answer.
local function check_id(index, seen)
  local id = ARGV[index]
  if seen[id] then
    return wrong(index, 'id', 'given once in a call')
  end
  seen[id] = true
  -- '+' begins the names of the marks that `limit add` keeps among the permits.
  if id and string.sub(id, 1, 1) == '+' then
    return wrong(index, 'id', 'an id that does not begin with "+"')
  end
  return check_word(index, 'id')
end

-- How the client hears of a hand-off.
local function check_wake(index)
  local wake = ARGV[index]
  if wake ~= 'publish' and wake ~= 'spublish' and wake ~= 'poll' then
    return wrong(index, 'wake', '"publish", "spublish" or "poll"')
  end
end
  local function check_request(index, seen)
    local place = ARGV[index + 3]
    return check_id(index, seen)
      or check_integer(index + 1, 'weight', 1, MAX_COUNT)
      or check_integer(index + 2, 'lease', 1, MAX_LEASE)
      or (place ~= 'try' and place ~= 'wait' and check_integer(index + 3, 'place', 1, MAX_SEQUENCE)
        and wrong(index + 3, 'place', '"try", "wait" or a ticket'))
  end

  local kind = ARGV[1]
  local refusal = check_keys()
    or (kind ~= 'declared' and kind ~= 'initial' and wrong(1, 'kind', '"declared" or "initial"'))
    or check_integer(2, 'limit', 0, MAX_COUNT)
    or check_word(3, 'client')
    or check_wake(4)
    or check_integer(5, 'liveness', 1, MAX_LEASE)
    or check_requests(FIXED, SIZE)
  local seen, index = {}, FIXED + 1
  while not refusal and index <= #ARGV do
    refusal = check_request(index, seen)
    index = index + SIZE
  end
  return refusal
end

local function list_requests()
  local list, ids = {}, {}
  for index = FIXED + 1, #ARGV, SIZE do
    list[#list + 1] = {
      index = index,
      id = ARGV[index],
      weight = tonumber(ARGV[index + 1]),
      lease = tonumber(ARGV[index + 2]),
      place = ARGV[index + 3],
    }
    ids[#ids + 1] = ARGV[index]
  end
  return list, ids
end

-- Marks the requests that hold a permit, and those whose lease has ended.
local function find_permits(sem, requests, ids)
  local ends = ends_of(sem, ids)
  for i, request in ipairs(requests) do
    request.holds = ends[i] and ends[i] > sem.now
    request.ended = ends[i] and not request.holds
  end
end

local function remove_ended(sem, requests)
  local ended = {}
  for _, request in ipairs(requests) do
    ended[#ended + 1] = request.ended and request.id or nil
  end
  remove_permits(sem, ended)
end

local function check_weights(sem, requests)
  if sem.runtime then
    return
  end
  for _, request in ipairs(requests) do
    if request.weight > sem.limit and not request.holds then
      return redis.error_reply(string.format(
        'SEM_TOO_HEAVY ARGV[%d] (weight) is %.0f, the limit is %.0f',
        request.index + 1, request.weight, sem.limit
      ))
    end
  end
end

local function record_of(sem, request)
  return record(sem, request.weight, request.lease, tonumber(ARGV[5]), ARGV[4], ARGV[3])
end

-- Finds the requests that are queued, and counts them as heard of now.
local function find_queued(sem, requests, ids)
  local tickets, heard = tickets_of(sem, ids), {}
  for i, request in ipairs(requests) do
    sem.asking[request.id] = true
    if tickets[i] then
      request.ticket = tickets[i]
      heard[#heard + 1] = request.id
      heard[#heard + 1] = record_of(sem, request)
    end
  end
  if #heard > 0 then
    call_in_chunks('HSET', WAITING, heard)
    sem.new_queue = sem.new_queue or sem.waiting <= 0
  end
end

-- A ticket is believed when it can have been given: a waiter that comes back gets its old place,
-- which may be in front of others.
local function ticket_of(sem, request)
  local ticket = tonumber(request.place)
  if ticket and ticket <= sem.sequence then
    sem.reordered = true
    return ticket
  end
  return next_sequence(sem)
end

-- Decides on one request, after the queue was served.
local function decide(sem, request)
  local id = request.id
  if sem.granted[id] then
    return
  end
  if request.holds then
    sem.granted[id] = {next_sequence(sem), renew(sem, id, request.lease)}
  elseif request.ticket then
    request.queued = request.ticket
  elseif sem.queued == 0 and make_room(sem, request.weight) then
    grant(sem, id, request.weight, request.lease)
  elseif request.place ~= 'try' then
    request.queued = ticket_of(sem, request)
    enqueue(sem, id, request.queued, record_of(sem, request))
    request.position = sem.queued
  end
end

local function answer(sem, requests)
  local reply, waits = {sem.now, 0}, false
  for _, request in ipairs(requests) do
    local granted = sem.granted[request.id]
    local first, second, third = 0, 0, 0
    if granted then
      first, second, third = 1, granted[1], granted[2]
    elseif request.queued then
      waits = true
      if sem.reordered or not request.position then
        request.position = redis.call('ZRANK', QUEUE, request.id) + 1
      end
      first, second, third = 2, request.queued, request.position
    end
    reply[#reply + 1] = first
    reply[#reply + 1] = second
    reply[#reply + 1] = third
  end
  reply[2] = wake_in(sem, waits)
  return reply
end

local function acquire()
  local sem, refusal = open(not plain_ids and check() or nil)
  if refusal then
    return refusal
  end
  local has_limit = sem.declared or sem.runtime
  if not has_limit then
    sem.limit = tonumber(ARGV[2])
    sem.runtime = ARGV[1] == 'initial' and sem.limit or nil
  end
  local list, ids = list_requests()
  find_permits(sem, list, ids)
  local too_heavy = check_weights(sem, list)
  if too_heavy then
    return too_heavy
  end

  repair(sem)
  if not has_limit and sem.runtime then
    sem.runtime = nil
    set_runtime(sem, sem.limit)
  elseif not has_limit then
    set_declared(sem, sem.limit)
  end
  remove_ended(sem, list)
  find_queued(sem, list, ids)
  hand_off(sem)
  for _, request in ipairs(list) do
    decide(sem, request)
  end
  write_permits(sem)
  write_queue(sem)
  if sem.reordered then
    hand_off(sem)
  end
  local reply = answer(sem, list)
  finish(sem)
  return reply
end

return acquire()
end,
}

redis.register_function{
  function_name = 'sem_inspect',
  flags = {'no-writes'},
  callback = function(KEYS, ARGV)
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
-- Checks of KEYS and ARGV. All of them run before the first write, so a call that is refused has
-- changed nothing. A check answers nil when all is well, else the error reply for the caller.
-- Names and bounds that all scripts share.

local PERMITS, QUEUE, WAITING, STATE = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local ARE_FOUR_KEYS = #KEYS == 4
  and PERMITS ~= QUEUE and PERMITS ~= WAITING and PERMITS ~= STATE
  and QUEUE ~= WAITING and QUEUE ~= STATE and WAITING ~= STATE

-- `version` in `state`. The quick ways rely on it: LIGHT says that a limit is in force, all permits
-- weigh 1 and no mark is kept, PLAIN that the queue is empty, too. Otherwise it is VERSION.
local VERSION, LIGHT, PLAIN = '1', '1 light', '1 plain'

local ALL = 3 -- alone in a reply to several requests: one answer for all of them

local MAX_REQUESTS = 1000
local MAX_COUNT = 4294967295 -- a limit or a weight: an unsigned 32-bit number
local MAX_LEASE = 604800000 -- seven days in ms
local MAX_SEQUENCE = 9007199254740991 -- the largest integer that a double holds exactly
local MAX_ID = 256 -- bytes

local function wrong(index, name, wanted)
  local got = ARGV[index]
  if got == nil then
    got = 'nothing'
  else
    got = '"' .. string.gsub(string.sub(got, 1, 40), '[^\32-\126]', '?') .. '"'
  end
  return redis.error_reply(
    'SEM_ARG ARGV[' .. index .. '] (' .. name .. ') must be ' .. wanted .. ', got ' .. got
  )
end

local function check_keys()
  if #KEYS ~= 4 then
    return redis.error_reply(
      'SEM_KEYS 4 keys are needed (permits, queue, waiting, state), got ' .. #KEYS
    )
  end
  -- The types of the keys tell too little: what does not exist has none.
  if not ARE_FOUR_KEYS then
    return redis.error_reply(
      'SEM_KEYS the 4 keys (permits, queue, waiting, state) must differ from each other'
    )
  end
end

local function check_count(count)
  if #ARGV ~= count then
    return redis.error_reply('SEM_ARG ' .. count .. ' arguments are needed, got ' .. #ARGV)
  end
end

-- After the first `fixed` arguments there must be 1 to 1,000 requests of `size` arguments each.
local function check_requests(fixed, size)
  local count = (#ARGV - fixed) / size
  if count < 1 or count > MAX_REQUESTS or count % 1 ~= 0 then
    return redis.error_reply(
      'SEM_ARG 1 to ' .. MAX_REQUESTS .. ' requests of ' .. size
      .. ' arguments must follow the first ' .. fixed .. ', got ' .. #ARGV .. ' in all'
    )
  end
end

local function check_integer(index, name, min, max)
  local text = ARGV[index]
  local number = text and #text <= 16 and string.find(text, '^%d+$') and tonumber(text)
  if not number or number < min or number > max then
    return wrong(index, name, string.format('an integer from %.0f to %.0f', min, max))
  end
end

-- Ids and client names travel in wake-up messages, which are split at white space.
local function check_word(index, name)
  local text = ARGV[index]
  if not text or text == '' or #text > MAX_ID or string.find(text, '[%s%c]') then
    return wrong(
      index, name, '1 to ' .. MAX_ID .. ' bytes without white space or control characters'
    )
  end
end

-- An id that stands twice in a call has no single answer.
local function check_id(index, seen)
  local id = ARGV[index]
  if seen[id] then
    return wrong(index, 'id', 'given once in a call')
  end
  seen[id] = true
  -- '+' begins the names of the marks that `limit add` keeps among the permits.
  if id and string.sub(id, 1, 1) == '+' then
    return wrong(index, 'id', 'an id that does not begin with "+"')
  end
  return check_word(index, 'id')
end

-- How the client hears of a hand-off.
local function check_wake(index)
  local wake = ARGV[index]
  if wake ~= 'publish' and wake ~= 'spublish' and wake ~= 'poll' then
    return wrong(index, 'wake', '"publish", "spublish" or "poll"')
  end
end
-- The queue: requests in the order of their tickets, and the hand-off to its head.
-- Permits: count them, purge those whose lease ended, grant and remove them.
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

local PURGE_CHUNK = 1000
local PURGE_BOUND = 2000 -- ended leases that one script removes at most, when it needs room

local function held(sem)
  return sem.members - sem.marks + sem.extra
end

-- Takes members that have left `permits` out of the count. Answers the weight of each by its id.
local function uncount(sem, ids)
  sem.members = sem.members - #ids
  local weights, marks = {}, 0
  for _, id in ipairs(ids) do
    if sem.marks > 0 and string.sub(id, 1, 1) == '+' then
      marks = marks + 1
    end
    weights[id] = 1
  end
  if marks > 0 then
    -- Marks made before a loss of `state` are not in its number.
    set(sem, 'marks', math.max(0, sem.marks - marks))
  end
  if sem.extra > 0 then
    local fields, known, extra = {}, {}, 0
    for i, id in ipairs(ids) do
      fields[i] = 'w:' .. id
    end
    for i, weight in ipairs(redis.call('HMGET', STATE, unpack(fields))) do
      if weight then
        weights[ids[i]] = tonumber(weight)
        extra = extra + weight - 1
        known[#known + 1] = fields[i]
      end
    end
    if #known > 0 then
      redis.call('HDEL', STATE, unpack(known))
      set(sem, 'extra', sem.extra - extra)
    end
  end
  return weights
end

-- The scores of ids (at most 1,000) in a sorted set of so many members, false where there is none.
local function scores_of(key, members, ids)
  local scores = {}
  if members > 0 then
    scores = redis.call('ZMSCORE', key, unpack(ids))
  end
  for i = 1, #ids do
    scores[i] = tonumber(scores[i]) or false
  end
  return scores
end

-- When the leases of ids end.
local function ends_of(sem, ids)
  return scores_of(PERMITS, sem.members, ids)
end

-- Removes nothing: no id is empty. But a server that is out of memory runs a script to its end if
-- its first write may free some.
local function touch_permits()
  redis.call('ZREM', PERMITS, '')
end

-- Removes ids (at most 1,000) that are members of `permits`, or retires them; answers their weights
-- by id.
local function remove_permits(sem, ids)
  if #ids == 0 then
    return {}
  end
  if #ids < sem.members - sem.unwritten then
    redis.call('ZREM', PERMITS, unpack(ids))
  else
    touch_permits()
    sem.retired = ids
  end
  return uncount(sem, ids)
end

-- One that was granted anew meanwhile stays.
local function remove_retired(sem)
  local ids = {}
  for _, id in ipairs(sem.retired) do
    ids[#ids + 1] = not sem.granted[id] and id or nil
  end
  if #ids > 0 then
    redis.call('ZREM', PERMITS, unpack(ids))
  end
  sem.retired = {}
end

-- Members of `permits` whose leases end between these, at most one chunk.
local function chunk_between(sem, from, to)
  if sem.members == sem.unwritten then
    return {}
  end
  return redis.call('ZRANGEBYSCORE', PERMITS, from, to, 'LIMIT', 0, PURGE_CHUNK)
end

-- Removes one chunk of ended leases; answers whether there may be more.
local function purge_chunk(sem)
  local ended = chunk_between(sem, '-inf', sem.now)
  remove_permits(sem, ended)
  sem.purged = (sem.purged or 0) + #ended
  return #ended == PURGE_CHUNK
end

-- No lease can truly end later than the longest lease from now. One that seems to was given before
-- the server's clock stepped back; without a cut its dead holder would keep it longer by the step.
local function cut_leases(sem)
  local last = sem.now + sem.longest
  local beyond = chunk_between(sem, '(' .. last, '+inf')
  local cut = {}
  for _, id in ipairs(beyond) do
    cut[#cut + 1] = last
    cut[#cut + 1] = id
  end
  if #cut > 0 then
    call_in_chunks('ZADD', PERMITS, cut)
  end
  sem.more = sem.more or #beyond == PURGE_CHUNK
end

-- Whether `weight` fits, after purging as far as it must. Leases are looked at only while room is
-- short, and once in a script: time stands still inside it.
local function make_room(sem, weight)
  while held(sem) + weight > sem.limit and not sem.all_purged do
    if (sem.purged or 0) >= PURGE_BOUND then
      sem.more = true
      return false
    end
    if not purge_chunk(sem) then
      sem.all_purged = true
      cut_leases(sem)
    end
  end
  return held(sem) + weight <= sem.limit
end

-- Counts a permit as granted. `write_permits` must follow.
local function grant(sem, id, weight, lease)
  local token, ends = next_sequence(sem), sem.now + lease
  local longest = sem.members == 0 and lease or math.max(sem.longest, lease)
  if longest ~= sem.longest then
    set(sem, 'longest', longest)
  end
  sem.members, sem.unwritten = sem.members + 1, sem.unwritten + 1
  if weight > 1 then
    set(sem, 'extra', sem.extra + weight - 1)
    sem.changed['w:' .. id] = weight
  end
  sem.writes[#sem.writes + 1] = ends
  sem.writes[#sem.writes + 1] = id
  sem.granted[id] = {token, ends}
  need_until(sem, ends)
end

-- Starts the lease of a permit that is held anew; answers its new end. `write_permits` must follow.
local function renew(sem, id, lease)
  local ends = sem.now + lease
  if lease > sem.longest then
    set(sem, 'longest', lease)
  end
  sem.writes[#sem.writes + 1] = ends
  sem.writes[#sem.writes + 1] = id
  need_until(sem, ends)
  return ends
end

local function write_permits(sem)
  if #sem.writes > 0 then
    -- A key that this call creates (its last member may just have left) has no expiry yet.
    sem.new_permits = sem.new_permits or sem.members == sem.unwritten
    sem.unwritten = 0
    call_in_chunks('ZADD', PERMITS, sem.writes)
    sem.writes = {}
    remove_retired(sem)
  end
end

-- When the next lease ends, in ms from now, for those who wait: 0 asks for `wake` at once because
-- the script stopped at a bound, -1 says that there is nothing to wait for.
local function wake_in(sem, is_waiting)
  if sem.more then
    return 0
  end
  if not is_waiting or sem.members == 0 then
    return -1
  end
  local first = redis.call('ZRANGE', PERMITS, 0, 0, 'WITHSCORES')
  return first[2] and math.max(1, first[2] - sem.now) or -1
end

local LOOK_CHUNK = 100
local LOOK_BOUND = 1000 -- waiters that one script looks at at most

-- A waiter's record in `waiting`.
local function record(sem, weight, lease, liveness, wake, client)
  local heard_until = sem.now + liveness
  need_until(sem, heard_until)
  return table.concat({weight, lease, string.format('%.0f', heard_until), wake, client}, ' ')
end

-- Puts a request in the queue. `write_queue` must follow.
local function enqueue(sem, id, ticket, value)
  sem.new_queue = sem.new_queue or sem.queued == 0 or sem.waiting <= 0
  sem.queued = sem.queued + 1
  sem.tickets[#sem.tickets + 1] = ticket
  sem.tickets[#sem.tickets + 1] = id
  sem.records[#sem.records + 1] = id
  sem.records[#sem.records + 1] = value
end

-- Removes ids (at most 1,000) that are members of `queue`. The last ones are only noted as `left`.
local function leave_queue(sem, ids)
  if #ids == 0 then
    return
  end
  if #ids < sem.queued then
    redis.call('ZREM', QUEUE, unpack(ids))
    sem.waiting = sem.waiting - redis.call('HDEL', WAITING, unpack(ids))
  else
    redis.call('ZREM', QUEUE, '') -- as touch_permits does
    sem.left, sem.waiting = ids, 0
  end
  sem.queued = sem.queued - #ids
end

local function remove_left(sem)
  if #sem.left > 0 then
    redis.call('ZREM', QUEUE, unpack(sem.left))
    redis.call('HDEL', WAITING, unpack(sem.left))
    sem.left = {}
  end
end

local function write_queue(sem)
  if #sem.tickets > 0 then
    call_in_chunks('ZADD', QUEUE, sem.tickets)
    call_in_chunks('HSET', WAITING, sem.records)
    sem.tickets, sem.records = {}, {}
    remove_left(sem)
  end
end

-- The tickets of ids.
local function tickets_of(sem, ids)
  return scores_of(QUEUE, sem.queued, ids)
end

local function read_waiter(value)
  local weight, lease, heard_until, wake, client =
    string.match(value or '', '^(%d+) (%d+) (%d+) (%a+) (%S+)$')
  return {
    weight = tonumber(weight),
    lease = tonumber(lease),
    heard_until = tonumber(heard_until),
    wake = wake,
    client = client,
  }
end

-- Gives what is free to the queue, in its order, until its head does not fit. Waiters whose client
-- is gone, or was not heard of in time, leave the queue without a permit.
local function serve_queue(sem)
  -- Whether anybody listens at a waiter's address: a client that is gone is granted nothing. Where
  -- the server refuses to say, the client counts as there.
  local function is_listening(waiter)
    if waiter.wake == 'poll' then
      return true
    end
    local known = sem.listens[waiter.client]
    if known == nil then
      local count = waiter.wake == 'spublish' and 'SHARDNUMSUB' or 'NUMSUB'
      local answer = redis.pcall('PUBSUB', count, waiter.client)
      known = answer.err ~= nil or answer[2] ~= 0
      sem.listens[waiter.client] = known
    end
    return known
  end

  -- Has a waiter's client told of its grant, or with token 0 that it left the queue without one.
  -- `finish` must follow.
  local function tell(waiter, id, token, ends)
    if waiter.wake == 'poll' or sem.asking[id] then
      return
    end
    local message = sem.messages[waiter.client]
    if not message then
      local command = waiter.wake == 'spublish' and 'SPUBLISH' or 'PUBLISH'
      message = {command = command, lines = {string.match(PERMITS, '{(.*)}') or PERMITS}}
      sem.messages[waiter.client] = message
    end
    message.lines[#message.lines + 1] = string.format('%s %.0f %.0f', id, token, ends)
  end

  -- What the queue's head gets: true when it leaves the queue, false when it must wait.
  local function serve(id, waiter)
    local is_here = sem.asking[id]
      or (waiter.weight and waiter.heard_until >= sem.now and is_listening(waiter))
    if not is_here then
      return true
    end
    if not sem.runtime and waiter.weight > sem.limit then
      tell(waiter, id, 0, 0)
      return true
    end
    if not make_room(sem, waiter.weight) then
      return false
    end
    grant(sem, id, waiter.weight, waiter.lease)
    tell(waiter, id, unpack(sem.granted[id]))
    return true
  end

  local looked, blocked = 0, false
  while sem.queued > 0 and not blocked and make_room(sem, 1) do
    if looked >= LOOK_BOUND then
      sem.more = true
      break
    end
    local free = sem.limit - held(sem)
    local count = math.min(LOOK_CHUNK, sem.queued, math.max(free, looked))
    local ids = redis.call('ZRANGE', QUEUE, 0, count - 1)
    local values = redis.call('HMGET', WAITING, unpack(ids))
    local leaving = {}
    for i, id in ipairs(ids) do
      if not make_room(sem, 1) or not serve(id, read_waiter(values[i])) then
        blocked = true
        break
      end
      leaving[i] = id
    end
    leave_queue(sem, leaving)
    looked = looked + #ids
  end
  write_permits(sem)
end

-- Invariant S5: after each script the queue is empty, or its head does not fit.
local function hand_off(sem)
  if sem.queued > 0 and make_room(sem, 1) then
    serve_queue(sem)
  end
end

-- Ends a script: saves, and then tells the clients, one message each. A write that the server
-- refuses (too few replicas, no disk, no primary any more) ends the script before anybody is told.
local function finish(sem)
  save(sem)
  remove_retired(sem)
  remove_left(sem)
  for client, message in pairs(sem.messages) do
    redis.pcall(message.command, client, table.concat(message.lines, '\n'))
  end
end

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
-- Checks of KEYS and ARGV. All of them run before the first write, so a call that is refused has
-- changed nothing. A check answers nil when all is well, else the error reply for the caller.
-- Names and bounds that all scripts share.

local PERMITS, QUEUE, WAITING, STATE = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local ARE_FOUR_KEYS = #KEYS == 4
  and PERMITS ~= QUEUE and PERMITS ~= WAITING and PERMITS ~= STATE
  and QUEUE ~= WAITING and QUEUE ~= STATE and WAITING ~= STATE

-- `version` in `state`. The quick ways rely on it: LIGHT says that a limit is in force, all permits
-- weigh 1 and no mark is kept, PLAIN that the queue is empty, too. Otherwise it is VERSION.
local VERSION, LIGHT, PLAIN = '1', '1 light', '1 plain'

local ALL = 3 -- alone in a reply to several requests: one answer for all of them

local MAX_REQUESTS = 1000
local MAX_COUNT = 4294967295 -- a limit or a weight: an unsigned 32-bit number
local MAX_LEASE = 604800000 -- seven days in ms
local MAX_SEQUENCE = 9007199254740991 -- the largest integer that a double holds exactly
local MAX_ID = 256 -- bytes

local function wrong(index, name, wanted)
  local got = ARGV[index]
  if got == nil then
    got = 'nothing'
  else
    got = '"' .. string.gsub(string.sub(got, 1, 40), '[^\32-\126]', '?') .. '"'
  end
  return redis.error_reply(
    'SEM_ARG ARGV[' .. index .. '] (' .. name .. ') must be ' .. wanted .. ', got ' .. got
  )
end

local function check_keys()
  if #KEYS ~= 4 then
    return redis.error_reply(
      'SEM_KEYS 4 keys are needed (permits, queue, waiting, state), got ' .. #KEYS
    )
  end
  -- The types of the keys tell too little: what does not exist has none.
  if not ARE_FOUR_KEYS then
    return redis.error_reply(
      'SEM_KEYS the 4 keys (permits, queue, waiting, state) must differ from each other'
    )
  end
end

local function check_count(count)
  if #ARGV ~= count then
    return redis.error_reply('SEM_ARG ' .. count .. ' arguments are needed, got ' .. #ARGV)
  end
end

-- After the first `fixed` arguments there must be 1 to 1,000 requests of `size` arguments each.
local function check_requests(fixed, size)
  local count = (#ARGV - fixed) / size
  if count < 1 or count > MAX_REQUESTS or count % 1 ~= 0 then
    return redis.error_reply(
      'SEM_ARG 1 to ' .. MAX_REQUESTS .. ' requests of ' .. size
      .. ' arguments must follow the first ' .. fixed .. ', got ' .. #ARGV .. ' in all'
    )
  end
end

local function check_integer(index, name, min, max)
  local text = ARGV[index]
  local number = text and #text <= 16 and string.find(text, '^%d+$') and tonumber(text)
  if not number or number < min or number > max then
    return wrong(index, name, string.format('an integer from %.0f to %.0f', min, max))
  end
end

-- Ids and client names travel in wake-up messages, which are split at white space.
local function check_word(index, name)
  local text = ARGV[index]
  if not text or text == '' or #text > MAX_ID or string.find(text, '[%s%c]') then
    return wrong(
      index, name, '1 to ' .. MAX_ID .. ' bytes without white space or control characters'
    )
  end
end

-- An id that stands twice in a call has no single answer.
local function check_id(index, seen)
  local id = ARGV[index]
  if seen[id] then
    return wrong(index, 'id', 'given once in a call')
  end
  seen[id] = true
  -- '+' begins the names of the marks that `limit add` keeps among the permits.
  if id and string.sub(id, 1, 1) == '+' then
    return wrong(index, 'id', 'an id that does not begin with "+"')
  end
  return check_word(index, 'id')
end

-- How the client hears of a hand-off.
local function check_wake(index)
  local wake = ARGV[index]
  if wake ~= 'publish' and wake ~= 'spublish' and wake ~= 'poll' then
    return wrong(index, 'wake', '"publish", "spublish" or "poll"')
  end
end
-- The queue: requests in the order of their tickets, and the hand-off to its head.
-- Permits: count them, purge those whose lease ended, grant and remove them.
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

local PURGE_CHUNK = 1000
local PURGE_BOUND = 2000 -- ended leases that one script removes at most, when it needs room

local function held(sem)
  return sem.members - sem.marks + sem.extra
end

-- Takes members that have left `permits` out of the count. Answers the weight of each by its id.
local function uncount(sem, ids)
  sem.members = sem.members - #ids
  local weights, marks = {}, 0
  for _, id in ipairs(ids) do
    if sem.marks > 0 and string.sub(id, 1, 1) == '+' then
      marks = marks + 1
    end
    weights[id] = 1
  end
  if marks > 0 then
    -- Marks made before a loss of `state` are not in its number.
    set(sem, 'marks', math.max(0, sem.marks - marks))
  end
  if sem.extra > 0 then
    local fields, known, extra = {}, {}, 0
    for i, id in ipairs(ids) do
      fields[i] = 'w:' .. id
    end
    for i, weight in ipairs(redis.call('HMGET', STATE, unpack(fields))) do
      if weight then
        weights[ids[i]] = tonumber(weight)
        extra = extra + weight - 1
        known[#known + 1] = fields[i]
      end
    end
    if #known > 0 then
      redis.call('HDEL', STATE, unpack(known))
      set(sem, 'extra', sem.extra - extra)
    end
  end
  return weights
end

-- The scores of ids (at most 1,000) in a sorted set of so many members, false where there is none.
local function scores_of(key, members, ids)
  local scores = {}
  if members > 0 then
    scores = redis.call('ZMSCORE', key, unpack(ids))
  end
  for i = 1, #ids do
    scores[i] = tonumber(scores[i]) or false
  end
  return scores
end

-- When the leases of ids end.
local function ends_of(sem, ids)
  return scores_of(PERMITS, sem.members, ids)
end

-- Removes nothing: no id is empty. But a server that is out of memory runs a script to its end if
-- its first write may free some.
local function touch_permits()
  redis.call('ZREM', PERMITS, '')
end

-- Removes ids (at most 1,000) that are members of `permits`, or retires them; answers their weights
-- by id.
local function remove_permits(sem, ids)
  if #ids == 0 then
    return {}
  end
  if #ids < sem.members - sem.unwritten then
    redis.call('ZREM', PERMITS, unpack(ids))
  else
    touch_permits()
    sem.retired = ids
  end
  return uncount(sem, ids)
end

-- One that was granted anew meanwhile stays.
local function remove_retired(sem)
  local ids = {}
  for _, id in ipairs(sem.retired) do
    ids[#ids + 1] = not sem.granted[id] and id or nil
  end
  if #ids > 0 then
    redis.call('ZREM', PERMITS, unpack(ids))
  end
  sem.retired = {}
end

-- Members of `permits` whose leases end between these, at most one chunk.
local function chunk_between(sem, from, to)
  if sem.members == sem.unwritten then
    return {}
  end
  return redis.call('ZRANGEBYSCORE', PERMITS, from, to, 'LIMIT', 0, PURGE_CHUNK)
end

-- Removes one chunk of ended leases; answers whether there may be more.
local function purge_chunk(sem)
  local ended = chunk_between(sem, '-inf', sem.now)
  remove_permits(sem, ended)
  sem.purged = (sem.purged or 0) + #ended
  return #ended == PURGE_CHUNK
end

-- No lease can truly end later than the longest lease from now. One that seems to was given before
-- the server's clock stepped back; without a cut its dead holder would keep it longer by the step.
local function cut_leases(sem)
  local last = sem.now + sem.longest
  local beyond = chunk_between(sem, '(' .. last, '+inf')
  local cut = {}
  for _, id in ipairs(beyond) do
    cut[#cut + 1] = last
    cut[#cut + 1] = id
  end
  if #cut > 0 then
    call_in_chunks('ZADD', PERMITS, cut)
  end
  sem.more = sem.more or #beyond == PURGE_CHUNK
end

-- Whether `weight` fits, after purging as far as it must. Leases are looked at only while room is
-- short, and once in a script: time stands still inside it.
local function make_room(sem, weight)
  while held(sem) + weight > sem.limit and not sem.all_purged do
    if (sem.purged or 0) >= PURGE_BOUND then
      sem.more = true
      return false
    end
    if not purge_chunk(sem) then
      sem.all_purged = true
      cut_leases(sem)
    end
  end
  return held(sem) + weight <= sem.limit
end

-- Counts a permit as granted. `write_permits` must follow.
local function grant(sem, id, weight, lease)
  local token, ends = next_sequence(sem), sem.now + lease
  local longest = sem.members == 0 and lease or math.max(sem.longest, lease)
  if longest ~= sem.longest then
    set(sem, 'longest', longest)
  end
  sem.members, sem.unwritten = sem.members + 1, sem.unwritten + 1
  if weight > 1 then
    set(sem, 'extra', sem.extra + weight - 1)
    sem.changed['w:' .. id] = weight
  end
  sem.writes[#sem.writes + 1] = ends
  sem.writes[#sem.writes + 1] = id
  sem.granted[id] = {token, ends}
  need_until(sem, ends)
end

-- Starts the lease of a permit that is held anew; answers its new end. `write_permits` must follow.
local function renew(sem, id, lease)
  local ends = sem.now + lease
  if lease > sem.longest then
    set(sem, 'longest', lease)
  end
  sem.writes[#sem.writes + 1] = ends
  sem.writes[#sem.writes + 1] = id
  need_until(sem, ends)
  return ends
end

local function write_permits(sem)
  if #sem.writes > 0 then
    -- A key that this call creates (its last member may just have left) has no expiry yet.
    sem.new_permits = sem.new_permits or sem.members == sem.unwritten
    sem.unwritten = 0
    call_in_chunks('ZADD', PERMITS, sem.writes)
    sem.writes = {}
    remove_retired(sem)
  end
end

-- When the next lease ends, in ms from now, for those who wait: 0 asks for `wake` at once because
-- the script stopped at a bound, -1 says that there is nothing to wait for.
local function wake_in(sem, is_waiting)
  if sem.more then
    return 0
  end
  if not is_waiting or sem.members == 0 then
    return -1
  end
  local first = redis.call('ZRANGE', PERMITS, 0, 0, 'WITHSCORES')
  return first[2] and math.max(1, first[2] - sem.now) or -1
end

local LOOK_CHUNK = 100
local LOOK_BOUND = 1000 -- waiters that one script looks at at most

-- A waiter's record in `waiting`.
local function record(sem, weight, lease, liveness, wake, client)
  local heard_until = sem.now + liveness
  need_until(sem, heard_until)
  return table.concat({weight, lease, string.format('%.0f', heard_until), wake, client}, ' ')
end

-- Puts a request in the queue. `write_queue` must follow.
local function enqueue(sem, id, ticket, value)
  sem.new_queue = sem.new_queue or sem.queued == 0 or sem.waiting <= 0
  sem.queued = sem.queued + 1
  sem.tickets[#sem.tickets + 1] = ticket
  sem.tickets[#sem.tickets + 1] = id
  sem.records[#sem.records + 1] = id
  sem.records[#sem.records + 1] = value
end

-- Removes ids (at most 1,000) that are members of `queue`. The last ones are only noted as `left`.
local function leave_queue(sem, ids)
  if #ids == 0 then
    return
  end
  if #ids < sem.queued then
    redis.call('ZREM', QUEUE, unpack(ids))
    sem.waiting = sem.waiting - redis.call('HDEL', WAITING, unpack(ids))
  else
    redis.call('ZREM', QUEUE, '') -- as touch_permits does
    sem.left, sem.waiting = ids, 0
  end
  sem.queued = sem.queued - #ids
end

local function remove_left(sem)
  if #sem.left > 0 then
    redis.call('ZREM', QUEUE, unpack(sem.left))
    redis.call('HDEL', WAITING, unpack(sem.left))
    sem.left = {}
  end
end

local function write_queue(sem)
  if #sem.tickets > 0 then
    call_in_chunks('ZADD', QUEUE, sem.tickets)
    call_in_chunks('HSET', WAITING, sem.records)
    sem.tickets, sem.records = {}, {}
    remove_left(sem)
  end
end

-- The tickets of ids.
local function tickets_of(sem, ids)
  return scores_of(QUEUE, sem.queued, ids)
end

local function read_waiter(value)
  local weight, lease, heard_until, wake, client =
    string.match(value or '', '^(%d+) (%d+) (%d+) (%a+) (%S+)$')
  return {
    weight = tonumber(weight),
    lease = tonumber(lease),
    heard_until = tonumber(heard_until),
    wake = wake,
    client = client,
  }
end

-- Gives what is free to the queue, in its order, until its head does not fit. Waiters whose client
-- is gone, or was not heard of in time, leave the queue without a permit.
local function serve_queue(sem)
  -- Whether anybody listens at a waiter's address: a client that is gone is granted nothing. Where
  -- the server refuses to say, the client counts as there.
  local function is_listening(waiter)
    if waiter.wake == 'poll' then
      return true
    end
    local known = sem.listens[waiter.client]
    if known == nil then
      local count = waiter.wake == 'spublish' and 'SHARDNUMSUB' or 'NUMSUB'
      local answer = redis.pcall('PUBSUB', count, waiter.client)
      known = answer.err ~= nil or answer[2] ~= 0
      sem.listens[waiter.client] = known
    end
    return known
  end

  -- Has a waiter's client told of its grant, or with token 0 that it left the queue without one.
  -- `finish` must follow.
  local function tell(waiter, id, token, ends)
    if waiter.wake == 'poll' or sem.asking[id] then
      return
    end
    local message = sem.messages[waiter.client]
    if not message then
      local command = waiter.wake == 'spublish' and 'SPUBLISH' or 'PUBLISH'
      message = {command = command, lines = {string.match(PERMITS, '{(.*)}') or PERMITS}}
      sem.messages[waiter.client] = message
    end
    message.lines[#message.lines + 1] = string.format('%s %.0f %.0f', id, token, ends)
  end

  -- What the queue's head gets: true when it leaves the queue, false when it must wait.
  local function serve(id, waiter)
    local is_here = sem.asking[id]
      or (waiter.weight and waiter.heard_until >= sem.now and is_listening(waiter))
    if not is_here then
      return true
    end
    if not sem.runtime and waiter.weight > sem.limit then
      tell(waiter, id, 0, 0)
      return true
    end
    if not make_room(sem, waiter.weight) then
      return false
    end
    grant(sem, id, waiter.weight, waiter.lease)
    tell(waiter, id, unpack(sem.granted[id]))
    return true
  end

  local looked, blocked = 0, false
  while sem.queued > 0 and not blocked and make_room(sem, 1) do
    if looked >= LOOK_BOUND then
      sem.more = true
      break
    end
    local free = sem.limit - held(sem)
    local count = math.min(LOOK_CHUNK, sem.queued, math.max(free, looked))
    local ids = redis.call('ZRANGE', QUEUE, 0, count - 1)
    local values = redis.call('HMGET', WAITING, unpack(ids))
    local leaving = {}
    for i, id in ipairs(ids) do
      if not make_room(sem, 1) or not serve(id, read_waiter(values[i])) then
        blocked = true
        break
      end
      leaving[i] = id
    end
    leave_queue(sem, leaving)
    looked = looked + #ids
  end
  write_permits(sem)
end

-- Invariant S5: after each script the queue is empty, or its head does not fit.
local function hand_off(sem)
  if sem.queued > 0 and make_room(sem, 1) then
    serve_queue(sem)
  end
end

-- Ends a script: saves, and then tells the clients, one message each. A write that the server
-- refuses (too few replicas, no disk, no primary any more) ends the script before anybody is told.
local function finish(sem)
  save(sem)
  remove_retired(sem)
  remove_left(sem)
  for client, message in pairs(sem.messages) do
    redis.pcall(message.command, client, table.concat(message.lines, '\n'))
  end
end

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
-- KEYS[3] waiting
-- KEYS[4] state
-- ARGV[1] client    1 to 256 bytes, no blank or control character: the channel of the client's
--                   wake-ups
-- ARGV[2] wake      "publish", "spublish" or "poll"
-- Reply             for each command that failed two strings: its name, the server's error
-- Errors            SEM_KEYS, SEM_ARG
-- Cost              O(1)
-- Flags             allow-oom
-- Checks of KEYS and ARGV. All of them run before the first write, so a call that is refused has
-- changed nothing. A check answers nil when all is well, else the error reply for the caller.
-- Names and bounds that all scripts share.

local PERMITS, QUEUE, WAITING, STATE = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local ARE_FOUR_KEYS = #KEYS == 4
  and PERMITS ~= QUEUE and PERMITS ~= WAITING and PERMITS ~= STATE
  and QUEUE ~= WAITING and QUEUE ~= STATE and WAITING ~= STATE

-- `version` in `state`. The quick ways rely on it: LIGHT says that a limit is in force, all permits
-- weigh 1 and no mark is kept, PLAIN that the queue is empty, too. Otherwise it is VERSION.
local VERSION, LIGHT, PLAIN = '1', '1 light', '1 plain'

local ALL = 3 -- alone in a reply to several requests: one answer for all of them

local MAX_REQUESTS = 1000
local MAX_COUNT = 4294967295 -- a limit or a weight: an unsigned 32-bit number
local MAX_LEASE = 604800000 -- seven days in ms
local MAX_SEQUENCE = 9007199254740991 -- the largest integer that a double holds exactly
local MAX_ID = 256 -- bytes

local function wrong(index, name, wanted)
  local got = ARGV[index]
  if got == nil then
    got = 'nothing'
  else
    got = '"' .. string.gsub(string.sub(got, 1, 40), '[^\32-\126]', '?') .. '"'
  end
  return redis.error_reply(
    'SEM_ARG ARGV[' .. index .. '] (' .. name .. ') must be ' .. wanted .. ', got ' .. got
  )
end

local function check_keys()
  if #KEYS ~= 4 then
    return redis.error_reply(
      'SEM_KEYS 4 keys are needed (permits, queue, waiting, state), got ' .. #KEYS
    )
  end
  -- The types of the keys tell too little: what does not exist has none.
  if not ARE_FOUR_KEYS then
    return redis.error_reply(
      'SEM_KEYS the 4 keys (permits, queue, waiting, state) must differ from each other'
    )
  end
end

local function check_count(count)
  if #ARGV ~= count then
    return redis.error_reply('SEM_ARG ' .. count .. ' arguments are needed, got ' .. #ARGV)
  end
end

-- After the first `fixed` arguments there must be 1 to 1,000 requests of `size` arguments each.
local function check_requests(fixed, size)
  local count = (#ARGV - fixed) / size
  if count < 1 or count > MAX_REQUESTS or count % 1 ~= 0 then
    return redis.error_reply(
      'SEM_ARG 1 to ' .. MAX_REQUESTS .. ' requests of ' .. size
      .. ' arguments must follow the first ' .. fixed .. ', got ' .. #ARGV .. ' in all'
    )
  end
end

local function check_integer(index, name, min, max)
  local text = ARGV[index]
  local number = text and #text <= 16 and string.find(text, '^%d+$') and tonumber(text)
  if not number or number < min or number > max then
    return wrong(index, name, string.format('an integer from %.0f to %.0f', min, max))
  end
end

-- Ids and client names travel in wake-up messages, which are split at white space.
local function check_word(index, name)
  local text = ARGV[index]
  if not text or text == '' or #text > MAX_ID or string.find(text, '[%s%c]') then
    return wrong(
      index, name, '1 to ' .. MAX_ID .. ' bytes without white space or control characters'
    )
  end
end

-- An id that stands twice in a call has no single answer.
local function check_id(index, seen)
  local id = ARGV[index]
  if seen[id] then
    return wrong(index, 'id', 'given once in a call')
  end
  seen[id] = true
  -- '+' begins the names of the marks that `limit add` keeps among the permits.
  if id and string.sub(id, 1, 1) == '+' then
    return wrong(index, 'id', 'an id that does not begin with "+"')
  end
  return check_word(index, 'id')
end

-- How the client hears of a hand-off.
local function check_wake(index)
  local wake = ARGV[index]
  if wake ~= 'publish' and wake ~= 'spublish' and wake ~= 'poll' then
    return wrong(index, 'wake', '"publish", "spublish" or "poll"')
  end
end

local function check()
  return check_keys()
    or check_count(2)
    or check_word(1, 'client')
    or check_wake(2)
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

local function probe()
  local refusal = check()
  if refusal then
    return refusal
  end
  -- What cleans up comes first: where it is refused nothing must be written.
  local failed = try({
    {'PEXPIREAT', STATE, 1},
    {'UNLINK', QUEUE},
    {'TIME'},
    {'HMGET', STATE, 'version'},
    {'HLEN', WAITING},
    {'ZCARD', PERMITS},
    {'ZMSCORE', QUEUE, 'nobody'},
    {'ZRANGE', PERMITS, 0, 0, 'WITHSCORES'},
    {'ZRANGEBYSCORE', PERMITS, '-inf', 0, 'LIMIT', 0, 1},
    {'ZCOUNT', PERMITS, '-inf', 0},
    {'ZRANK', QUEUE, 'nobody'},
    {'ZREM', PERMITS, 'nobody'},
    {'HDEL', WAITING, 'nobody'},
    {'PERSIST', STATE},
  })
  if #failed > 0 then
    return failed
  end
  local calls = {
    {'ZADD', PERMITS, 1, 'nobody'},
    {'HSET', STATE, 'version', '0'},
    {'UNLINK', PERMITS, STATE},
  }
  if ARGV[2] ~= 'poll' then
    calls[#calls + 1] = {'PUBSUB', ARGV[2] == 'spublish' and 'SHARDNUMSUB' or 'NUMSUB', ARGV[1]}
    -- The empty message: nobody was granted anything.
    calls[#calls + 1] = {ARGV[2] == 'spublish' and 'SPUBLISH' or 'PUBLISH', ARGV[1], ''}
  end
  return try(calls)
end

return probe()
end,
}

redis.register_function{
  function_name = 'sem_refresh',
  flags = {'allow-oom'},
  callback = function(KEYS, ARGV)
-- refresh: starts the lease of permits anew, if they are still held.
--
-- An ended lease is lost, also when nothing has purged it yet.
--
-- KEYS[1] permits   sorted set: permit id -> end of lease, ms on the server's clock
-- KEYS[2] queue     sorted set: request id -> ticket
-- KEYS[3] waiting   hash: request id -> weight, lease, heard until, wake, client
-- KEYS[4] state     hash: version, limits, last sequence number, weights above 1
-- ARGV[1+] requests 1 to 1000 times: id, lease
--   id              1 to 256 bytes, as given to `acquire`
--   lease           1 to 604800000 ms from now
-- Reply             server time (ms), wake_in, then for each id one integer:
--   end             the new end of lease, ms on the server's clock
--   0               lost
--   wake_in         0: call `wake` at once, -1 no need
-- Errors            SEM_KEYS, SEM_ARG, SEM_TYPE, SEM_VERSION
-- Cost              O(log N) for each id and each waiter served. Commands for one id:
--   8               held
-- Flags             allow-oom
-- Whether these are ids as nearly all are: printable ASCII without "+", and each given once. Cheap,
-- for most calls; what else may be right, and what is wrong, is for lib/arguments.lua to say.
-- Names and bounds that all scripts share.

local PERMITS, QUEUE, WAITING, STATE = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local ARE_FOUR_KEYS = #KEYS == 4
  and PERMITS ~= QUEUE and PERMITS ~= WAITING and PERMITS ~= STATE
  and QUEUE ~= WAITING and QUEUE ~= STATE and WAITING ~= STATE

-- `version` in `state`. The quick ways rely on it: LIGHT says that a limit is in force, all permits
-- weigh 1 and no mark is kept, PLAIN that the queue is empty, too. Otherwise it is VERSION.
local VERSION, LIGHT, PLAIN = '1', '1 light', '1 plain'

local ALL = 3 -- alone in a reply to several requests: one answer for all of them

local MAX_REQUESTS = 1000
local MAX_COUNT = 4294967295 -- a limit or a weight: an unsigned 32-bit number
local MAX_LEASE = 604800000 -- seven days in ms
local MAX_SEQUENCE = 9007199254740991 -- the largest integer that a double holds exactly
local MAX_ID = 256 -- bytes

local function are_plain(ids)
  local seen, text = {}, ids[2] and table.concat(ids) or ids[1]
  if not string.find(text, '^[!-~]+$') or string.find(text, '+', 1, true) then
    return false
  end
  for i = 1, #ids do
    local id = ids[i]
    if id == '' or #id > MAX_ID or seen[id] then
      return false
    end
    seen[id] = true
  end
  return true
end

-- The ids, nil where anything about the arguments wants a closer look.
local function read_requests()
  if not ARE_FOUR_KEYS or #ARGV < 2 or #ARGV > 2 * MAX_REQUESTS or #ARGV % 2 ~= 0 then
    return
  end
  local ids, leases, numbers = {}, {}, ''
  for i = 1, #ARGV / 2 do
    local id, lease = ARGV[2 * i - 1], ARGV[2 * i]
    if #lease > 8 or lease < '1' then
      return
    end
    if lease ~= leases[i - 1] then
      numbers = numbers .. lease
    end
    ids[i], leases[i] = id, lease
  end
  if string.find(numbers, '^%d+$') and are_plain(ids) then
    return ids
  end
end

-- The queue: requests in the order of their tickets, and the hand-off to its head.
-- Permits: count them, purge those whose lease ended, grant and remove them.
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

local PURGE_CHUNK = 1000
local PURGE_BOUND = 2000 -- ended leases that one script removes at most, when it needs room

local function held(sem)
  return sem.members - sem.marks + sem.extra
end

-- Takes members that have left `permits` out of the count. Answers the weight of each by its id.
local function uncount(sem, ids)
  sem.members = sem.members - #ids
  local weights, marks = {}, 0
  for _, id in ipairs(ids) do
    if sem.marks > 0 and string.sub(id, 1, 1) == '+' then
      marks = marks + 1
    end
    weights[id] = 1
  end
  if marks > 0 then
    -- Marks made before a loss of `state` are not in its number.
    set(sem, 'marks', math.max(0, sem.marks - marks))
  end
  if sem.extra > 0 then
    local fields, known, extra = {}, {}, 0
    for i, id in ipairs(ids) do
      fields[i] = 'w:' .. id
    end
    for i, weight in ipairs(redis.call('HMGET', STATE, unpack(fields))) do
      if weight then
        weights[ids[i]] = tonumber(weight)
        extra = extra + weight - 1
        known[#known + 1] = fields[i]
      end
    end
    if #known > 0 then
      redis.call('HDEL', STATE, unpack(known))
      set(sem, 'extra', sem.extra - extra)
    end
  end
  return weights
end

-- The scores of ids (at most 1,000) in a sorted set of so many members, false where there is none.
local function scores_of(key, members, ids)
  local scores = {}
  if members > 0 then
    scores = redis.call('ZMSCORE', key, unpack(ids))
  end
  for i = 1, #ids do
    scores[i] = tonumber(scores[i]) or false
  end
  return scores
end

-- When the leases of ids end.
local function ends_of(sem, ids)
  return scores_of(PERMITS, sem.members, ids)
end

-- Removes nothing: no id is empty. But a server that is out of memory runs a script to its end if
-- its first write may free some.
local function touch_permits()
  redis.call('ZREM', PERMITS, '')
end

-- Removes ids (at most 1,000) that are members of `permits`, or retires them; answers their weights
-- by id.
local function remove_permits(sem, ids)
  if #ids == 0 then
    return {}
  end
  if #ids < sem.members - sem.unwritten then
    redis.call('ZREM', PERMITS, unpack(ids))
  else
    touch_permits()
    sem.retired = ids
  end
  return uncount(sem, ids)
end

-- One that was granted anew meanwhile stays.
local function remove_retired(sem)
  local ids = {}
  for _, id in ipairs(sem.retired) do
    ids[#ids + 1] = not sem.granted[id] and id or nil
  end
  if #ids > 0 then
    redis.call('ZREM', PERMITS, unpack(ids))
  end
  sem.retired = {}
end

-- Members of `permits` whose leases end between these, at most one chunk.
local function chunk_between(sem, from, to)
  if sem.members == sem.unwritten then
    return {}
  end
  return redis.call('ZRANGEBYSCORE', PERMITS, from, to, 'LIMIT', 0, PURGE_CHUNK)
end

-- Removes one chunk of ended leases; answers whether there may be more.
local function purge_chunk(sem)
  local ended = chunk_between(sem, '-inf', sem.now)
  remove_permits(sem, ended)
  sem.purged = (sem.purged or 0) + #ended
  return #ended == PURGE_CHUNK
end

-- No lease can truly end later than the longest lease from now. One that seems to was given before
-- the server's clock stepped back; without a cut its dead holder would keep it longer by the step.
local function cut_leases(sem)
  local last = sem.now + sem.longest
  local beyond = chunk_between(sem, '(' .. last, '+inf')
  local cut = {}
  for _, id in ipairs(beyond) do
    cut[#cut + 1] = last
    cut[#cut + 1] = id
  end
  if #cut > 0 then
    call_in_chunks('ZADD', PERMITS, cut)
  end
  sem.more = sem.more or #beyond == PURGE_CHUNK
end

-- Whether `weight` fits, after purging as far as it must. Leases are looked at only while room is
-- short, and once in a script: time stands still inside it.
local function make_room(sem, weight)
  while held(sem) + weight > sem.limit and not sem.all_purged do
    if (sem.purged or 0) >= PURGE_BOUND then
      sem.more = true
      return false
    end
    if not purge_chunk(sem) then
      sem.all_purged = true
      cut_leases(sem)
    end
  end
  return held(sem) + weight <= sem.limit
end

-- Counts a permit as granted. `write_permits` must follow.
local function grant(sem, id, weight, lease)
  local token, ends = next_sequence(sem), sem.now + lease
  local longest = sem.members == 0 and lease or math.max(sem.longest, lease)
  if longest ~= sem.longest then
    set(sem, 'longest', longest)
  end
  sem.members, sem.unwritten = sem.members + 1, sem.unwritten + 1
  if weight > 1 then
    set(sem, 'extra', sem.extra + weight - 1)
    sem.changed['w:' .. id] = weight
  end
  sem.writes[#sem.writes + 1] = ends
  sem.writes[#sem.writes + 1] = id
  sem.granted[id] = {token, ends}
  need_until(sem, ends)
end

-- Starts the lease of a permit that is held anew; answers its new end. `write_permits` must follow.
local function renew(sem, id, lease)
  local ends = sem.now + lease
  if lease > sem.longest then
    set(sem, 'longest', lease)
  end
  sem.writes[#sem.writes + 1] = ends
  sem.writes[#sem.writes + 1] = id
  need_until(sem, ends)
  return ends
end

local function write_permits(sem)
  if #sem.writes > 0 then
    -- A key that this call creates (its last member may just have left) has no expiry yet.
    sem.new_permits = sem.new_permits or sem.members == sem.unwritten
    sem.unwritten = 0
    call_in_chunks('ZADD', PERMITS, sem.writes)
    sem.writes = {}
    remove_retired(sem)
  end
end

-- When the next lease ends, in ms from now, for those who wait: 0 asks for `wake` at once because
-- the script stopped at a bound, -1 says that there is nothing to wait for.
local function wake_in(sem, is_waiting)
  if sem.more then
    return 0
  end
  if not is_waiting or sem.members == 0 then
    return -1
  end
  local first = redis.call('ZRANGE', PERMITS, 0, 0, 'WITHSCORES')
  return first[2] and math.max(1, first[2] - sem.now) or -1
end

local LOOK_CHUNK = 100
local LOOK_BOUND = 1000 -- waiters that one script looks at at most

-- A waiter's record in `waiting`.
local function record(sem, weight, lease, liveness, wake, client)
  local heard_until = sem.now + liveness
  need_until(sem, heard_until)
  return table.concat({weight, lease, string.format('%.0f', heard_until), wake, client}, ' ')
end

-- Puts a request in the queue. `write_queue` must follow.
local function enqueue(sem, id, ticket, value)
  sem.new_queue = sem.new_queue or sem.queued == 0 or sem.waiting <= 0
  sem.queued = sem.queued + 1
  sem.tickets[#sem.tickets + 1] = ticket
  sem.tickets[#sem.tickets + 1] = id
  sem.records[#sem.records + 1] = id
  sem.records[#sem.records + 1] = value
end

-- Removes ids (at most 1,000) that are members of `queue`. The last ones are only noted as `left`.
local function leave_queue(sem, ids)
  if #ids == 0 then
    return
  end
  if #ids < sem.queued then
    redis.call('ZREM', QUEUE, unpack(ids))
    sem.waiting = sem.waiting - redis.call('HDEL', WAITING, unpack(ids))
  else
    redis.call('ZREM', QUEUE, '') -- as touch_permits does
    sem.left, sem.waiting = ids, 0
  end
  sem.queued = sem.queued - #ids
end

local function remove_left(sem)
  if #sem.left > 0 then
    redis.call('ZREM', QUEUE, unpack(sem.left))
    redis.call('HDEL', WAITING, unpack(sem.left))
    sem.left = {}
  end
end

local function write_queue(sem)
  if #sem.tickets > 0 then
    call_in_chunks('ZADD', QUEUE, sem.tickets)
    call_in_chunks('HSET', WAITING, sem.records)
    sem.tickets, sem.records = {}, {}
    remove_left(sem)
  end
end

-- The tickets of ids.
local function tickets_of(sem, ids)
  return scores_of(QUEUE, sem.queued, ids)
end

local function read_waiter(value)
  local weight, lease, heard_until, wake, client =
    string.match(value or '', '^(%d+) (%d+) (%d+) (%a+) (%S+)$')
  return {
    weight = tonumber(weight),
    lease = tonumber(lease),
    heard_until = tonumber(heard_until),
    wake = wake,
    client = client,
  }
end

-- Gives what is free to the queue, in its order, until its head does not fit. Waiters whose client
-- is gone, or was not heard of in time, leave the queue without a permit.
local function serve_queue(sem)
  -- Whether anybody listens at a waiter's address: a client that is gone is granted nothing. Where
  -- the server refuses to say, the client counts as there.
  local function is_listening(waiter)
    if waiter.wake == 'poll' then
      return true
    end
    local known = sem.listens[waiter.client]
    if known == nil then
      local count = waiter.wake == 'spublish' and 'SHARDNUMSUB' or 'NUMSUB'
      local answer = redis.pcall('PUBSUB', count, waiter.client)
      known = answer.err ~= nil or answer[2] ~= 0
      sem.listens[waiter.client] = known
    end
    return known
  end

  -- Has a waiter's client told of its grant, or with token 0 that it left the queue without one.
  -- `finish` must follow.
  local function tell(waiter, id, token, ends)
    if waiter.wake == 'poll' or sem.asking[id] then
      return
    end
    local message = sem.messages[waiter.client]
    if not message then
      local command = waiter.wake == 'spublish' and 'SPUBLISH' or 'PUBLISH'
      message = {command = command, lines = {string.match(PERMITS, '{(.*)}') or PERMITS}}
      sem.messages[waiter.client] = message
    end
    message.lines[#message.lines + 1] = string.format('%s %.0f %.0f', id, token, ends)
  end

  -- What the queue's head gets: true when it leaves the queue, false when it must wait.
  local function serve(id, waiter)
    local is_here = sem.asking[id]
      or (waiter.weight and waiter.heard_until >= sem.now and is_listening(waiter))
    if not is_here then
      return true
    end
    if not sem.runtime and waiter.weight > sem.limit then
      tell(waiter, id, 0, 0)
      return true
    end
    if not make_room(sem, waiter.weight) then
      return false
    end
    grant(sem, id, waiter.weight, waiter.lease)
    tell(waiter, id, unpack(sem.granted[id]))
    return true
  end

  local looked, blocked = 0, false
  while sem.queued > 0 and not blocked and make_room(sem, 1) do
    if looked >= LOOK_BOUND then
      sem.more = true
      break
    end
    local free = sem.limit - held(sem)
    local count = math.min(LOOK_CHUNK, sem.queued, math.max(free, looked))
    local ids = redis.call('ZRANGE', QUEUE, 0, count - 1)
    local values = redis.call('HMGET', WAITING, unpack(ids))
    local leaving = {}
    for i, id in ipairs(ids) do
      if not make_room(sem, 1) or not serve(id, read_waiter(values[i])) then
        blocked = true
        break
      end
      leaving[i] = id
    end
    leave_queue(sem, leaving)
    looked = looked + #ids
  end
  write_permits(sem)
end

-- Invariant S5: after each script the queue is empty, or its head does not fit.
local function hand_off(sem)
  if sem.queued > 0 and make_room(sem, 1) then
    serve_queue(sem)
  end
end

-- Ends a script: saves, and then tells the clients, one message each. A write that the server
-- refuses (too few replicas, no disk, no primary any more) ends the script before anybody is told.
local function finish(sem)
  save(sem)
  remove_retired(sem)
  remove_left(sem)
  for client, message in pairs(sem.messages) do
    redis.pcall(message.command, client, table.concat(message.lines, '\n'))
  end
end

local function check()
-- Checks of KEYS and ARGV. All of them run before the first write, so a call that is refused has
-- changed nothing. A check answers nil when all is well, else the error reply for the caller.

local function wrong(index, name, wanted)
  local got = ARGV[index]
  if got == nil then
    got = 'nothing'
  else
    got = '"' .. string.gsub(string.sub(got, 1, 40), '[^\32-\126]', '?') .. '"'
  end
  return redis.error_reply(
    'SEM_ARG ARGV[' .. index .. '] (' .. name .. ') must be ' .. wanted .. ', got ' .. got
  )
end

local function check_keys()
  if #KEYS ~= 4 then
    return redis.error_reply(
      'SEM_KEYS 4 keys are needed (permits, queue, waiting, state), got ' .. #KEYS
    )
  end
  -- The types of the keys tell too little: what does not exist has none.
  if not ARE_FOUR_KEYS then
    return redis.error_reply(
      'SEM_KEYS the 4 keys (permits, queue, waiting, state) must differ from each other'
    )
  end
end

local function check_count(count)
  if #ARGV ~= count then
    return redis.error_reply('SEM_ARG ' .. count .. ' arguments are needed, got ' .. #ARGV)
  end
end

-- After the first `fixed` arguments there must be 1 to 1,000 requests of `size` arguments each.
local function check_requests(fixed, size)
  local count = (#ARGV - fixed) / size
  if count < 1 or count > MAX_REQUESTS or count % 1 ~= 0 then
    return redis.error_reply(
      'SEM_ARG 1 to ' .. MAX_REQUESTS .. ' requests of ' .. size
      .. ' arguments must follow the first ' .. fixed .. ', got ' .. #ARGV .. ' in all'
    )
  end
end

local function check_integer(index, name, min, max)
  local text = ARGV[index]
  local number = text and #text <= 16 and string.find(text, '^%d+$') and tonumber(text)
  if not number or number < min or number > max then
    return wrong(index, name, string.format('an integer from %.0f to %.0f', min, max))
  end
end

-- Ids and client names travel in wake-up messages, which are split at white space.
local function check_word(index, name)
  local text = ARGV[index]
  if not text or text == '' or #text > MAX_ID or string.find(text, '[%s%c]') then
    return wrong(
      index, name, '1 to ' .. MAX_ID .. ' bytes without white space or control characters'
    )
  end
end

-- An id that stands twice in a call has no single answer.
local function check_id(index, seen)
  local id = ARGV[index]
  if seen[id] then
    return wrong(index, 'id', 'given once in a call')
  end
  seen[id] = true
  -- '+' begins the names of the marks that `limit add` keeps among the permits.
  if id and string.sub(id, 1, 1) == '+' then
    return wrong(index, 'id', 'an id that does not begin with "+"')
  end
  return check_word(index, 'id')
end

-- How the client hears of a hand-off.
local function check_wake(index)
  local wake = ARGV[index]
  if wake ~= 'publish' and wake ~= 'spublish' and wake ~= 'poll' then
    return wrong(index, 'wake', '"publish", "spublish" or "poll"')
  end
end
  local refusal = check_keys() or check_requests(0, 2)
  local seen, index = {}, 1
  while not refusal and index <= #ARGV do
    refusal = check_id(index, seen) or check_integer(index + 1, 'lease', 1, MAX_LEASE)
    index = index + 2
  end
  return refusal
end

local function refresh()
  local ids = read_requests()
  local sem, refusal = open(not ids and check() or nil)
  if refusal then
    return refusal
  end
  repair(sem)
  if not ids then
    ids = {}
    for index = 1, #ARGV, 2 do
      ids[#ids + 1] = ARGV[index]
    end
  end
  local reply = {sem.now, 0}
  for i, ends in ipairs(ends_of(sem, ids)) do
    if ends and ends > sem.now then
      reply[i + 2] = renew(sem, ids[i], tonumber(ARGV[2 * i]))
    else
      reply[i + 2] = 0
    end
  end
  if #sem.writes > 0 then
    touch_permits() -- Holders keep what they have.
  end
  write_permits(sem)
  hand_off(sem)
  reply[2] = wake_in(sem, false)
  finish(sem)
  return reply
end

return refresh()
end,
}

redis.register_function{
  function_name = 'sem_release',
  flags = {'allow-oom'},
  callback = function(KEYS, ARGV)
-- release: gives permits back, or takes requests out of the queue, then serves the queue.
--
-- A call may be repeated: the second time the ids are unknown, and nobody else's permit is touched.
--
-- KEYS[1] permits   sorted set: permit id -> end of lease, ms on the server's clock
-- KEYS[2] queue     sorted set: request id -> ticket
-- KEYS[3] waiting   hash: request id -> weight, lease, heard until, wake, client
-- KEYS[4] state     hash: version, limits, last sequence number, weights above 1
-- ARGV[1] how       "return" (the weight is free again), or "consume" (it comes off the limit: the
--                   permit is used up, as the textbook's P does)
-- ARGV[2+] requests 1 to 1000 times: id
--   id              1 to 256 bytes, as given to `acquire`
-- Reply             server time (ms), wake_in, then for each id one integer:
--   1               it held a permit
--   2               it was queued
--   0               unknown: released before, or its lease ended
--   3               to several ids, once: each of them held a permit
--   wake_in         0: call `wake` at once, -1 no need
-- Errors            SEM_KEYS, SEM_ARG, SEM_TYPE, SEM_VERSION
-- Cost              O(log N) for each id and each waiter served. Commands for one id:
--   4               held, and nobody waits
--   15              held, and handed to the first who waits
--   8               unknown
-- Flags             allow-oom
-- For the quick ways: whether all leases run, so that nobody's place has become free unseen.
-- Names and bounds that all scripts share.

local PERMITS, QUEUE, WAITING, STATE = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local ARE_FOUR_KEYS = #KEYS == 4
  and PERMITS ~= QUEUE and PERMITS ~= WAITING and PERMITS ~= STATE
  and QUEUE ~= WAITING and QUEUE ~= STATE and WAITING ~= STATE

-- `version` in `state`. The quick ways rely on it: LIGHT says that a limit is in force, all permits
-- weigh 1 and no mark is kept, PLAIN that the queue is empty, too. Otherwise it is VERSION.
local VERSION, LIGHT, PLAIN = '1', '1 light', '1 plain'

local ALL = 3 -- alone in a reply to several requests: one answer for all of them

local MAX_REQUESTS = 1000
local MAX_COUNT = 4294967295 -- a limit or a weight: an unsigned 32-bit number
local MAX_LEASE = 604800000 -- seven days in ms
local MAX_SEQUENCE = 9007199254740991 -- the largest integer that a double holds exactly
local MAX_ID = 256 -- bytes

-- The permit whose lease ends first: {id, end}. Nil where its lease has ended, or the last one ends
-- later than any can (the server's clock stepped back).
local function first_to_end(members, now, longest)
  local first = redis.call('ZRANGE', PERMITS, 0, 0, 'WITHSCORES')
  local last = members == 1 and first or redis.call('ZRANGE', PERMITS, -1, -1, 'WITHSCORES')
  return first[2] + 0 > now and last[2] + 0 <= now + longest and first or nil
end

-- Functions are made anew in each call, which takes time. So the common case comes first, and what
-- is seldom needed is made inside of what needs it.

local MAX_PASSED_ON = 100

-- Whether all these hold permits, each is given once, and none may be a mark. What holds a permit
-- is a proper id in all else.
local function all_hold(ids, ends, now)
  local seen, last_end = {}
  for i = 1, #ids do
    local id, its_end = ids[i], ends[i]
    -- Those granted in one call end together.
    if not its_end or seen[id] or its_end ~= last_end and its_end + 0 <= now then
      return false
    end
    seen[id], last_end = true, its_end
  end
  return not string.find(table.concat(ids), '+', 1, true)
end

-- The quick way where nobody queues: all ids hold permits. Answers nil where that is not so.
local function give_back(ids)
  local ends = redis.pcall('ZMSCORE', PERMITS, unpack(ids))
  local clock = redis.call('TIME')
  local now = math.floor(clock[1] * 1000 + clock[2] / 1000)
  if ends.err or not all_hold(ids, ends, now) then
    return
  end
  redis.call('ZREM', PERMITS, unpack(ids))
  return {now, -1, ids[2] and ALL or 1}
end

local found_listening = {} -- by client, where it was asked

-- Whether a client listens that is told of hand-offs in this way.
local function is_there(wake, client)
  if wake ~= 'poll' and found_listening[client] == nil then
    local count = wake == 'spublish' and 'SHARDNUMSUB' or 'NUMSUB'
    found_listening[client] = redis.pcall('PUBSUB', count, client)[2] ~= 0
  end
  return wake == 'poll' or found_listening[client]
end

-- What the waiters are to get, nil where one of them is heavy or gone, or has an unusual lease.
local function grants_for(waiters, now, token, longest)
  local records = redis.pcall('HMGET', WAITING, unpack(waiters))
  local grants = {entries = {}, messages = {}, longest = 0}
  if records.err then
    return
  end
  for i, record in ipairs(records) do
    local lease, heard_until, wake, client =
      string.match(record or '', '^1 (%d+) (%d+) (%a+) (%S+)$')
    if not lease or lease + 0 > longest or heard_until + 0 < now or not is_there(wake, client) then
      return
    end
    local ends = string.format('%.0f', now + lease)
    grants.entries[2 * i - 1], grants.entries[2 * i] = ends, waiters[i]
    grants.longest = math.max(grants.longest, lease)
    if wake ~= 'poll' then
      local publish = wake == 'spublish' and 'SPUBLISH' or 'PUBLISH'
      local message = grants.messages[client]
        or {publish = publish, text = string.match(PERMITS, '{(.*)}') or PERMITS}
      message.text = string.format('%s\n%s %.0f %s', message.text, waiters[i], token + i, ends)
      grants.messages[client] = message
    end
  end
  return grants
end

-- The quick way from those who hold to the first in the queue, who weigh 1 and are there. Answers
-- nil where there is more to it.
local function pass_on(ids)
  local state = redis.call('HMGET', STATE, 'limit', 'sequence', 'longest', 'keep')
  local members = redis.pcall('ZCARD', PERMITS)
  local free = type(members) == 'number' and members > 0 and state[1] - members + #ids or 0
  if free < 1 or free > MAX_PASSED_ON then
    return
  end
  local waiters = redis.pcall('ZRANGE', QUEUE, 0, free)
  local has_more = table.remove(waiters, free + 1) ~= nil
  local clock = redis.call('TIME')
  local now_us = clock[1] * 1000000 + clock[2]
  local now, token = math.floor(now_us / 1000), math.max(state[2], now_us - 1)
  local first = first_to_end(members, now, state[3])
  if not waiters[1] or not first
    or math.max(now + state[3], (token + free) / 1000) > state[4] + 0 then
    return -- the expiry may have to be moved
  end
  -- One alone is often the one whose lease ends first.
  local ends = ids[2] == nil and ids[1] == first[1] and {first[2]}
    or redis.call('ZMSCORE', PERMITS, unpack(ids))
  local grants = all_hold(ids, ends, now) and grants_for(waiters, now, token, state[3] + 0)
  if not grants then
    return
  end

  -- A server that is out of memory runs a script to its end if the first write frees some. In this
  -- order `permits` is never empty, so that it keeps its expiry.
  redis.call('ZREM', QUEUE, unpack(waiters))
  redis.call('HDEL', WAITING, unpack(waiters))
  redis.call('ZADD', PERMITS, unpack(grants.entries))
  redis.call('ZREM', PERMITS, unpack(ids))
  local longest = members == #ids and grants.longest or state[3]
  redis.call('HSET', STATE, 'sequence', token + #waiters, 'longest', longest,
    'version', has_more and LIGHT or PLAIN)
  for client, message in pairs(grants.messages) do
    redis.pcall(message.publish, client, message.text)
  end
  return {now, -1, ids[2] and ALL or 1}
end

local function release_at_once()
  if not ARE_FOUR_KEYS or ARGV[1] ~= 'return' or #ARGV < 2 or #ARGV > MAX_REQUESTS + 1 then
    return
  end
  local ids = {unpack(ARGV, 2)}
  local version = redis.pcall('HMGET', STATE, 'version')[1]
  if version == PLAIN then
    return give_back(ids)
  elseif version == LIGHT then
    return pass_on(ids)
  end
end

local released = release_at_once()
if released then
  return released
end

-- The queue: requests in the order of their tickets, and the hand-off to its head.
-- Permits: count them, purge those whose lease ended, grant and remove them.
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

local PURGE_CHUNK = 1000
local PURGE_BOUND = 2000 -- ended leases that one script removes at most, when it needs room

local function held(sem)
  return sem.members - sem.marks + sem.extra
end

-- Takes members that have left `permits` out of the count. Answers the weight of each by its id.
local function uncount(sem, ids)
  sem.members = sem.members - #ids
  local weights, marks = {}, 0
  for _, id in ipairs(ids) do
    if sem.marks > 0 and string.sub(id, 1, 1) == '+' then
      marks = marks + 1
    end
    weights[id] = 1
  end
  if marks > 0 then
    -- Marks made before a loss of `state` are not in its number.
    set(sem, 'marks', math.max(0, sem.marks - marks))
  end
  if sem.extra > 0 then
    local fields, known, extra = {}, {}, 0
    for i, id in ipairs(ids) do
      fields[i] = 'w:' .. id
    end
    for i, weight in ipairs(redis.call('HMGET', STATE, unpack(fields))) do
      if weight then
        weights[ids[i]] = tonumber(weight)
        extra = extra + weight - 1
        known[#known + 1] = fields[i]
      end
    end
    if #known > 0 then
      redis.call('HDEL', STATE, unpack(known))
      set(sem, 'extra', sem.extra - extra)
    end
  end
  return weights
end

-- The scores of ids (at most 1,000) in a sorted set of so many members, false where there is none.
local function scores_of(key, members, ids)
  local scores = {}
  if members > 0 then
    scores = redis.call('ZMSCORE', key, unpack(ids))
  end
  for i = 1, #ids do
    scores[i] = tonumber(scores[i]) or false
  end
  return scores
end

-- When the leases of ids end.
local function ends_of(sem, ids)
  return scores_of(PERMITS, sem.members, ids)
end

-- Removes nothing: no id is empty. But a server that is out of memory runs a script to its end if
-- its first write may free some.
local function touch_permits()
  redis.call('ZREM', PERMITS, '')
end

-- Removes ids (at most 1,000) that are members of `permits`, or retires them; answers their weights
-- by id.
local function remove_permits(sem, ids)
  if #ids == 0 then
    return {}
  end
  if #ids < sem.members - sem.unwritten then
    redis.call('ZREM', PERMITS, unpack(ids))
  else
    touch_permits()
    sem.retired = ids
  end
  return uncount(sem, ids)
end

-- One that was granted anew meanwhile stays.
local function remove_retired(sem)
  local ids = {}
  for _, id in ipairs(sem.retired) do
    ids[#ids + 1] = not sem.granted[id] and id or nil
  end
  if #ids > 0 then
    redis.call('ZREM', PERMITS, unpack(ids))
  end
  sem.retired = {}
end

-- Members of `permits` whose leases end between these, at most one chunk.
local function chunk_between(sem, from, to)
  if sem.members == sem.unwritten then
    return {}
  end
  return redis.call('ZRANGEBYSCORE', PERMITS, from, to, 'LIMIT', 0, PURGE_CHUNK)
end

-- Removes one chunk of ended leases; answers whether there may be more.
local function purge_chunk(sem)
  local ended = chunk_between(sem, '-inf', sem.now)
  remove_permits(sem, ended)
  sem.purged = (sem.purged or 0) + #ended
  return #ended == PURGE_CHUNK
end

-- No lease can truly end later than the longest lease from now. One that seems to was given before
-- the server's clock stepped back; without a cut its dead holder would keep it longer by the step.
local function cut_leases(sem)
  local last = sem.now + sem.longest
  local beyond = chunk_between(sem, '(' .. last, '+inf')
  local cut = {}
  for _, id in ipairs(beyond) do
    cut[#cut + 1] = last
    cut[#cut + 1] = id
  end
  if #cut > 0 then
    call_in_chunks('ZADD', PERMITS, cut)
  end
  sem.more = sem.more or #beyond == PURGE_CHUNK
end

-- Whether `weight` fits, after purging as far as it must. Leases are looked at only while room is
-- short, and once in a script: time stands still inside it.
local function make_room(sem, weight)
  while held(sem) + weight > sem.limit and not sem.all_purged do
    if (sem.purged or 0) >= PURGE_BOUND then
      sem.more = true
      return false
    end
    if not purge_chunk(sem) then
      sem.all_purged = true
      cut_leases(sem)
    end
  end
  return held(sem) + weight <= sem.limit
end

-- Counts a permit as granted. `write_permits` must follow.
local function grant(sem, id, weight, lease)
  local token, ends = next_sequence(sem), sem.now + lease
  local longest = sem.members == 0 and lease or math.max(sem.longest, lease)
  if longest ~= sem.longest then
    set(sem, 'longest', longest)
  end
  sem.members, sem.unwritten = sem.members + 1, sem.unwritten + 1
  if weight > 1 then
    set(sem, 'extra', sem.extra + weight - 1)
    sem.changed['w:' .. id] = weight
  end
  sem.writes[#sem.writes + 1] = ends
  sem.writes[#sem.writes + 1] = id
  sem.granted[id] = {token, ends}
  need_until(sem, ends)
end

-- Starts the lease of a permit that is held anew; answers its new end. `write_permits` must follow.
local function renew(sem, id, lease)
  local ends = sem.now + lease
  if lease > sem.longest then
    set(sem, 'longest', lease)
  end
  sem.writes[#sem.writes + 1] = ends
  sem.writes[#sem.writes + 1] = id
  need_until(sem, ends)
  return ends
end

local function write_permits(sem)
  if #sem.writes > 0 then
    -- A key that this call creates (its last member may just have left) has no expiry yet.
    sem.new_permits = sem.new_permits or sem.members == sem.unwritten
    sem.unwritten = 0
    call_in_chunks('ZADD', PERMITS, sem.writes)
    sem.writes = {}
    remove_retired(sem)
  end
end

-- When the next lease ends, in ms from now, for those who wait: 0 asks for `wake` at once because
-- the script stopped at a bound, -1 says that there is nothing to wait for.
local function wake_in(sem, is_waiting)
  if sem.more then
    return 0
  end
  if not is_waiting or sem.members == 0 then
    return -1
  end
  local first = redis.call('ZRANGE', PERMITS, 0, 0, 'WITHSCORES')
  return first[2] and math.max(1, first[2] - sem.now) or -1
end

local LOOK_CHUNK = 100
local LOOK_BOUND = 1000 -- waiters that one script looks at at most

-- A waiter's record in `waiting`.
local function record(sem, weight, lease, liveness, wake, client)
  local heard_until = sem.now + liveness
  need_until(sem, heard_until)
  return table.concat({weight, lease, string.format('%.0f', heard_until), wake, client}, ' ')
end

-- Puts a request in the queue. `write_queue` must follow.
local function enqueue(sem, id, ticket, value)
  sem.new_queue = sem.new_queue or sem.queued == 0 or sem.waiting <= 0
  sem.queued = sem.queued + 1
  sem.tickets[#sem.tickets + 1] = ticket
  sem.tickets[#sem.tickets + 1] = id
  sem.records[#sem.records + 1] = id
  sem.records[#sem.records + 1] = value
end

-- Removes ids (at most 1,000) that are members of `queue`. The last ones are only noted as `left`.
local function leave_queue(sem, ids)
  if #ids == 0 then
    return
  end
  if #ids < sem.queued then
    redis.call('ZREM', QUEUE, unpack(ids))
    sem.waiting = sem.waiting - redis.call('HDEL', WAITING, unpack(ids))
  else
    redis.call('ZREM', QUEUE, '') -- as touch_permits does
    sem.left, sem.waiting = ids, 0
  end
  sem.queued = sem.queued - #ids
end

local function remove_left(sem)
  if #sem.left > 0 then
    redis.call('ZREM', QUEUE, unpack(sem.left))
    redis.call('HDEL', WAITING, unpack(sem.left))
    sem.left = {}
  end
end

local function write_queue(sem)
  if #sem.tickets > 0 then
    call_in_chunks('ZADD', QUEUE, sem.tickets)
    call_in_chunks('HSET', WAITING, sem.records)
    sem.tickets, sem.records = {}, {}
    remove_left(sem)
  end
end

-- The tickets of ids.
local function tickets_of(sem, ids)
  return scores_of(QUEUE, sem.queued, ids)
end

local function read_waiter(value)
  local weight, lease, heard_until, wake, client =
    string.match(value or '', '^(%d+) (%d+) (%d+) (%a+) (%S+)$')
  return {
    weight = tonumber(weight),
    lease = tonumber(lease),
    heard_until = tonumber(heard_until),
    wake = wake,
    client = client,
  }
end

-- Gives what is free to the queue, in its order, until its head does not fit. Waiters whose client
-- is gone, or was not heard of in time, leave the queue without a permit.
local function serve_queue(sem)
  -- Whether anybody listens at a waiter's address: a client that is gone is granted nothing. Where
  -- the server refuses to say, the client counts as there.
  local function is_listening(waiter)
    if waiter.wake == 'poll' then
      return true
    end
    local known = sem.listens[waiter.client]
    if known == nil then
      local count = waiter.wake == 'spublish' and 'SHARDNUMSUB' or 'NUMSUB'
      local answer = redis.pcall('PUBSUB', count, waiter.client)
      known = answer.err ~= nil or answer[2] ~= 0
      sem.listens[waiter.client] = known
    end
    return known
  end

  -- Has a waiter's client told of its grant, or with token 0 that it left the queue without one.
  -- `finish` must follow.
  local function tell(waiter, id, token, ends)
    if waiter.wake == 'poll' or sem.asking[id] then
      return
    end
    local message = sem.messages[waiter.client]
    if not message then
      local command = waiter.wake == 'spublish' and 'SPUBLISH' or 'PUBLISH'
      message = {command = command, lines = {string.match(PERMITS, '{(.*)}') or PERMITS}}
      sem.messages[waiter.client] = message
    end
    message.lines[#message.lines + 1] = string.format('%s %.0f %.0f', id, token, ends)
  end

  -- What the queue's head gets: true when it leaves the queue, false when it must wait.
  local function serve(id, waiter)
    local is_here = sem.asking[id]
      or (waiter.weight and waiter.heard_until >= sem.now and is_listening(waiter))
    if not is_here then
      return true
    end
    if not sem.runtime and waiter.weight > sem.limit then
      tell(waiter, id, 0, 0)
      return true
    end
    if not make_room(sem, waiter.weight) then
      return false
    end
    grant(sem, id, waiter.weight, waiter.lease)
    tell(waiter, id, unpack(sem.granted[id]))
    return true
  end

  local looked, blocked = 0, false
  while sem.queued > 0 and not blocked and make_room(sem, 1) do
    if looked >= LOOK_BOUND then
      sem.more = true
      break
    end
    local free = sem.limit - held(sem)
    local count = math.min(LOOK_CHUNK, sem.queued, math.max(free, looked))
    local ids = redis.call('ZRANGE', QUEUE, 0, count - 1)
    local values = redis.call('HMGET', WAITING, unpack(ids))
    local leaving = {}
    for i, id in ipairs(ids) do
      if not make_room(sem, 1) or not serve(id, read_waiter(values[i])) then
        blocked = true
        break
      end
      leaving[i] = id
    end
    leave_queue(sem, leaving)
    looked = looked + #ids
  end
  write_permits(sem)
end

-- Invariant S5: after each script the queue is empty, or its head does not fit.
local function hand_off(sem)
  if sem.queued > 0 and make_room(sem, 1) then
    serve_queue(sem)
  end
end

-- Ends a script: saves, and then tells the clients, one message each. A write that the server
-- refuses (too few replicas, no disk, no primary any more) ends the script before anybody is told.
local function finish(sem)
  save(sem)
  remove_retired(sem)
  remove_left(sem)
  for client, message in pairs(sem.messages) do
    redis.pcall(message.command, client, table.concat(message.lines, '\n'))
  end
end

local function check()
-- Whether these are ids as nearly all are: printable ASCII without "+", and each given once. Cheap,
-- for most calls; what else may be right, and what is wrong, is for lib/arguments.lua to say.

local function are_plain(ids)
  local seen, text = {}, ids[2] and table.concat(ids) or ids[1]
  if not string.find(text, '^[!-~]+$') or string.find(text, '+', 1, true) then
    return false
  end
  for i = 1, #ids do
    local id = ids[i]
    if id == '' or #id > MAX_ID or seen[id] then
      return false
    end
    seen[id] = true
  end
  return true
end
  local how = ARGV[1]
  if ARE_FOUR_KEYS and #ARGV > 1 and #ARGV <= MAX_REQUESTS + 1
    and (how == 'return' or how == 'consume') and are_plain({unpack(ARGV, 2)}) then
    return
  end
-- Checks of KEYS and ARGV. All of them run before the first write, so a call that is refused has
-- changed nothing. A check answers nil when all is well, else the error reply for the caller.

local function wrong(index, name, wanted)
  local got = ARGV[index]
  if got == nil then
    got = 'nothing'
  else
    got = '"' .. string.gsub(string.sub(got, 1, 40), '[^\32-\126]', '?') .. '"'
  end
  return redis.error_reply(
    'SEM_ARG ARGV[' .. index .. '] (' .. name .. ') must be ' .. wanted .. ', got ' .. got
  )
end

local function check_keys()
  if #KEYS ~= 4 then
    return redis.error_reply(
      'SEM_KEYS 4 keys are needed (permits, queue, waiting, state), got ' .. #KEYS
    )
  end
  -- The types of the keys tell too little: what does not exist has none.
  if not ARE_FOUR_KEYS then
    return redis.error_reply(
      'SEM_KEYS the 4 keys (permits, queue, waiting, state) must differ from each other'
    )
  end
end

local function check_count(count)
  if #ARGV ~= count then
    return redis.error_reply('SEM_ARG ' .. count .. ' arguments are needed, got ' .. #ARGV)
  end
end

-- After the first `fixed` arguments there must be 1 to 1,000 requests of `size` arguments each.
local function check_requests(fixed, size)
  local count = (#ARGV - fixed) / size
  if count < 1 or count > MAX_REQUESTS or count % 1 ~= 0 then
    return redis.error_reply(
      'SEM_ARG 1 to ' .. MAX_REQUESTS .. ' requests of ' .. size
      .. ' arguments must follow the first ' .. fixed .. ', got ' .. #ARGV .. ' in all'
    )
  end
end

local function check_integer(index, name, min, max)
  local text = ARGV[index]
  local number = text and #text <= 16 and string.find(text, '^%d+$') and tonumber(text)
  if not number or number < min or number > max then
    return wrong(index, name, string.format('an integer from %.0f to %.0f', min, max))
  end
end

-- Ids and client names travel in wake-up messages, which are split at white space.
local function check_word(index, name)
  local text = ARGV[index]
  if not text or text == '' or #text > MAX_ID or string.find(text, '[%s%c]') then
    return wrong(
      index, name, '1 to ' .. MAX_ID .. ' bytes without white space or control characters'
    )
  end
end

-- An id that stands twice in a call has no single answer.
local function check_id(index, seen)
  local id = ARGV[index]
  if seen[id] then
    return wrong(index, 'id', 'given once in a call')
  end
  seen[id] = true
  -- '+' begins the names of the marks that `limit add` keeps among the permits.
  if id and string.sub(id, 1, 1) == '+' then
    return wrong(index, 'id', 'an id that does not begin with "+"')
  end
  return check_word(index, 'id')
end

-- How the client hears of a hand-off.
local function check_wake(index)
  local wake = ARGV[index]
  if wake ~= 'publish' and wake ~= 'spublish' and wake ~= 'poll' then
    return wrong(index, 'wake', '"publish", "spublish" or "poll"')
  end
end
  local refusal = check_keys()
    or (how ~= 'return' and how ~= 'consume' and wrong(1, 'how', '"return" or "consume"'))
    or check_requests(1, 1)
  local seen, index = {}, 2
  while not refusal and index <= #ARGV do
    refusal = check_id(index, seen)
    index = index + 1
  end
  return refusal
end

-- Takes the weight of the ids that still held off the limit.
local function consume(sem, statuses, ids, weights)
  local weight = 0
  for i, status in ipairs(statuses) do
    if status == 1 then
      weight = weight + weights[ids[i]]
    end
  end
  -- Where no limit is known, none is set: 0 would pause the semaphore for good.
  if weight > 0 and (sem.runtime or sem.declared) then
    sem.limit = math.max(0, sem.limit - weight)
    set_runtime(sem, sem.limit)
  end
end

local function release()
  local sem, refusal = open(check())
  if refusal then
    return refusal
  end
  sem.listens = found_listening
  repair(sem)
  local ids = {unpack(ARGV, 2)}
  local ends, tickets = ends_of(sem, ids), tickets_of(sem, ids)
  local statuses, permits, requests = {}, {}, {}
  for i, id in ipairs(ids) do
    statuses[i] = 0
    if ends[i] then
      permits[#permits + 1] = id
      statuses[i] = ends[i] > sem.now and 1 or 0
    end
    if tickets[i] then
      requests[#requests + 1] = id
      statuses[i] = 2
    end
  end
  local weights = remove_permits(sem, permits)
  leave_queue(sem, requests)
  if ARGV[1] == 'consume' then
    consume(sem, statuses, ids, weights)
  end
  hand_off(sem)
  finish(sem)
  return {sem.now, wake_in(sem, false), unpack(statuses)}
end

return release()
end,
}

redis.register_function{
  function_name = 'sem_wake',
  flags = {'allow-oom'},
  callback = function(KEYS, ARGV)
-- wake: purges ended leases where room is short, and hands what is free to the queue.
--
-- A waiting client calls this when `wake_in` of an earlier reply has passed. It is never wrong to
-- call it.
--
-- KEYS[1] permits   sorted set: permit id -> end of lease, ms on the server's clock
-- KEYS[2] queue     sorted set: request id -> ticket
-- KEYS[3] waiting   hash: request id -> weight, lease, heard until, wake, client
-- KEYS[4] state     hash: version, limits, last sequence number, weights above 1
-- Reply             server time (ms), wake_in, queue length
--   wake_in         ms until the next call is worth it: 0 at once, -1 no need
-- Errors            SEM_KEYS, SEM_ARG, SEM_TYPE, SEM_VERSION
-- Cost              O(log N) for each waiter served. Commands:
--   5               nothing to do
-- Flags             allow-oom
-- Checks of KEYS and ARGV. All of them run before the first write, so a call that is refused has
-- changed nothing. A check answers nil when all is well, else the error reply for the caller.
-- Names and bounds that all scripts share.

local PERMITS, QUEUE, WAITING, STATE = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local ARE_FOUR_KEYS = #KEYS == 4
  and PERMITS ~= QUEUE and PERMITS ~= WAITING and PERMITS ~= STATE
  and QUEUE ~= WAITING and QUEUE ~= STATE and WAITING ~= STATE

-- `version` in `state`. The quick ways rely on it: LIGHT says that a limit is in force, all permits
-- weigh 1 and no mark is kept, PLAIN that the queue is empty, too. Otherwise it is VERSION.
local VERSION, LIGHT, PLAIN = '1', '1 light', '1 plain'

local ALL = 3 -- alone in a reply to several requests: one answer for all of them

local MAX_REQUESTS = 1000
local MAX_COUNT = 4294967295 -- a limit or a weight: an unsigned 32-bit number
local MAX_LEASE = 604800000 -- seven days in ms
local MAX_SEQUENCE = 9007199254740991 -- the largest integer that a double holds exactly
local MAX_ID = 256 -- bytes

local function wrong(index, name, wanted)
  local got = ARGV[index]
  if got == nil then
    got = 'nothing'
  else
    got = '"' .. string.gsub(string.sub(got, 1, 40), '[^\32-\126]', '?') .. '"'
  end
  return redis.error_reply(
    'SEM_ARG ARGV[' .. index .. '] (' .. name .. ') must be ' .. wanted .. ', got ' .. got
  )
end

local function check_keys()
  if #KEYS ~= 4 then
    return redis.error_reply(
      'SEM_KEYS 4 keys are needed (permits, queue, waiting, state), got ' .. #KEYS
    )
  end
  -- The types of the keys tell too little: what does not exist has none.
  if not ARE_FOUR_KEYS then
    return redis.error_reply(
      'SEM_KEYS the 4 keys (permits, queue, waiting, state) must differ from each other'
    )
  end
end

local function check_count(count)
  if #ARGV ~= count then
    return redis.error_reply('SEM_ARG ' .. count .. ' arguments are needed, got ' .. #ARGV)
  end
end

-- After the first `fixed` arguments there must be 1 to 1,000 requests of `size` arguments each.
local function check_requests(fixed, size)
  local count = (#ARGV - fixed) / size
  if count < 1 or count > MAX_REQUESTS or count % 1 ~= 0 then
    return redis.error_reply(
      'SEM_ARG 1 to ' .. MAX_REQUESTS .. ' requests of ' .. size
      .. ' arguments must follow the first ' .. fixed .. ', got ' .. #ARGV .. ' in all'
    )
  end
end

local function check_integer(index, name, min, max)
  local text = ARGV[index]
  local number = text and #text <= 16 and string.find(text, '^%d+$') and tonumber(text)
  if not number or number < min or number > max then
    return wrong(index, name, string.format('an integer from %.0f to %.0f', min, max))
  end
end

-- Ids and client names travel in wake-up messages, which are split at white space.
local function check_word(index, name)
  local text = ARGV[index]
  if not text or text == '' or #text > MAX_ID or string.find(text, '[%s%c]') then
    return wrong(
      index, name, '1 to ' .. MAX_ID .. ' bytes without white space or control characters'
    )
  end
end

-- An id that stands twice in a call has no single answer.
local function check_id(index, seen)
  local id = ARGV[index]
  if seen[id] then
    return wrong(index, 'id', 'given once in a call')
  end
  seen[id] = true
  -- '+' begins the names of the marks that `limit add` keeps among the permits.
  if id and string.sub(id, 1, 1) == '+' then
    return wrong(index, 'id', 'an id that does not begin with "+"')
  end
  return check_word(index, 'id')
end

-- How the client hears of a hand-off.
local function check_wake(index)
  local wake = ARGV[index]
  if wake ~= 'publish' and wake ~= 'spublish' and wake ~= 'poll' then
    return wrong(index, 'wake', '"publish", "spublish" or "poll"')
  end
end
-- The queue: requests in the order of their tickets, and the hand-off to its head.
-- Permits: count them, purge those whose lease ended, grant and remove them.
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

local PURGE_CHUNK = 1000
local PURGE_BOUND = 2000 -- ended leases that one script removes at most, when it needs room

local function held(sem)
  return sem.members - sem.marks + sem.extra
end

-- Takes members that have left `permits` out of the count. Answers the weight of each by its id.
local function uncount(sem, ids)
  sem.members = sem.members - #ids
  local weights, marks = {}, 0
  for _, id in ipairs(ids) do
    if sem.marks > 0 and string.sub(id, 1, 1) == '+' then
      marks = marks + 1
    end
    weights[id] = 1
  end
  if marks > 0 then
    -- Marks made before a loss of `state` are not in its number.
    set(sem, 'marks', math.max(0, sem.marks - marks))
  end
  if sem.extra > 0 then
    local fields, known, extra = {}, {}, 0
    for i, id in ipairs(ids) do
      fields[i] = 'w:' .. id
    end
    for i, weight in ipairs(redis.call('HMGET', STATE, unpack(fields))) do
      if weight then
        weights[ids[i]] = tonumber(weight)
        extra = extra + weight - 1
        known[#known + 1] = fields[i]
      end
    end
    if #known > 0 then
      redis.call('HDEL', STATE, unpack(known))
      set(sem, 'extra', sem.extra - extra)
    end
  end
  return weights
end

-- The scores of ids (at most 1,000) in a sorted set of so many members, false where there is none.
local function scores_of(key, members, ids)
  local scores = {}
  if members > 0 then
    scores = redis.call('ZMSCORE', key, unpack(ids))
  end
  for i = 1, #ids do
    scores[i] = tonumber(scores[i]) or false
  end
  return scores
end

-- When the leases of ids end.
local function ends_of(sem, ids)
  return scores_of(PERMITS, sem.members, ids)
end

-- Removes nothing: no id is empty. But a server that is out of memory runs a script to its end if
-- its first write may free some.
local function touch_permits()
  redis.call('ZREM', PERMITS, '')
end

-- Removes ids (at most 1,000) that are members of `permits`, or retires them; answers their weights
-- by id.
local function remove_permits(sem, ids)
  if #ids == 0 then
    return {}
  end
  if #ids < sem.members - sem.unwritten then
    redis.call('ZREM', PERMITS, unpack(ids))
  else
    touch_permits()
    sem.retired = ids
  end
  return uncount(sem, ids)
end

-- One that was granted anew meanwhile stays.
local function remove_retired(sem)
  local ids = {}
  for _, id in ipairs(sem.retired) do
    ids[#ids + 1] = not sem.granted[id] and id or nil
  end
  if #ids > 0 then
    redis.call('ZREM', PERMITS, unpack(ids))
  end
  sem.retired = {}
end

-- Members of `permits` whose leases end between these, at most one chunk.
local function chunk_between(sem, from, to)
  if sem.members == sem.unwritten then
    return {}
  end
  return redis.call('ZRANGEBYSCORE', PERMITS, from, to, 'LIMIT', 0, PURGE_CHUNK)
end

-- Removes one chunk of ended leases; answers whether there may be more.
local function purge_chunk(sem)
  local ended = chunk_between(sem, '-inf', sem.now)
  remove_permits(sem, ended)
  sem.purged = (sem.purged or 0) + #ended
  return #ended == PURGE_CHUNK
end

-- No lease can truly end later than the longest lease from now. One that seems to was given before
-- the server's clock stepped back; without a cut its dead holder would keep it longer by the step.
local function cut_leases(sem)
  local last = sem.now + sem.longest
  local beyond = chunk_between(sem, '(' .. last, '+inf')
  local cut = {}
  for _, id in ipairs(beyond) do
    cut[#cut + 1] = last
    cut[#cut + 1] = id
  end
  if #cut > 0 then
    call_in_chunks('ZADD', PERMITS, cut)
  end
  sem.more = sem.more or #beyond == PURGE_CHUNK
end

-- Whether `weight` fits, after purging as far as it must. Leases are looked at only while room is
-- short, and once in a script: time stands still inside it.
local function make_room(sem, weight)
  while held(sem) + weight > sem.limit and not sem.all_purged do
    if (sem.purged or 0) >= PURGE_BOUND then
      sem.more = true
      return false
    end
    if not purge_chunk(sem) then
      sem.all_purged = true
      cut_leases(sem)
    end
  end
  return held(sem) + weight <= sem.limit
end

-- Counts a permit as granted. `write_permits` must follow.
local function grant(sem, id, weight, lease)
  local token, ends = next_sequence(sem), sem.now + lease
  local longest = sem.members == 0 and lease or math.max(sem.longest, lease)
  if longest ~= sem.longest then
    set(sem, 'longest', longest)
  end
  sem.members, sem.unwritten = sem.members + 1, sem.unwritten + 1
  if weight > 1 then
    set(sem, 'extra', sem.extra + weight - 1)
    sem.changed['w:' .. id] = weight
  end
  sem.writes[#sem.writes + 1] = ends
  sem.writes[#sem.writes + 1] = id
  sem.granted[id] = {token, ends}
  need_until(sem, ends)
end

-- Starts the lease of a permit that is held anew; answers its new end. `write_permits` must follow.
local function renew(sem, id, lease)
  local ends = sem.now + lease
  if lease > sem.longest then
    set(sem, 'longest', lease)
  end
  sem.writes[#sem.writes + 1] = ends
  sem.writes[#sem.writes + 1] = id
  need_until(sem, ends)
  return ends
end

local function write_permits(sem)
  if #sem.writes > 0 then
    -- A key that this call creates (its last member may just have left) has no expiry yet.
    sem.new_permits = sem.new_permits or sem.members == sem.unwritten
    sem.unwritten = 0
    call_in_chunks('ZADD', PERMITS, sem.writes)
    sem.writes = {}
    remove_retired(sem)
  end
end

-- When the next lease ends, in ms from now, for those who wait: 0 asks for `wake` at once because
-- the script stopped at a bound, -1 says that there is nothing to wait for.
local function wake_in(sem, is_waiting)
  if sem.more then
    return 0
  end
  if not is_waiting or sem.members == 0 then
    return -1
  end
  local first = redis.call('ZRANGE', PERMITS, 0, 0, 'WITHSCORES')
  return first[2] and math.max(1, first[2] - sem.now) or -1
end

local LOOK_CHUNK = 100
local LOOK_BOUND = 1000 -- waiters that one script looks at at most

-- A waiter's record in `waiting`.
local function record(sem, weight, lease, liveness, wake, client)
  local heard_until = sem.now + liveness
  need_until(sem, heard_until)
  return table.concat({weight, lease, string.format('%.0f', heard_until), wake, client}, ' ')
end

-- Puts a request in the queue. `write_queue` must follow.
local function enqueue(sem, id, ticket, value)
  sem.new_queue = sem.new_queue or sem.queued == 0 or sem.waiting <= 0
  sem.queued = sem.queued + 1
  sem.tickets[#sem.tickets + 1] = ticket
  sem.tickets[#sem.tickets + 1] = id
  sem.records[#sem.records + 1] = id
  sem.records[#sem.records + 1] = value
end

-- Removes ids (at most 1,000) that are members of `queue`. The last ones are only noted as `left`.
local function leave_queue(sem, ids)
  if #ids == 0 then
    return
  end
  if #ids < sem.queued then
    redis.call('ZREM', QUEUE, unpack(ids))
    sem.waiting = sem.waiting - redis.call('HDEL', WAITING, unpack(ids))
  else
    redis.call('ZREM', QUEUE, '') -- as touch_permits does
    sem.left, sem.waiting = ids, 0
  end
  sem.queued = sem.queued - #ids
end

local function remove_left(sem)
  if #sem.left > 0 then
    redis.call('ZREM', QUEUE, unpack(sem.left))
    redis.call('HDEL', WAITING, unpack(sem.left))
    sem.left = {}
  end
end

local function write_queue(sem)
  if #sem.tickets > 0 then
    call_in_chunks('ZADD', QUEUE, sem.tickets)
    call_in_chunks('HSET', WAITING, sem.records)
    sem.tickets, sem.records = {}, {}
    remove_left(sem)
  end
end

-- The tickets of ids.
local function tickets_of(sem, ids)
  return scores_of(QUEUE, sem.queued, ids)
end

local function read_waiter(value)
  local weight, lease, heard_until, wake, client =
    string.match(value or '', '^(%d+) (%d+) (%d+) (%a+) (%S+)$')
  return {
    weight = tonumber(weight),
    lease = tonumber(lease),
    heard_until = tonumber(heard_until),
    wake = wake,
    client = client,
  }
end

-- Gives what is free to the queue, in its order, until its head does not fit. Waiters whose client
-- is gone, or was not heard of in time, leave the queue without a permit.
local function serve_queue(sem)
  -- Whether anybody listens at a waiter's address: a client that is gone is granted nothing. Where
  -- the server refuses to say, the client counts as there.
  local function is_listening(waiter)
    if waiter.wake == 'poll' then
      return true
    end
    local known = sem.listens[waiter.client]
    if known == nil then
      local count = waiter.wake == 'spublish' and 'SHARDNUMSUB' or 'NUMSUB'
      local answer = redis.pcall('PUBSUB', count, waiter.client)
      known = answer.err ~= nil or answer[2] ~= 0
      sem.listens[waiter.client] = known
    end
    return known
  end

  -- Has a waiter's client told of its grant, or with token 0 that it left the queue without one.
  -- `finish` must follow.
  local function tell(waiter, id, token, ends)
    if waiter.wake == 'poll' or sem.asking[id] then
      return
    end
    local message = sem.messages[waiter.client]
    if not message then
      local command = waiter.wake == 'spublish' and 'SPUBLISH' or 'PUBLISH'
      message = {command = command, lines = {string.match(PERMITS, '{(.*)}') or PERMITS}}
      sem.messages[waiter.client] = message
    end
    message.lines[#message.lines + 1] = string.format('%s %.0f %.0f', id, token, ends)
  end

  -- What the queue's head gets: true when it leaves the queue, false when it must wait.
  local function serve(id, waiter)
    local is_here = sem.asking[id]
      or (waiter.weight and waiter.heard_until >= sem.now and is_listening(waiter))
    if not is_here then
      return true
    end
    if not sem.runtime and waiter.weight > sem.limit then
      tell(waiter, id, 0, 0)
      return true
    end
    if not make_room(sem, waiter.weight) then
      return false
    end
    grant(sem, id, waiter.weight, waiter.lease)
    tell(waiter, id, unpack(sem.granted[id]))
    return true
  end

  local looked, blocked = 0, false
  while sem.queued > 0 and not blocked and make_room(sem, 1) do
    if looked >= LOOK_BOUND then
      sem.more = true
      break
    end
    local free = sem.limit - held(sem)
    local count = math.min(LOOK_CHUNK, sem.queued, math.max(free, looked))
    local ids = redis.call('ZRANGE', QUEUE, 0, count - 1)
    local values = redis.call('HMGET', WAITING, unpack(ids))
    local leaving = {}
    for i, id in ipairs(ids) do
      if not make_room(sem, 1) or not serve(id, read_waiter(values[i])) then
        blocked = true
        break
      end
      leaving[i] = id
    end
    leave_queue(sem, leaving)
    looked = looked + #ids
  end
  write_permits(sem)
end

-- Invariant S5: after each script the queue is empty, or its head does not fit.
local function hand_off(sem)
  if sem.queued > 0 and make_room(sem, 1) then
    serve_queue(sem)
  end
end

-- Ends a script: saves, and then tells the clients, one message each. A write that the server
-- refuses (too few replicas, no disk, no primary any more) ends the script before anybody is told.
local function finish(sem)
  save(sem)
  remove_retired(sem)
  remove_left(sem)
  for client, message in pairs(sem.messages) do
    redis.pcall(message.command, client, table.concat(message.lines, '\n'))
  end
end

local function wake()
  local sem, refusal = open(check_keys() or check_count(0))
  if refusal then
    return refusal
  end
  repair(sem)
  hand_off(sem)
  finish(sem)
  return {sem.now, wake_in(sem, sem.queued > 0), sem.queued}
end

return wake()
end,
}
