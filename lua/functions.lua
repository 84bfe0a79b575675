#!lua name=redis_semaphore
-- Made from scripts: change those, not this file.

local BOUND = 1000 -- each loop of a script examines at most this many members
local MAX_COUNT = 4294967295 -- the highest limit and weight: 2^32 - 1
local MAX_TIME = 604800000 -- the longest lease and heartbeat timeout: seven days in ms
local MAX_NUMBER = 9007199254740991 -- the highest token and ticket: 2^53 - 1, exact as a double

local function shown(text)
  local short = text and string.gsub(string.sub(text, 1, 40), '[^\32-\126]', '?')
  return text and '"' .. short .. '"' or 'nothing'
end

-- Returns an error unless `keys` are the keys of one semaphore, in the correct order. Without
-- groups, the first four are sufficient. While a cluster slot is migrating, a call with a key that
-- does not exist is rejected, so a call names `order` and `turns` only if groups need them.
local function check_keys(keys)
  local stem = string.match(keys[1] or '', '^([^{}]*:{[^{}]+}):permits$')
  local misnamed = not stem and 1 or keys[2] ~= stem .. ':queue' and 2
    or keys[3] ~= stem .. ':clients' and 3 or keys[4] ~= stem .. ':state' and 4
    or keys[5] and (keys[5] ~= stem .. ':order' and 5 or keys[6] ~= stem .. ':turns' and 6)
  local is_miscounted = #keys ~= 4 and #keys ~= 6
  if is_miscounted or misnamed then
    return redis.error_reply('SEM_KEYS 4 keys are needed, or 6 with groups, in this order: '
      .. 'PREFIX:{NAME}:permits, ...:queue, ...:clients, ...:state, ...:order, ...:turns; got '
      .. (is_miscounted and #keys or shown(keys[misnamed]) .. ' as KEYS[' .. misnamed .. ']'))
  end
end

local function wrong(args, index, name, wanted)
  return redis.error_reply('SEM_ARG ARGV[' .. index .. '] (' .. name .. ') must be ' .. wanted
    .. ', got ' .. shown(args[index]))
end

-- Returns `text` as a number if it is a decimal integer from `min` to `max` without leading zeros.
local function integer(text, min, max)
  local number = text and (string.find(text, '^[1-9]%d*$') or text == '0') and text + 0
  return number and number >= min and number <= max and number
end

local function read_id(args, index, name, asked, last, weight)
  local id, parts = args[index], last
  if not parts or string.find(id, parts.start, 1, true) ~= 1
    or string.find(id, ',', #parts.start, true) then -- only this ID has a group
    local pattern = '^([PSN]):([%w._-]+):(%d+):([1-9]%d*):()'
    local notify, client, weighs, lease, nonce = string.match(id, pattern)
    local fits = notify and integer(weighs, weight or 1, weight or MAX_COUNT)
    if not fits or #client > 100 or lease + 0 > MAX_TIME then
      return wrong(args, index, name, 'NOTIFY:CLIENT:WEIGHT:LEASE:NONCE with a client of 1 to 100 '
        .. 'characters, a weight ' .. (weight and 'of ' .. weight or 'from 1 to 4294967295')
        .. ' and a lease from 1 to 604800000')
    end
    local group, share, cap, after
    if string.find(id, ',', nonce, true) then
      group, share, cap, after = string.match(id, '^([%w._-]+),(%d+),(%d+):()', nonce)
    end
    if group and (#group > 64 or not integer(share, 1, 1000)
      or cap ~= '0' and not integer(cap, fits, MAX_COUNT)) then
      return wrong(args, index, name, 'one with a group of 1 to 64 characters, a share from 1 to '
        .. '1000, and a cap that is 0 or from the weight to 4294967295')
    end
    parts = {
      notify = notify, client = client, weight = weighs + 0, lease = lease + 0,
      group = group, share = (share or 1) + 0, cap = (cap or 0) + 0, -- cap 0: none
      start = string.sub(id, 1, (after or nonce) - 1),
    }
  end
  local size = #parts.start
  if #id < size + 16 or #id > size + 64 or not string.find(id, '^[A-Za-z0-9_-]+$', size + 1) then
    return wrong(args, index, name, 'one with a nonce of 16 to 64 letters, digits, "_" or "-"')
  elseif asked[id] then
    return wrong(args, index, name, 'given once in a call')
  end
  asked[id] = true
  return parts
end

-- Returns an error, or three tables: the IDs, the parts of each ID, and the set of the IDs. The
-- requests follow the first `fixed` arguments. Each request has `size` arguments: first, its ID.
local function read_ids(args, fixed, size)
  local count, ids, parts, asked = (#args - fixed) / size, {}, {}, {}
  if count < 1 or count > 1000 or count % 1 ~= 0 then
    return redis.error_reply('SEM_ARG 1 to 1000 requests of ' .. size
      .. ' arguments must follow the first ' .. fixed .. ', got ' .. #args .. ' in all')
  end
  local last
  for i = 1, count do
    local index = fixed + 1 + (i - 1) * size
    last = read_id(args, index, 'id', asked, last)
    if last.err then return last end
    ids[i], parts[i] = args[index], last
  end
  return ids, parts, asked
end

local function groups_of(s)
  if s.groups then return s.groups end
  local order_key, turns_key = s.keys[5], s.keys[6]
  local left = 0 -- how many requests without a group serve() has removed
  local groups = {
    held = {}, held_before = {}, -- group -> weight, for the groups that this call has read
    waiting = s.queued, -- above 0 if a group waits that is not at its cap
  }
  s.groups = groups

  -- Returns `start` + `distance`, or the next number if this sum would be rounded to `start`.
  local function later(start, distance)
    return math.max(start + distance, start * (1 + 2 ^ -52))
  end

  local function turn_of(name)
    return (redis.call('ZSCORE', turns_key, name) or 0) + 0
  end

  local function set_turn(name, start)
    local added = redis.call('ZADD', turns_key, '-inf', '*', start, name)
    s.has_new_key = s.has_new_key or added == 2
  end

  -- Ends the turns of a group of which no request waits, and forgets up to two groups.
  local function end_turns(name, last)
    set_turn(name, -last)
    local over = redis.call('ZRANGEBYSCORE', turns_key, -s.virtual, '(0', 'LIMIT', 0, 2)
    if over[1] then
      redis.call('ZREM', turns_key, unpack(over))
    end
  end

  local function entry_of(name, ticket, id)
    return string.format('%s:%016.0f:%s', name, ticket, id)
  end

  -- Returns the first two entries of a group in `order`, or the first two IDs without a group.
  local function first_entries(name)
    if name == '' then
      return redis.call('ZRANGEBYSCORE', s.queue_key, '(0', '+inf', 'LIMIT', left, 2)
    end
    local from, to = '[' .. name .. ':', '(' .. name .. ';'
    return redis.call('ZRANGE', order_key, from, to, 'BYLEX', 'LIMIT', 0, 2)
  end

  local function read_held(name)
    if not groups.held[name] then
      local held = -(redis.call('ZSCORE', s.permits_key, '*' .. name) or 0)
      groups.held[name], groups.held_before[name] = held, held
    end
    return groups.held[name]
  end

  -- Counts the weight of a permit that begins, or ends (a negative weight).
  function groups.count(name, weight)
    groups.held[name] = read_held(name) + weight
  end

  -- Adds the changed weights to `entries` of `permits`, and removes the groups that hold nothing.
  function groups.write_held(entries)
    for name, held in pairs(groups.held) do
      if held > 0 and held ~= groups.held_before[name] then
        entries[#entries + 1], entries[#entries + 2] = -held, '*' .. name
      elseif held == 0 and groups.held_before[name] > 0 then
        redis.call('ZREM', s.permits_key, '*' .. name)
      end
    end
  end

  -- `cap`: the cap of a request. A runtime cap of its group replaces it.
  function groups.fits_cap(name, weight, cap)
    local runtime = s.caps and s.caps[name]
    return not runtime and cap == 0 or read_held(name) + weight <= (runtime or cap)
  end

  -- Sets the runtime cap of a group, or clears it if `cap` is nil.
  function groups.set_cap(name, cap)
    s.caps = s.caps or {}
    s.caps[name], s.has_new_runtime = cap, true
    s.caps = next(s.caps) and s.caps
    if turn_of(name) == math.huge then
      set_turn(name, s.virtual) -- its first request may fit the new cap
    end
  end

  -- Enters a queued request into the turns. It may come before a request that did not fit the cap.
  function groups.enter(part, id, ticket)
    local name = part.group or ''
    if part.group and redis.call('ZADD', order_key, 0, '*', 0, entry_of(name, ticket, id)) == 2 then
      s.has_new_key = true
    end
    local turn = turn_of(name)
    if turn <= 0 then -- even if the group is at its cap, so that it cannot starve others
      set_turn(name, math.max(later(s.virtual, 1 / part.share), -turn))
    elseif turn == math.huge and groups.fits_cap(name, part.weight, part.cap) then
      set_turn(name, s.virtual)
    end
  end

  -- Removes a canceled request, which has left the queue.
  function groups.leave(name, ticket, id)
    local turn = turn_of(name)
    if name ~= '' then
      redis.call('ZREM', order_key, entry_of(name, ticket, id))
    end
    -- An empty queue no longer exists, and cannot be read while its slot moves.
    if turn > 0 and (s.queued == 0 or not first_entries(name)[1]) then
      end_turns(name, turn == math.huge and s.virtual or turn)
    elseif turn == math.huge then
      set_turn(name, s.virtual) -- the next request may fit the cap
    end
  end

  -- Returns the position of a queued request in its group.
  function groups.position_of(part, id, ticket)
    if not part.group then
      local grouped = redis.call('ZCOUNT', s.queue_key, '-inf', '(0')
      return redis.call('ZRANK', s.queue_key, id) - grouped - left + 1
    end
    local entry = entry_of(part.group, ticket, id)
    local first = first_entries(part.group)[1] or entry -- nil if an entry has a wrong score
    return redis.call('ZRANK', order_key, entry) - redis.call('ZRANK', order_key, first) + 1
  end

  -- Returns whether a request that is not in the queue fits its cap and comes before all others.
  function groups.is_next(part)
    local name = part.group or ''
    return groups.fits_cap(name, part.weight, part.cap)
      and (s.queued == 0 or groups.waiting == 0 and turn_of(name) <= 0)
  end

  -- Returns the group that is next, the start of its turn, its first request (nil if its entry has
  -- no request in the queue), whether no request follows, and the entry (nil without a group).
  function groups.next()
    local first = redis.call('ZRANGEBYSCORE', turns_key, '(0', '(inf', 'WITHSCORES', 'LIMIT', 0, 1)
    local name, start = first[1], (first[2] or 0) + 0
    local entries = name and first_entries(name) or {}
    if name == '' then return name, start, entries[1], not entries[2] end
    local ticket, id = string.match(entries[1] or '', '^[^:]*:(%d+):(.*)')
    if entries[1] and not (id and (redis.call('ZSCORE', s.queue_key, id) or 0) + ticket == 0) then
      redis.call('ZREM', order_key, entries[1])
      id = nil
    end
    return name, start, id, not entries[2], entries[1]
  end

  -- Removes the first request of a group from the queue.
  local function remove_first(id, entry)
    s.leaving[#s.leaving + 1], s.queued = id, s.queued - 1
    if entry then
      redis.call('ZREM', order_key, entry)
    else
      left = left + 1
    end
  end

  -- Serves up to BOUND requests in the order of the turns. See serve_queue.
  function groups.serve(asked, sweeps, serve_request)
    if s.queued == 0 then return end
    for name, held in pairs(groups.held) do
      if held < groups.held_before[name] and turn_of(name) == math.huge then
        set_turn(name, s.virtual) -- its first request may fit the cap
      end
    end
    if s.held >= s.limit and not sweeps then return end
    groups.waiting = redis.call('ZCOUNT', turns_key, '(0', '(inf')
    local listening, looked, is_blocked = {}, 0, false
    while groups.waiting > 0 and s.queued > 0 and (s.held < s.limit or sweeps) and not is_blocked
      and looked < BOUND do
      local name, start, id, is_last, entry = groups.next()
      local next_start, granted = start, #s.granted
      local outcome = not id or serve_request(s, id, asked, listening)
      looked, is_blocked = looked + 1, not outcome
      if id and outcome == true then
        remove_first(id, entry)
      end
      if #s.granted > granted then
        local weight, share = string.match(id, '^%a:[^:]*:(%d+):%d+:[^:,]*,?(%d*)')
        next_start = later(start, weight / (entry and share or 1))
      end
      if next_start > start or outcome == 'at_cap' then
        s.virtual, s.live_until = math.max(s.virtual, start), math.max(s.live_until, s.now)
      end
      if outcome == 'at_cap' then
        set_turn(name, '+inf')
        groups.waiting = groups.waiting - 1
      elseif outcome and is_last then
        end_turns(name, next_start)
        groups.waiting = groups.waiting - 1
      elseif next_start > start then
        set_turn(name, next_start)
      end
    end
    s.more = s.more or looked == BOUND and groups.waiting > 0 and s.held < s.limit
  end

  if not s.virtual then
    s.virtual, s.live_until = 1, math.max(s.live_until, s.now)
    if s.queued > 0 then -- these requests have no group
      set_turn('', 1)
    end
  end
  return groups
end

-- Returns the virtual time if `state` was lost: the first start, or the last end of a turn. Returns
-- nil if no group waits or holds a permit.
local function virtual_of(keys, extra)
  local function first(min, max)
    return keys[6]
      and redis.call('ZRANGEBYSCORE', keys[6], min, max, 'WITHSCORES', 'LIMIT', 0, 1)[2]
  end
  local start, ended = first('(0', '(inf'), first('(-inf', '(0')
  local has_groups = redis.call('ZCOUNT', keys[1], '-inf', 0) > (extra and 1 or 0)
    or redis.call('ZCOUNT', keys[2], '-inf', '(0') > 0
  return start and start + 0 or ended and -ended or has_groups and 1 or nil
end

-- Counts a permit that begins, or ends (a negative `weight`), for the semaphore and for its group.
local function count_permit(s, id, weight)
  s.permits, s.held = s.permits + (weight < 0 and -1 or 1), s.held + weight
  local name = s.virtual and string.match(id, '^%a:[^:]*:%d+:%d+:([^:,]+),')
  if name then
    groups_of(s).count(name, weight)
  end
end

local function read_semaphore(keys, ids, has_group)
  local failed = check_keys(keys)
  if failed then return failed end
  local clock = redis.call('TIME')
  local now_us = clock[1] * 1000000 + clock[2]
  local now = math.floor(now_us / 1000)
  local state = redis.pcall('HMGET', keys[4], 'version', 'declared', 'runtime', 'last_number',
    'longest_lease', 'first_expiry', 'expire_at', 'virtual')
  local queued, clients = redis.pcall('ZCARD', keys[2]), redis.pcall('ZCARD', keys[3])
  local may_have_groups = state[8] or not state[1]
  local permits = may_have_groups and redis.pcall('ZCOUNT', keys[1], '(0', '+inf')
    or redis.pcall('ZCARD', keys[1])
  local order = keys[5] and redis.pcall('ZCARD', keys[5])
  local turns = keys[6] and redis.pcall('ZCARD', keys[6])
  failed = state.err and state or type(permits) == 'table' and permits
    or type(queued) == 'table' and queued or type(clients) == 'table' and clients
    or order and (type(order) == 'table' and order or type(turns) == 'table' and turns)
  if failed and string.find(failed.err, 'WRONGTYPE ') then
    local index = failed == permits and 1 or failed == queued and 2 or failed == clients and 3
      or failed == order and 5 or failed == turns and 6 or 4
    return redis.error_reply('SEM_TYPE the key ' .. keys[index] .. ' exists and is not a '
      .. (failed == state and 'hash' or 'sorted set'))
  elseif failed then
    return failed -- for example, the user lacks the right to a command
  elseif state[1] and state[1] ~= '1' then
    return redis.error_reply('SEM_VERSION the semaphore was written by protocol version '
      .. state[1] .. ', these scripts use 1: upgrade the older client, or use another prefix')
  end
  ids[#ids + 1] = '*'
  local ends = redis.call('ZMSCORE', keys[1], unpack(ids))
  local extra = ends[#ids] and -ends[#ids]
  ids[#ids] = nil
  permits = extra and not may_have_groups and permits - 1 or permits
  local declared, runtime = tonumber(state[2]), tonumber(state[3])
  local s = {
    permits_key = keys[1], queue_key = keys[2], clients_key = keys[3], state_key = keys[4],
    keys = keys, -- groups_of uses the other keys
    now = now, now_us = now_us, -- ms, microseconds
    ends = ends, -- expiries of the given IDs in ms; false: no permit
    permits = permits, held = permits + (extra or 0), -- number and weight of all permits
    extra = extra, -- the sum of (weight - 1) over all permits, as stored; false: not stored
    queued = queued, clients = clients, -- numbers of members of these keys
    declared = declared, runtime = runtime, limit = runtime or declared or 0, -- effective limit
    last_number = (state[4] or 0) + 0, -- microseconds; no token or ticket is higher
    longest_lease = (state[5] or 0) + 0, -- ms; no lease in use is longer
    first_expiry = (state[6] or 0) + 0, -- ms; no lease expires earlier
    expire_at = (state[7] or 0) + 0, -- ms; when the keys other than `state` expire
    is_set_back = false, -- whether the clock was set back by more than 1 s
    virtual = tonumber(state[8]), -- the virtual time of turns; nil: no request had a group
    -- Decisions of the call, which `commit` applies:
    changed = {}, -- fields of the key `state`, except `last_number`
    live_until = 0, -- ms; the keys must not expire earlier; 0 if this call does not write `state`
    granted = {}, leases = {}, -- IDs whose leases begin now; their leases in ms
    index_of = {}, -- IDs from the queue -> index in `granted`; later also `token`, of granted[1]
    leaving = {}, notices = {}, -- IDs that leave the queue; requests whose clients get a message
    has_new_key = not extra, -- whether a key may be new, so that it has no expiry yet
    has_new_runtime = false, -- whether the runtime limit or a runtime cap was set or cleared
    more = false, -- whether the script stopped at a bound, so that a client must call `wake`
  }
  if state[3] and not runtime then -- it has runtime caps: see write_state
    local caps = {} -- group -> runtime cap
    for group, cap in string.gmatch(state[3], ' ([^ =]+)=(%d+)') do
      caps[group] = cap + 0
    end
    s.runtime, s.caps = tonumber((string.match(state[3], '^%d+'))), next(caps) and caps
    s.limit = s.runtime or s.limit
  end
  if not state[1] then
    -- If another key has members, `state` was lost. Then any lease and any ticket is possible.
    s.first_expiry = MAX_NUMBER
    if permits + queued + clients > 0 then
      s.longest_lease, s.first_expiry, s.live_until = MAX_TIME, 0, now + MAX_TIME
      local newest = redis.call('ZRANGE', keys[2], -1, -1, 'WITHSCORES')[2] or 0
      local newest_of_groups = redis.call('ZRANGE', keys[2], 0, 0, 'WITHSCORES')[2] or 0
      s.last_number = math.max(newest, -newest_of_groups)
      s.virtual = virtual_of(keys, extra)
    end
    s.changed = {version = '1', longest_lease = s.longest_lease, first_expiry = s.first_expiry}
  end
  if #keys == 4 and (s.virtual or has_group) then
    return redis.error_reply('SEM_GROUPS the semaphore has groups: call again with 6 keys')
  end
  s.is_set_back = s.last_number > now_us + 1000000
  return s
end

-- Grants a permit, or restarts its lease if `is_held` is true. Returns its index in `granted`.
local function grant(s, id, weight, lease, is_held)
  local index = #s.granted + 1
  s.granted[index], s.leases[index] = id, lease
  if not is_held then
    count_permit(s, id, weight)
  end
  return index
end

local function configure(s, args)
  local mode, number = args[1], integer(args[2], 0, MAX_COUNT)
  if mode ~= 'declare' and mode ~= 'declare_if_unset' and mode ~= 'initial'
    and mode ~= 'existing' then
    return wrong(args, 1, 'limit_mode', '"declare", "declare_if_unset", "initial" or "existing"')
  elseif not number then
    return wrong(args, 2, 'limit', 'an integer from 0 to 4294967295')
  end
  local is_known = s.declared or s.runtime
  if mode == 'declare' and number ~= s.declared or mode == 'declare_if_unset' and not is_known then
    s.declared, s.changed.declared, s.live_until = number, number, math.max(s.live_until, s.now)
  elseif mode == 'initial' and not is_known then
    s.runtime, s.has_new_runtime, s.live_until = number, true, math.max(s.live_until, s.now)
  end
  s.limit = s.runtime or s.declared or 0
end

local function remove_expired(s)
  if s.is_set_back then
    -- Dead holders and clients must not count for too long. So a lease may last at most for the
    -- longest lease from now, and a silent client may be alive at most for the longest heartbeat
    -- timeout. The ZREM removes nothing; it lets a server that is out of memory accept the ZADD.
    redis.call('ZREM', s.permits_key, '')
    local longest_timeout = redis.call('ZSCORE', s.clients_key, '*') or 0
    for key, latest in pairs({
      [s.permits_key] = s.now + s.longest_lease,
      [s.clients_key] = s.now + longest_timeout,
    }) do
      local beyond = redis.call('ZRANGEBYSCORE', key, '(' .. latest, '+inf', 'LIMIT', 0, BOUND)
      for _, member in ipairs(beyond) do
        redis.call('ZADD', key, latest, member)
      end
      s.first_expiry, s.more = beyond[1] and 0 or s.first_expiry, s.more or #beyond == BOUND
    end
  end
  if s.first_expiry > s.now then return end
  local ended = redis.call('ZRANGEBYSCORE', s.permits_key, '(0', s.now, 'LIMIT', 0, BOUND)
  for _, id in ipairs(ended) do
    count_permit(s, id, -(string.match(id, '^%a:[^:]*:(%d+)') or 1))
  end
  if ended[1] then
    redis.call('ZREM', s.permits_key, unpack(ended))
  end
  local key = s.permits_key
  local first = redis.call('ZRANGEBYSCORE', key, '(0', '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  s.first_expiry, s.more = (first[2] or MAX_NUMBER) + 0, s.more or #ended == BOUND
  s.changed.first_expiry, s.live_until = s.first_expiry, math.max(s.live_until, s.now)
end

local CALLERS = 16 -- about this many waiting clients call `wake` when the next lease may expire

local function add_to_queue(s, part, id, ticket)
  s.has_new_key, s.queued = s.has_new_key or s.queued == 0, s.queued + 1
  redis.call('ZADD', s.queue_key, part.group and -ticket or ticket, id)
  if part.group or s.virtual then
    groups_of(s).enter(part, id, ticket)
  end
end

-- Records a heartbeat: the client is alive for `timeout` ms or more. If the client is new, up to
-- two dead clients are removed. The member '*' is not removed: its score is at most MAX_TIME, and
-- the score of each client is higher. Returns 0 if `clients` had at most CALLERS members before.
-- Otherwise, returns the number of clients that missed no heartbeat (if all have this timeout).
local function record_heartbeat(s, client, timeout)
  local key = s.clients_key
  local alive_until = s.now + timeout
  local added = redis.call('ZADD', key, 'GT', timeout, '*', alive_until, client)
  if added > 0 then
    s.has_new_key = s.has_new_key or added == 2
    local dead = redis.call('ZRANGEBYSCORE', key, '(' .. MAX_TIME, '(' .. s.now, 'LIMIT', 0, 2)
    redis.call('ZREM', key, '', unpack(dead)) -- '' is no member; `dead` may be empty
  end
  s.live_until = math.max(s.live_until, alive_until)
  s.last_number = math.max(s.last_number, s.now_us - 1) -- to notice if the clock is set back
  return s.clients > CALLERS
    and redis.call('ZCOUNT', key, s.now + math.floor(timeout * 3 / 5), '+inf') or 0
end

-- Returns whether a client with a queued request should call `wake`. If `crowd` is above CALLERS,
-- only the client at the head and about CALLERS other clients, chosen at random, should call it.
local function is_caller(s, client, timeout, crowd)
  if crowd <= CALLERS then return true end
  local hash, left = redis.sha1hex(client .. math.floor(s.now / timeout)), #s.leaving
  if tonumber(string.sub(hash, 1, 8), 16) % crowd < CALLERS then return true end
  local head = s.virtual and select(3, groups_of(s).next())
    or not s.virtual and redis.call('ZRANGE', s.queue_key, left, left)[1]
  return string.match(head or '', '^%a:([^:]*)') == client
end

local function channel_of(permits_key, notify, client)
  local beginning = string.match(permits_key, notify == 'S' and '^(.*):permits$' or '^(.*):{')
  return beginning .. ':wake:' .. client
end

local function serve_request(s, id, asked, listening)
  local notify, client, weight, lease, rest = string.match(id, '^([PSN]):([^:]*):(%d+):(%d+):()')
  if not notify then return true end
  local channel = notify ~= 'N' and not asked[id] and channel_of(s.permits_key, notify, client)
  if not asked[id] and (redis.call('ZSCORE', s.clients_key, client) or 0) + 0 < s.now then
    return true
  elseif channel and listening[channel] == nil then
    local reply = redis.pcall('PUBSUB', notify == 'S' and 'SHARDNUMSUB' or 'NUMSUB', channel)
    listening[channel] = reply[2] ~= 0
  end
  if channel and not listening[channel] then return true end
  if s.virtual then
    local group, cap = string.match(id, '^([^:,]+),%d+,(%d+):', rest)
    if group and not groups_of(s).fits_cap(group, weight + 0, cap + 0) then return 'at_cap' end
  end
  local is_too_heavy = not s.runtime and weight + 0 > s.limit
  if s.held >= s.limit or not is_too_heavy and s.held + weight > s.limit then
    return false
  elseif not is_too_heavy then
    s.index_of[id] = grant(s, id, weight + 0, lease + 0)
  end
  if channel then
    s.notices[#s.notices + 1] = {id = id, channel = channel, notify = notify}
  end
  return true
end

-- Serves up to BOUND requests, until one does not fit. If `sweeps` is true, dead requests before
-- the first live request leave the queue even if no permit is free. The queue is read in batches of
-- 1 to 100 requests: as many as the free weight or, if higher, as the requests removed so far.
local function serve_queue(s, asked, sweeps)
  if s.virtual then return groups_of(s).serve(asked, sweeps, serve_request) end
  if s.queued == 0 or s.held >= s.limit and not sweeps then return end
  local leaving, listening, is_blocked = s.leaving, {}, false
  while s.queued > 0 and (s.held < s.limit or sweeps) and not is_blocked and #leaving < BOUND do
    local left = #leaving
    local batch = math.min(100, BOUND - left, math.max(s.limit - s.held, left, 1))
    for _, id in ipairs(redis.call('ZRANGE', s.queue_key, left, left + batch - 1)) do
      if s.held >= s.limit and not sweeps then break end
      is_blocked = not serve_request(s, id, asked, listening)
      if is_blocked then break end
      leaving[#leaving + 1], s.queued = id, s.queued - 1
    end
  end
  s.more = s.more or s.queued > 0 and s.held < s.limit and not is_blocked
end

local function write_permits(s)
  local granted, leases, now, entries, text = s.granted, s.leases, s.now, {}, nil
  s.token = math.max(s.last_number + 1, s.now_us)
  for i = 1, #granted do
    local lease = leases[i]
    if lease ~= leases[i - 1] then
      local held_until = now + lease
      -- If the leases of all permits begin now, `longest_lease` is the longest of these leases.
      local is_longest = lease > s.longest_lease or i == 1 and #granted == s.permits
      if is_longest and lease ~= s.longest_lease then
        s.longest_lease, s.changed.longest_lease = lease, lease
      end
      if held_until < s.first_expiry then
        s.first_expiry, s.changed.first_expiry = held_until, held_until
      end
      s.live_until = math.max(s.live_until, held_until)
      text = held_until .. '' -- exact, because it has at most 14 digits
    end
    entries[2 * i - 1], entries[2 * i] = text, granted[i]
  end
  if granted[1] then
    s.last_number = s.token + #granted - 1
  end
  local extra = s.held - s.permits
  if extra ~= s.extra and (s.extra or s.permits > 0) then
    entries[#entries + 1], entries[#entries + 2] = -extra, '*'
    s.live_until = math.max(s.live_until, now)
  end
  if s.groups then
    s.groups.write_held(entries)
  end
  for from = 1, #entries, 1000 do
    redis.call('ZADD', s.permits_key, unpack(entries, from, math.min(from + 999, #entries)))
  end
end

local function write_state(s)
  local expire_at = s.expire_at
  -- Without `state`, tokens begin at the clock. So `must_last` is at least `last_number` in ms.
  local must_last = math.max(s.live_until, math.floor(s.last_number / 1000))
  local moves = must_last > expire_at
  if moves then
    expire_at = must_last + math.max(60000, must_last - s.now)
    s.changed.expire_at = expire_at
  end
  local stays = s.runtime or s.caps -- until it is cleared
  if s.has_new_runtime and stays then
    -- `runtime` contains the runtime limit ("-" without one), and GROUP=CAP for each runtime cap.
    local runtime = string.format(s.runtime and '%.0f' or '-', s.runtime)
    for group, cap in pairs(s.caps or {}) do
      runtime = string.format('%s %s=%.0f', runtime, group, cap)
    end
    s.changed.runtime = runtime
  elseif s.has_new_runtime then
    redis.call('HDEL', s.state_key, 'runtime')
  end
  if s.virtual then
    s.changed.virtual = s.virtual
  end
  local fields = {'last_number', s.last_number}
  for field, value in pairs(s.changed) do
    fields[#fields + 1], fields[#fields + 2] = field, value
  end
  redis.call('HSET', s.state_key, unpack(fields))
  if moves or s.has_new_key then
    for index, key in ipairs(s.keys) do
      if index < 4 or index > 4 and s.virtual then
        -- This fails if the slot is migrating and has no such key.
        redis.pcall('PEXPIREAT', key, expire_at)
      end
    end
  end
  if stays and s.has_new_runtime then
    redis.call('PERSIST', s.state_key)
  elseif not stays and (moves or s.has_new_runtime) then
    -- `state` expires later, so tokens grow even if the clock is set back by under 2 hours.
    redis.call('PEXPIREAT', s.state_key, expire_at + 7200000)
  end
end

-- Publishes one message per channel in `notices`: the semaphore's name, then a line per request.
local function publish(s)
  local lines_of = {} -- the lines of each message, by channel
  for _, notice in ipairs(s.notices) do
    local channel, index = notice.channel, s.index_of[notice.id]
    local lines = lines_of[channel]
      or {string.match(s.permits_key, '{(.*)}'), notify = notice.notify}
    lines[#lines + 1] = string.format('%s %.0f %.0f', notice.id,
      index and s.token + index - 1 or 0, index and s.now + s.leases[index] or 0)
    lines_of[channel] = lines
  end
  for channel, lines in pairs(lines_of) do
    local command = lines.notify == 'S' and 'SPUBLISH' or 'PUBLISH'
    redis.pcall(command, channel, table.concat(lines, '\n'))
  end
end

-- Writes the decisions, and returns `wake_in`: 0 if a bound was reached. Otherwise, it is -1 if
-- `should_call` is false or no lease can expire, or else the ms until the next lease may expire.
local function commit(s, should_call)
  write_permits(s)
  if s.live_until > 0 then
    write_state(s)
  end
  -- The ZREM comes last, because it may empty the queue: a script must not access an emptied key.
  local leaving = s.leaving
  for from = 1, #leaving, 1000 do
    redis.call('ZREM', s.queue_key, unpack(leaving, from, math.min(from + 999, #leaving)))
  end
  if s.notices[1] then
    publish(s)
  end
  return s.more and 0
    or should_call and s.first_expiry < MAX_NUMBER and math.max(1, s.first_expiry - s.now) or -1
end

local function leave_queue(s, id)
  if s.queued == 0 then return false end
  local name = s.virtual and string.match(id, '^%a:[^:]*:%d+:%d+:([^:,]+),')
  local ticket = name and redis.call('ZSCORE', s.queue_key, id)
  if redis.call('ZREM', s.queue_key, id) == 0 then return false end
  s.queued = s.queued - 1
  if s.virtual then
    groups_of(s).leave(name or '', ticket and -ticket, id)
  end
  return true
end

redis.register_function{function_name = 'sem_acquire', flags = {},
callback = function(KEYS, ARGV)

local timeout = integer(ARGV[3], 1, MAX_TIME)
if not timeout then
  return wrong(ARGV, 3, 'heartbeat_timeout', 'an integer from 1 to 604800000')
end
local ids, parts, asked = read_ids(ARGV, 3, 2)
if ids.err then return ids end
local count, first, may_wait, has_group = #ids, parts[1], false, false
for i = 1, count do
  local part, mode = parts[i], ARGV[2 * i + 3]
  if part ~= first and (part.notify ~= first.notify or part.client ~= first.client) then
    return wrong(ARGV, 2 * i + 2, 'id', 'of the same NOTIFY and CLIENT as the first')
  elseif mode ~= 'wait' and mode ~= 'try' and not integer(mode, 1, MAX_NUMBER)
    and not integer(string.match(mode, '^%+(.*)'), 0, 3600000) then
    return wrong(ARGV, 2 * i + 3, 'wait_mode', '"wait", "try", "+0" to "+3600000" or a ticket')
  end
  may_wait, has_group = may_wait or mode ~= 'try', has_group or part.group
end
local s = read_semaphore(KEYS, ids, has_group)
if s.err then return s end
local declared_before = s.declared or -1
local failed = configure(s, ARGV)
if failed then return failed end

local ends, now, limit, runtime = s.ends, s.now, s.limit, s.runtime
local wanted, expired = 0, {} -- weight of requests without a permit; IDs with expired leases
for i = 1, count do
  local weight = parts[i].weight
  if ends[i] and ends[i] + 0 <= now then
    count_permit(s, ids[i], -weight)
    ends[i], expired[#expired + 1] = false, ids[i]
  end
  if not ends[i] then
    wanted = wanted + weight
    if weight > limit and not runtime then
      return redis.error_reply(string.format(
        'SEM_TOO_HEAVY ARGV[%d] (id) weighs %.0f, the limit is %.0f', 2 * i + 2, weight, limit
      ))
    end
  end
end
if expired[1] then redis.call('ZREM', s.permits_key, unpack(expired)) end
remove_expired(s)

local tickets = s.queued > 0 and redis.call('ZMSCORE', s.queue_key, unpack(ids)) or {}
local groups, may_exceed_cap = (s.virtual or has_group) and groups_of(s), false
if groups then
  for i, part in ipairs(parts) do
    tickets[i] = tickets[i] and math.abs(tickets[i])
    may_exceed_cap = may_exceed_cap
      or not ends[i] and not groups.fits_cap(part.group, wanted, part.cap)
  end
end
local crowd, has_ticket = 0, false
if may_wait and (s.queued > 0 or s.held + wanted > limit or may_exceed_cap) then
  -- Requests with a ticket, a head start or a group may overtake others, so these requests enter
  -- the queue before it is served. A new number replaces a ticket that cannot have been issued. A
  -- head start is subtracted from a new number, or ignored if the clock was set back.
  local is_early = groups and s.queued == 0 -- whether no earlier request of the call waits
  for i, id in ipairs(ids) do
    local part, mode = parts[i], ARGV[2 * i + 3]
    local ahead = string.match(mode, '^%+(.*)')
    local ticket = not ahead and tonumber(mode)
    is_early = is_early and mode == 'try'
    if is_early and not ends[i] and groups.is_next(part) and s.held + part.weight <= limit then
      s.index_of[id] = grant(s, id, part.weight, part.lease)
    elseif (ticket or ahead or groups and mode == 'wait') and not ends[i] and not tickets[i] then
      if not ticket or ticket > math.max(s.last_number, s.now_us) then
        s.last_number = math.max(s.last_number + 1, s.now_us)
        ticket = math.max(1, s.last_number - (s.is_set_back and 0 or (ahead or 0) * 1000))
      end
      s.last_number, tickets[i] = math.max(s.last_number, ticket), ticket
      add_to_queue(s, part, id, ticket)
    elseif tickets[i] and groups then
      groups.enter(part, id, tickets[i]) -- in case a key was lost
    end
    has_ticket = has_ticket or tickets[i]
  end
  crowd = record_heartbeat(s, first.client, timeout)
end
-- If more than CALLERS clients wait, heartbeats remove dead requests from the head of the queue. So
-- a live client is at the head, and this client always calls `wake`.
serve_queue(s, asked, crowd > CALLERS and has_ticket)

local indexes, positions, waits = {}, {}, false
for i = 1, count do
  local id, part = ids[i], parts[i]
  indexes[i] = s.index_of[id] -- nil unless serve_queue has granted this request
  local is_next = not groups and s.queued == 0 or groups and not tickets[i] and groups.is_next(part)
  if not indexes[i] and (ends[i] or is_next and s.held + part.weight <= limit) then
    indexes[i] = grant(s, id, part.weight, part.lease, ends[i])
  elseif not indexes[i] and tickets[i] then
    positions[i], waits = groups and groups.position_of(part, id, tickets[i])
      or redis.call('ZRANK', s.queue_key, id) - #s.leaving + 1, true
  elseif not indexes[i] and ARGV[2 * i + 3] ~= 'try' then
    s.last_number = math.max(s.last_number + 1, s.now_us)
    add_to_queue(s, part, id, s.last_number)
    tickets[i], positions[i], waits = s.last_number, s.queued, true
  end
end
if not waits and not s.granted[1] then
  -- This ZREM removes nothing. A replica rejects the ZREM, and so never returns "not granted".
  redis.call('ZREM', s.queue_key, unpack(ids))
end
local wake_in = commit(s, waits and is_caller(s, first.client, timeout, crowd))

local token, lease, alike = s.token, first.lease, count > 1
for i = 1, count do
  alike = alike and indexes[i] == i and parts[i].lease == lease
end
if alike then return {now, wake_in, declared_before, 3, token, now + lease} end
local reply = {now, wake_in, declared_before, 0, 0, 0}
for i = 1, count do
  local index, at = indexes[i], 3 * i
  if index then
    reply[at + 1], reply[at + 2], reply[at + 3] = 1, token + index - 1, now + parts[i].lease
  elseif positions[i] then
    reply[at + 1], reply[at + 2], reply[at + 3] = 2, tickets[i] + 0, positions[i]
  else
    reply[at + 1], reply[at + 2], reply[at + 3] = 0, 0, 0
  end
end
return reply
end}

redis.register_function{function_name = 'sem_inspect', flags = {'no-writes'},
callback = function(KEYS, ARGV)

if #ARGV ~= 4 and #ARGV ~= 6 then
  return redis.error_reply('SEM_ARG 4 or 6 arguments are needed, got ' .. #ARGV)
end
local arguments = {
  'holders_offset', 'holders_count', 'waiters_offset', 'waiters_count',
  'groups_offset', 'groups_count',
}
for index = 1, #ARGV do
  local max = index % 2 == 1 and MAX_NUMBER or index == 6 and 100 or 1000
  if not integer(ARGV[index], 0, max) then
    return wrong(ARGV, index, arguments[index], string.format('an integer from 0 to %.0f', max))
  end
end
local s = read_semaphore(KEYS, {})
if s.err then return s end

-- Calls `visit(member, score)` for each member of a page. `...` may be 'REV', the descending order.
local function each(key, from, count, visit, ...)
  local to = from + count - 1
  local flat = count > 0 and redis.call('ZRANGE', key, from, to, 'WITHSCORES', ...) or {}
  for i = 1, #flat, 2 do
    visit(flat[i], flat[i + 1] + 0)
  end
end

-- '*' and the members of groups sort before all IDs.
local from = s.virtual and redis.call('ZCOUNT', s.permits_key, '-inf', 0) or s.extra and 1 or 0
local ended, ended_in = redis.call('ZCOUNT', s.permits_key, '(0', s.now), {}
each(s.permits_key, from, math.min(ended, BOUND), function(id)
  local weight, group = string.match(id, '^%a:[^:]*:(%d+):%d+:([^:,]*)')
  s.held = s.held - (weight or 1)
  ended_in[group or ''] = (ended_in[group or ''] or 0) + (weight or 1)
end)
local held_by, waiting, waiters = {}, {}, {}
each(s.permits_key, from + ended + ARGV[1], ARGV[2] + 0, function(id, held_until)
  held_by[#held_by + 1], held_by[#held_by + 2] = id, held_until - s.now
end)
local function waited(id, ticket) -- ms
  local head_start = string.match(id, ':headstart(%d+)%-[^:]*$') or 0 -- ms
  return math.max(0, s.now - math.floor(math.abs(ticket) / 1000) - head_start)
end
local function add_waiter(id, ticket)
  waiters[#waiters + 1] = string.match(id, '^%a:([^:]*)') or ''
  waiting[#waiting + 1], waiting[#waiting + 2] = id, waited(id, ticket)
  waiting[#waiting + 1] = -1
end
-- Requests without a group come first. The scores of the other requests are minus their tickets.
local grouped = s.virtual and redis.call('ZCOUNT', s.queue_key, '-inf', '(0') or 0
local skipped, wanted, alone = ARGV[3] + 0, ARGV[4] + 0, s.queued - grouped
each(s.queue_key, grouped + skipped, math.min(wanted, alone - skipped), add_waiter)
if grouped > 0 then
  each(s.queue_key, math.max(alone, skipped), wanted - #waiters, add_waiter, 'REV')
end
local heard = waiters[1] and redis.call('ZMSCORE', s.clients_key, unpack(waiters)) or {}
for i, alive_until in ipairs(heard) do
  waiting[3 * i] = math.max(-1, (alive_until or 0) - s.now)
end
local reply = {
  s.now, s.runtime or s.declared or -1, s.declared or -1, s.runtime or -1,
  s.held, s.permits - ended, s.queued, s.last_number, held_by, waiting,
}
if not ARGV[5] then return reply end

local groups, order, turns = {}, s.keys[5], s.keys[6]
-- Returns the first entry of `order` in a range, and how many entries precede it.
local function first_entry(min, max)
  local entry = redis.call('ZRANGE', order, min, max, 'BYLEX', 'LIMIT', 0, 1)[1]
  return entry or '', entry and redis.call('ZRANK', order, entry) or redis.call('ZCARD', order)
end
local function add_group(name)
  local queued, held, id, ticket = alone, -1
  if name == '' then
    local first = redis.call('ZRANGE', s.queue_key, grouped, grouped, 'WITHSCORES')
    id, ticket = first[1], first[2]
  else
    local entry, before = first_entry('[' .. name .. ':', '(' .. name .. ';')
    local _, after = first_entry('[' .. name .. ';', '+')
    ticket, id = string.match(entry, '^[^:]*:(%d+):(.*)')
    queued = id and after - before or 0
    held = -(redis.call('ZSCORE', s.permits_key, '*' .. name) or 0) - (ended_in[name] or 0)
  end
  local waited_ms, runtime_cap = id and waited(id, ticket) or -1, s.caps and s.caps[name] or -1
  for _, value in ipairs({name, held, queued, waited_ms, id or '', runtime_cap}) do
    groups[#groups + 1] = value
  end
end
local total, offset, count = 0, ARGV[5] + 0, ARGV[6] + 0
if s.virtual then
  local idle = redis.call('ZCOUNT', turns, '-inf', 0)
  total = math.max(from - (s.extra and 1 or 0), redis.call('ZCARD', turns) - idle)
  each(turns, idle + offset, count, add_group)
  -- The member '*' stands somewhere among the groups, and is not counted.
  local star = redis.call('ZRANK', s.permits_key, '*') or from
  local first = star <= offset and offset + 1 or offset
  local length = count + (star > offset and star < offset + count and 1 or 0)
  each(s.permits_key, first, math.min(length, from - first), function(name)
    name = string.sub(name, 2)
    if name ~= '' and (redis.call('ZSCORE', turns, name) or 0) + 0 <= 0 then
      add_group(name)
    end
  end)
  for name in pairs(offset == 0 and count > 0 and s.caps or {}) do
    if not redis.call('ZSCORE', s.permits_key, '*' .. name)
      and (redis.call('ZSCORE', turns, name) or 0) + 0 <= 0 then
      add_group(name)
    end
  end
elseif alone > 0 then
  total = 1
  if offset == 0 and count > 0 then
    add_group('')
  end
end
reply[11] = {grouped, total, groups}
return reply
end}

redis.register_function{function_name = 'sem_limit', flags = {},
callback = function(KEYS, ARGV)

local change, lengths = ARGV[3], {set = 5, add = 5, clear = 4, cap = 6}
local length, n = not change and 2 or lengths[change], integer(ARGV[4], 0, MAX_COUNT)
if not length then
  return wrong(ARGV, 3, 'change', '"set", "add", "clear" or "cap"')
elseif #ARGV ~= length then
  return redis.error_reply('SEM_ARG ' .. length .. ' arguments are needed, got ' .. #ARGV)
elseif length >= 5 and not n and not (change == 'cap' and ARGV[4] == 'none') then
  return wrong(ARGV, 4, 'n', 'an integer from 0 to 4294967295')
end
local group = change == 'cap' and ARGV[5]
if group and (#group > 64 or not string.find(group, '^[%w._-]+$')) then
  return wrong(ARGV, 5, 'group', '1 to 64 letters, digits, ".", "_" or "-"')
end
local parts = change and read_id(ARGV, length, 'idempotency_key', {}, nil, 0)
if change and parts.err then return parts end
local s = read_semaphore(KEYS, {}, group)
if s.err then return s end
local capped = 0
for _ in pairs(s.caps or {}) do
  capped = capped + 1
end
if group and n and capped >= 100 and not s.caps[group] then
  return wrong(ARGV, 5, 'group', 'one of the 100 groups that have runtime caps: clear another')
end
local before, declared_before = s.runtime or s.declared or -1, s.declared or -1
local failed = configure(s, ARGV)
if failed then return failed end

local scores = change and redis.call('ZMSCORE', s.clients_key, '*', ARGV[length]) or {}
local is_new = change and s.now + (scores[2] or 0) >= 0
if is_new and change == 'add' and s.limit + n > MAX_COUNT then
  return wrong(ARGV, 4, 'n', string.format('at most %.0f: the limit cannot exceed %.0f',
    MAX_COUNT - s.limit, MAX_COUNT))
end
if is_new then
  -- The score of an idempotency key is negative. So no script mistakes the key for a client, or
  -- changes its score after the clock was set back. Up to two expired idempotency keys are removed.
  local known_until = s.now + parts.lease
  local added = redis.call('ZADD', s.clients_key, scores[1] or 0, '*', -known_until, ARGV[length])
  local over = redis.call('ZRANGEBYSCORE', s.clients_key, -s.now, '(0', 'LIMIT', 0, 2)
  redis.call('ZREM', s.clients_key, '', unpack(over))
  s.has_new_key, s.live_until = s.has_new_key or added == 2, math.max(s.live_until, known_until)
  s.last_number = math.max(s.last_number, s.now_us - 1) -- to notice if the clock is set back
end
if is_new and group then
  groups_of(s).set_cap(group, n or nil)
elseif is_new and change == 'clear' then
  s.has_new_runtime, s.runtime = s.has_new_runtime or s.runtime ~= nil, nil
elseif is_new then
  s.has_new_runtime, s.runtime = true, change == 'set' and n or s.limit + n
end
s.limit = s.runtime or s.declared or 0
remove_expired(s)
serve_queue(s, {})
local wake_in = commit(s)
local limit = s.runtime or s.declared or -1
return {s.now, wake_in, limit, before, s.declared or -1, declared_before}
end}

redis.register_function{function_name = 'sem_probe', flags = {'allow-oom'},
callback = function(KEYS, ARGV)

local permits, queue, clients, state = unpack(KEYS)
local notify_mode, client = ARGV[1], ARGV[2]
local failure = check_keys(KEYS)
if failure then return failure end
if #ARGV ~= 2 then
  return redis.error_reply('SEM_ARG 2 arguments are needed, got ' .. #ARGV)
elseif notify_mode ~= 'P' and notify_mode ~= 'S' and notify_mode ~= 'N' then
  return wrong(ARGV, 1, 'notify_mode', '"P", "S" or "N"')
elseif #client > 100 or not string.find(client, '^[%w._-]+$') then
  return wrong(ARGV, 2, 'client', '1 to 100 letters, digits, ".", "_" or "-"')
end

-- Returns false only if the server can check the right, and the user lacks it.
local function is_allowed(...)
  local is_known, answer = pcall(redis.acl_check_cmd, ...)
  return not is_known or answer
end

-- Returns a `NOPERM` error if the user may not make the call, otherwise nil. The keys need no
-- check: without the right to the keys, the user could not call this script.
local function denial(call)
  if is_allowed(unpack(call)) then
    return nil
  end
  local words = {call[1]}
  if call[1] == 'PUBSUB' then
    words[2] = call[2]
  end
  if is_allowed(unpack(words)) then
    return 'NOPERM this user has no permissions to access one of the channels'
  end
  local name = string.lower(table.concat(words, '|'))
  return "NOPERM this user has no permissions to run the '" .. name .. "' command"
end

local failed = {}

-- Makes the calls, unless an earlier call has failed: then it only checks the rights. Adds the name
-- and the error of each call that failed or is denied to `failed`.
local function try(calls)
  local is_safe = not failed[1]
  for _, call in ipairs(calls) do
    local denied = denial(call)
    local answer = denied and {err = denied} or is_safe and redis.pcall(unpack(call))
    if type(answer) == 'table' and answer.err then
      failed[#failed + 1] = call[1]
      failed[#failed + 1] = answer.err
    end
  end
end

-- Tries PEXPIREAT first, because it cleans up. If one of these commands fails, no key is created.
try({
  {'PEXPIREAT', state, 1},
  {'TIME'},
  {'HMGET', state, 'version'},
  {'ZCARD', permits},
  {'ZSCORE', clients, '*'},
  {'ZMSCORE', permits, '*'},
  {'ZRANGE', queue, 0, 0},
  {'ZRANGE', queue, '[a', '[b', 'BYLEX', 'LIMIT', 0, 1},
  {'ZRANGEBYSCORE', permits, 0, 0},
  {'ZCOUNT', permits, 0, 0},
  {'ZRANK', queue, '*'},
  {'ZREM', permits, '*'},
  {'HDEL', state, 'runtime'},
  {'PERSIST', state},
})
local calls = {
  {'ZADD', permits, 1, '*'},
  {'HSET', state, 'version', '0'},
  {'PEXPIREAT', permits, 1},
  {'PEXPIREAT', state, 1},
}
if notify_mode ~= 'N' then
  local channel = channel_of(permits, notify_mode, client)
  calls[5] = {'PUBSUB', notify_mode == 'S' and 'SHARDNUMSUB' or 'NUMSUB', channel}
  calls[6] = {notify_mode == 'S' and 'SPUBLISH' or 'PUBLISH', channel, ''} -- clients ignore ''
end
try(calls)
return failed
end}

redis.register_function{function_name = 'sem_refresh', flags = {'allow-oom'},
callback = function(KEYS, ARGV)

local ids, parts, asked = read_ids(ARGV, 0, 2)
if ids.err then return ids end
local count, nexts, durations = #ids, {}, {}
for i, part in ipairs(parts) do
  local next = ARGV[2 * i]
  if string.find(next, ':', 1, true) then
    local moved = read_id(ARGV, 2 * i, 'next', asked, nil, part.weight)
    if moved.err then return moved end
    if moved.group ~= part.group then
      return wrong(ARGV, 2 * i, 'next', 'an ID with the same group')
    end
    nexts[i], durations[i] = next, moved.lease
  elseif integer(next, 1, part.lease) then
    durations[i] = next + 0
  else
    return wrong(ARGV, 2 * i, 'next', 'an integer from 1 to the lease in the ID, or another ID')
  end
end
for _, next in pairs(nexts) do
  ids[#ids + 1] = next
end
local s = read_semaphore(KEYS, ids)
if s.err then return s end

local end_of = {}
for i, id in ipairs(ids) do
  end_of[id] = (s.ends[i] or 0) + 0
end
local reply, gone = {s.now, 0}, {''} -- ZREM needs a member; '' is not in any key
for i = 1, count do
  local id, kept, weight = ids[i], nexts[i] or ids[i], parts[i].weight
  local is_held = end_of[kept] > s.now -- if not, the permit is lost, or moves now to `kept`
  if not is_held then
    for _, it in ipairs({id, nexts[i]}) do
      gone[#gone + 1] = it
      if end_of[it] > 0 then
        count_permit(s, it, -weight)
      end
    end
  end
  reply[i + 2] = 0
  if is_held or end_of[id] > s.now then
    grant(s, kept, weight, durations[i], is_held)
    reply[i + 2] = s.now + durations[i]
  end
end
-- The first write is always a ZREM, even if all IDs are unknown. A replica rejects the ZREM. A
-- server that is out of memory accepts the ZREM, and then also accepts the script's other writes.
redis.call('ZREM', s.permits_key, unpack(gone))
if s.queued > 0 then
  -- All IDs leave the queue, whether their permits are held or lost.
  if s.virtual then
    for _, id in ipairs(ids) do
      leave_queue(s, id)
    end
  else
    s.queued = s.queued - redis.call('ZREM', s.queue_key, unpack(ids))
  end
end
remove_expired(s)
serve_queue(s, {})
reply[2] = commit(s)
return reply
end}

redis.register_function{function_name = 'sem_release', flags = {'allow-oom'},
callback = function(KEYS, ARGV)

local release_mode = ARGV[1]
if release_mode ~= 'return' and release_mode ~= 'forget' then
  return wrong(ARGV, 1, 'release_mode', '"return" or "forget"')
end
local ids, parts = read_ids(ARGV, 1, 1)
if ids.err then return ids end
local s = read_semaphore(KEYS, {})
if s.err then return s end
remove_expired(s)

-- The first write is always a ZREM, even if all IDs are unknown. A replica rejects the ZREM. A
-- server that is out of memory accepts the ZREM, and then also accepts the script's other writes.
local now, more, reply = s.now, s.more, {s.now, 0}
local freed, all_held = 0, #ids > 1
for i = 1, #ids do
  local id, weight, entry = ids[i], parts[i].weight, 0
  local has_ended = more and (redis.call('ZSCORE', s.permits_key, id) or 0) + 0 <= now
  if redis.call('ZREM', s.permits_key, id) == 1 then
    count_permit(s, id, -weight)
    entry = has_ended and 0 or 1
  elseif leave_queue(s, id) then
    entry = 2
  end
  reply[i + 2], all_held = entry, all_held and entry == 1
  freed = entry == 1 and freed + weight or freed
end
if release_mode == 'forget' and freed > 0 and (s.runtime or s.declared) then
  s.runtime, s.has_new_runtime = math.max(0, s.limit - freed), true
  s.limit, s.live_until = s.runtime, math.max(s.live_until, s.now)
end
serve_queue(s, {})
reply[2] = commit(s)
return all_held and {s.now, reply[2], 3} or reply
end}

redis.register_function{function_name = 'sem_wake', flags = {'allow-oom'},
callback = function(KEYS, ARGV)

if #ARGV > 0 then return redis.error_reply('SEM_ARG 0 arguments are needed, got ' .. #ARGV) end
local s = read_semaphore(KEYS, {})
if s.err then return s end
-- This ZREM removes nothing. A replica rejects the ZREM. A server that is out of memory accepts the
-- ZREM, and then also accepts the script's other writes.
redis.call('ZREM', s.permits_key, '')
remove_expired(s)
serve_queue(s, {})
return {s.now, commit(s, s.queued > 0), s.queued}
end}
