-- Whether these are ids as nearly all are: printable ASCII, and each given once. Cheap, for most
-- calls; what else may be right, and what is wrong, is for lib/arguments.lua to say.
-- include: lib/constants.lua

local function are_plain(ids)
  local seen = {}
  for _, id in ipairs(ids) do
    if id == '' or #id > MAX_ID or seen[id] or string.byte(id) == 43 then
      return false
    end
    seen[id] = true
  end
  return string.find(table.concat(ids), '^[!-~]+$') ~= nil
end
