-- Functions that check KEYS and ARGV. All checks run before the first write, so a rejected call
-- changes nothing. To reject a call, a function returns an error: a table with the field `err`.

local BOUND = 1000 -- each loop of a script examines at most this many members
local MAX_COUNT = 4294967295 -- the highest limit and weight: 2^32 - 1
local MAX_TIME = 604800000 -- the longest lease and heartbeat timeout: seven days in ms
local MAX_NUMBER = 9007199254740991 -- the highest token and ticket: 2^53 - 1, exact as a double

local function shown(text)
  local short = text and string.gsub(string.sub(text, 1, 40), '[^\32-\126]', '?')
  return text and '"' .. short .. '"' or 'nothing'
end

-- Returns an error unless `keys` are the keys of one semaphore, in the correct order. Without
-- groups, the first four are sufficient. While a cluster slot is migrating, a call with a key that
-- does not exist is rejected, so a call names `order` and `turns` only if groups need them.
local function check_keys(keys)
  local stem = string.match(keys[1] or '', '^([^{}]*:{[^{}]+}):permits$')
  local misnamed = not stem and 1 or keys[2] ~= stem .. ':queue' and 2
    or keys[3] ~= stem .. ':clients' and 3 or keys[4] ~= stem .. ':state' and 4
    or keys[5] and (keys[5] ~= stem .. ':order' and 5 or keys[6] ~= stem .. ':turns' and 6)
  local is_miscounted = #keys ~= 4 and #keys ~= 6
  if is_miscounted or misnamed then
    return redis.error_reply('SEM_KEYS 4 keys are needed, or 6 with groups, in this order: '
      .. 'PREFIX:{NAME}:permits, ...:queue, ...:clients, ...:state, ...:order, ...:turns; got '
      .. (is_miscounted and #keys or shown(keys[misnamed]) .. ' as KEYS[' .. misnamed .. ']'))
  end
end

local function wrong(args, index, name, wanted)
  return redis.error_reply('SEM_ARG ARGV[' .. index .. '] (' .. name .. ') must be ' .. wanted
    .. ', got ' .. shown(args[index]))
end

-- Returns `text` as a number if it is a decimal integer from `min` to `max` without leading zeros.
local function integer(text, min, max)
  local number = text and (string.find(text, '^[1-9]%d*$') or text == '0') and text + 0
  return number and number >= min and number <= max and number
end
