-- An entry is what is compared, a zero byte, and what is shown: "zoë\0Zoë". No name has a zero byte.
local function shown(entry)
  return string.sub(entry, string.find(entry, '\0', 1, true) + 1)
end
