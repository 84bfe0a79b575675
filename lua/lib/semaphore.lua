-- The state of the semaphore: one table with values from the keys, and with the call's changes.
--
-- The keys `permits` and `clients` also have a member '*', so that no script empties these keys.
-- While a cluster slot is migrating, a server aborts a script that accesses a key after emptying
-- it. In `permits`, the score of '*' is minus the sum of (weight - 1) over all permits, so the held
-- weight is known even if another key is lost. In `clients`, the score of '*' is the longest
-- heartbeat timeout.

-- Reads the keys, before any write. Returns the state with the expiries of `ids`, or an error.
-- `has_group`: whether one of the call's requests has a group.
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
