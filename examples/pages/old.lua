-- The older design, with its faults: a fair semaphore in one script.
--
-- KEYS[1] times      sorted set: holders by the time of the client
-- KEYS[2] holders    sorted set: holders by number
-- KEYS[3] counter    string: the last number
-- ARGV[1] id         the ID of the request
-- ARGV[2] now        time of the client, in milliseconds
-- ARGV[3] timeout    how long a permit is held, in milliseconds
-- ARGV[4] limit      the largest number of holders
-- Reply              1 if granted, 0 if not
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[2] - ARGV[3])
redis.call('ZINTERSTORE', KEYS[2], 2, KEYS[2], KEYS[1], 'WEIGHTS', 1, 0)
redis.call('ZADD', KEYS[1], ARGV[2], ARGV[1])
redis.call('ZADD', KEYS[2], redis.call('INCR', KEYS[3]), ARGV[1])
-- A request that is not granted stays in both sets.
return redis.call('ZRANK', KEYS[2], ARGV[1]) < tonumber(ARGV[4]) and 1 or 0
