-- inspect: returns the limits, a page of permits, and a page of queued requests. Changes nothing.
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
-- Errors            SEM_KEYS, SEM_ARG, SEM_TYPE, SEM_VERSION, SEM_GROUPS
-- Cost              O(log N), and O(1) for each returned entry and each expired permit. Commands:
--   8               no holders, no waiters
--   10              holders and waiters
-- Flags             no-writes
-- include: lib/arguments.lua
-- include: lib/groups.lua
-- include: lib/semaphore.lua

if #ARGV ~= 4 then return redis.error_reply('SEM_ARG 4 arguments are needed, got ' .. #ARGV) end
local arguments = {'holders_offset', 'holders_count', 'waiters_offset', 'waiters_count'}
for index, argument in ipairs(arguments) do
  local max = index % 2 == 0 and 1000 or MAX_NUMBER
  if not integer(ARGV[index], 0, max) then
    return wrong(ARGV, index, argument, string.format('an integer from 0 to %.0f', max))
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
local ended = redis.call('ZCOUNT', s.permits_key, '(0', s.now)
each(s.permits_key, from, math.min(ended, BOUND), function(id)
  s.held = s.held - (string.match(id, '^%a:[^:]*:(%d+)') or 1)
end)
local held_by, waiting, waiters = {}, {}, {}
each(s.permits_key, from + ended + ARGV[1], ARGV[2] + 0, function(id, held_until)
  held_by[#held_by + 1], held_by[#held_by + 2] = id, held_until - s.now
end)
local function add_waiter(id, ticket)
  waiters[#waiters + 1] = string.match(id, '^%a:([^:]*)') or ''
  waiting[#waiting + 1] = id
  local head_start = string.match(id, ':headstart(%d+)%-[^:]*$') or 0 -- ms
  waiting[#waiting + 1] = math.max(0, s.now - math.floor(math.abs(ticket) / 1000) - head_start)
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
return {
  s.now, s.runtime or s.declared or -1, s.declared or -1, s.runtime or -1,
  s.held, s.permits - ended, s.queued, s.last_number, held_by, waiting,
}
