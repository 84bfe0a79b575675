-- Adds.

local function add(a, b)
  -- Of numbers.
  return a + b
end
