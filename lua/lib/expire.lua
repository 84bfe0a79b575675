-- Removes up to BOUND permits with expired leases, and subtracts them from `permits` and `held`.
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
