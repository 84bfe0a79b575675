-- include: lib/add.lua
--[[ Of
a list. ]]
local function total(numbers)
  local sum = 0
  for _, number in ipairs(numbers) do
    sum = add(sum, number)
  end
  return sum
end
