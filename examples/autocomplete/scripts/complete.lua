-- complete: members with this prefix, in alphabetical order.
--
-- KEYS[1] members   sorted set: entries, all with the score 0
-- ARGV[1] prefix    the compared form, as in an entry; may be empty
-- ARGV[2] most      the largest number of names
-- Reply             the names in their shown form
-- Cost              O(log N + the names)
-- include: lib/entry.lua
-- Every entry with this prefix sorts before the prefix with a byte 255 at its end. UTF-8 does not
-- use this byte.
local low, high = '[' .. ARGV[1], '(' .. ARGV[1] .. '\255'
local names = {}
for _, entry in ipairs(redis.call('ZRANGEBYLEX', KEYS[1], low, high, 'LIMIT', 0, ARGV[2])) do
  names[#names + 1] = shown(entry)
end
return names
