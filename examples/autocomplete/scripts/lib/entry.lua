-- An entry is the compared form, a zero byte, and the shown form: "zoë\0Zoë". Names contain no zero
-- byte.
local function shown(entry)
  return string.sub(entry, string.find(entry, '\0', 1, true) + 1)
end
