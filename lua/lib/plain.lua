-- Whether these are ids as nearly all are: printable ASCII without "+", and each given once. Cheap,
-- for most calls; what else may be right, and what is wrong, is for lib/arguments.lua to say.
-- include: lib/constants.lua

local function are_plain(ids)
  local seen, text = {}, ids[2] and table.concat(ids) or ids[1]
  if not string.find(text, '^[!-~]+$') or string.find(text, '+', 1, true) then
    return false
  end
  for i = 1, #ids do
    local id = ids[i]
    if id == '' or #id > MAX_ID or seen[id] then
      return false
    end
    seen[id] = true
  end
  return true
end
