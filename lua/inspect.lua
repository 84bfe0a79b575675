-- inspect: returns the limits, and pages of permits, queued requests and groups. Changes nothing.
--
-- The reply has no fencing tokens of permits, because the server does not store them.
--
-- KEYS[1] permits   sorted set: ID -> expiry of its lease, ms on the server's clock
-- KEYS[2] queue     sorted set: ID -> ticket
-- KEYS[3] clients   sorted set: client -> alive until, ms on the server's clock
-- KEYS[4] state     hash: version, limits, last number, longest lease, expiry
-- KEYS[5] order     with groups only: sorted set: requests by group and ticket
-- KEYS[6] turns     with groups only: sorted set: group -> start of its turn
-- ARGV[1] holders_offset  0 to 9007199254740991: how many held permits to skip
-- ARGV[2] holders_count  0 to 1000: how many held permits to return
-- ARGV[3] waiters_offset  0 to 9007199254740991: how many queued requests to skip
-- ARGV[4] waiters_count  0 to 1000: how many queued requests to return
-- ARGV[5] groups_offset  optional, with ARGV[6]: 0 to 9007199254740991: how many groups to skip
-- ARGV[6] groups_count  0 to 100: how many groups to return, of those that wait and of those that
--                   hold a permit
-- Reply             server time (ms), then seven integers and two lists:
--   limit           effective limit, -1: none
--   declared        declared limit, -1: none
--   runtime         runtime limit, -1: none
--   held            weight of all unexpired permits; too high if over 1,000 expired permits remain
--   holders_total   number of held permits, on all pages
--   queued          length of the queue
--   last_number     every later token is higher; 0 at first
--   holders         for each held permit, in order of expiry: ID, ms until its lease expires
--   waiters         for each queued request, by ticket, first those without a group: ID, ms waited
--                   (plus head start, unless the nonce begins with "headstartMS-"), ms until its
--                   client is dead (-1: dead)
--   groups          with ARGV[5] only: the number of queued requests with a group; the number of
--                   groups that wait or that hold a permit, the larger one; a list with six values
--                   for each group: GROUP ('': the requests without a group), the weight that it
--                   holds (-1 for ''), its queued requests, of the first of these requests: ms
--                   waited (-1: none), ID, and the runtime cap of the group (-1: none). Groups that
--                   wait come first, in the order of turns, then groups that only hold permits, by
--                   weight, then groups that only have a runtime cap.
-- Errors            SEM_KEYS, SEM_ARG, SEM_TYPE, SEM_VERSION, SEM_GROUPS
-- Cost              O(log N) in all and for each returned group, O(1) for each other returned entry
--                   and each expired permit. Commands:
--   8               no holders, no waiters
--   10              holders and waiters
-- Flags             no-writes
-- include: lib/arguments.lua
-- include: lib/groups.lua
-- include: lib/semaphore.lua

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
