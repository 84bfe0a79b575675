-- complete: members whose names begin so, in alphabetical order.
--
-- KEYS[1] members   sorted set: entries, all with the score 0
-- ARGV[1] prefix    what is compared, as in an entry; it may be empty
-- ARGV[2] most      how many names are wanted
-- Reply             the names as they are shown
-- Cost              O(log N + the names)
-- include: lib/entry.lua
-- Every entry that begins so is below the byte 255, which is nowhere in UTF-8.
local low, high = '[' .. ARGV[1], '(' .. ARGV[1] .. '\255'
local names = {}
for _, entry in ipairs(redis.call('ZRANGEBYLEX', KEYS[1], low, high, 'LIMIT', 0, ARGV[2])) do
  names[#names + 1] = shown(entry)
end
return names
