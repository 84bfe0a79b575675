-- Whether these are ids as nearly all are: printable ASCII, and each given once. Cheap, for most
-- calls; what else may be right, and what is wrong, is for lib/arguments.lua to say.
-- include: lib/constants.lua

local function are_plain(ids)
  local seen, byte = {}, string.byte
  for i = 1, #ids do
    local id = ids[i]
    if id == '' or #id > MAX_ID or seen[id] or byte(id) == 43 then
      return false
    end
    seen[id] = true
  end
  return string.find(ids[2] and table.concat(ids) or ids[1], '^[!-~]+$') ~= nil
end
