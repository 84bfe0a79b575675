-- Functions that add requests to the queue, and keep the record of the waiting clients.

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
