-- Adds.

local function add(a, b)
  -- Both are numbers.
  return a + b
end
