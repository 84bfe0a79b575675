-- Keeps `remembered`, where there is one, in `clients` for `duration` ms: a client, with all that
-- it waits for, or a mark of `limit`. Of those whose time is over two leave with each that is new.

if remembered then
  local heard_until = now + duration
  local added = redis.call('ZADD', CLIENTS, 'GT', duration, '*', heard_until, remembered)
  if added > 0 then
    has_new_key = has_new_key or added == 2
    local dead = redis.call('ZRANGEBYSCORE', CLIENTS, '(604800000', '(' .. now, 'LIMIT', 0, 2)
    redis.call('ZREM', CLIENTS, '', unpack(dead))
  end
  live_until = math.max(live_until, heard_until)
  last_number = math.max(last_number, now_us - 1) -- shows a step back
end
