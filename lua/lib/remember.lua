-- Keeps the caller, if it may be queued, as heard of for ARGV[3] ms, with all that it waits for.
-- Of the clients whose time is over two leave with each that is new.

if may_queue then
  local heard_until = now + liveness
  local added = redis.call('ZADD', CLIENTS, 'GT', ARGV[3], '*', heard_until, parts[1][2])
  if added > 0 then
    has_new_key = has_new_key or added == 2
    -- Not `*`, whose score is MAX_TIME at most.
    local dead = redis.call('ZRANGEBYSCORE', CLIENTS, '(' .. MAX_TIME, '(' .. now, 'LIMIT', 0, 2)
    redis.call('ZREM', CLIENTS, '', unpack(dead)) -- the first is nobody: there may be no dead
  end
  live_until = math.max(live_until, heard_until)
  last_number = math.max(last_number, now_us - 1) -- a later step back will show
end
