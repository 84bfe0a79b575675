-- recall: the recent contacts that begin so, the most recent first.
--
-- KEYS[1] recent    list: entries, the most recent first
-- ARGV[1] prefix    what is compared, as in an entry; it may be empty
-- Reply             the names as they are shown
-- include: lib/entry.lua
local names = {}
for _, entry in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
  -- By bytes: in UTF-8 no character is a part of another one.
  if string.sub(entry, 1, #ARGV[1]) == ARGV[1] then
    names[#names + 1] = shown(entry)
  end
end
return names
