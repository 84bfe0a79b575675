-- Removes expired leases, so that `permits` and `held` are correct. Dead holders and clients must
-- not count for too long if the clock was set back. So the script limits the expiry of a lease to
-- now plus the longest lease, and the score of a client to now plus the longest heartbeat timeout.

if is_set_back then
  redis.call('ZREM', PERMITS, '') -- removes nothing; lets a full server accept the ZADD below
  local longest_timeout = redis.call('ZSCORE', CLIENTS, '*') or 0
  for key, latest in pairs({[PERMITS] = now + longest_lease, [CLIENTS] = now + longest_timeout}) do
    local beyond = redis.call('ZRANGEBYSCORE', key, '(' .. latest, '+inf', 'LIMIT', 0, BOUND)
    for _, member in ipairs(beyond) do
      redis.call('ZADD', key, latest, member)
    end
    first_expiry, more = beyond[1] and 0 or first_expiry, more or #beyond == BOUND
  end
end
if first_expiry <= now then
  local ended = redis.call('ZRANGEBYSCORE', PERMITS, '(0', now, 'LIMIT', 0, BOUND)
  for _, id in ipairs(ended) do
    permits, held = permits - 1, held - (string.match(id, '^%a:[^:]*:(%d+)') or 1)
  end
  if ended[1] then
    redis.call('ZREM', PERMITS, unpack(ended))
  end
  local first = redis.call('ZRANGEBYSCORE', PERMITS, '(0', '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  first_expiry, more = (first[2] or MAX_NUMBER) + 0, more or #ended == BOUND
  changed.first_expiry = first_expiry
  live_until = math.max(live_until, now)
end
