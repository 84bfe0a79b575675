-- remember: adds a contact to the front of the recent contacts, or moves it to the front.
--
-- KEYS[1] recent    list: entries, the most recent first
-- ARGV[1] entry     an entry, see lib/entry.lua
-- ARGV[2] most      the largest number of contacts
-- Reply             the number of contacts now
redis.call('LREM', KEYS[1], 0, ARGV[1])
redis.call('LPUSH', KEYS[1], ARGV[1])
redis.call('LTRIM', KEYS[1], 0, ARGV[2] - 1)
return redis.call('LLEN', KEYS[1])
