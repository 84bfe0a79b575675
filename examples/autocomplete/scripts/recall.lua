-- recall: the recent contacts with this prefix, the most recent first.
--
-- KEYS[1] recent    list: entries, the most recent first
-- ARGV[1] prefix    the compared form, as in an entry; may be empty
-- Reply             the names in their shown form
-- include: lib/entry.lua
local names = {}
for _, entry in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
  -- Comparing bytes is enough, because in UTF-8 no character is a part of another character.
  if string.sub(entry, 1, #ARGV[1]) == ARGV[1] then
    names[#names + 1] = shown(entry)
  end
end
return names
