-- Checks KEYS, and defines checks of ARGV. All checks run before the first write, so a rejected
-- call changes nothing.

local MAX_COUNT = 4294967295 -- the highest limit and weight: 2^32 - 1
local MAX_TIME = 604800000 -- the longest lease and heartbeat timeout: seven days in ms
local MAX_NUMBER = 9007199254740991 -- the highest token and ticket: 2^53 - 1, exact as a double
local ARGV, sub, find = ARGV, string.sub, string.find -- faster than globals

local PERMITS, QUEUE, CLIENTS, STATE = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
-- The common beginning of the four keys: the prefix, and the semaphore's name in braces.
local stem = string.match(PERMITS or '', '^([^{}]*:{[^{}]+}):permits$')
local misnamed = not stem and 1 or QUEUE ~= stem .. ':queue' and 2
  or CLIENTS ~= stem .. ':clients' and 3 or STATE ~= stem .. ':state' and 4

local function shown(text)
  local short = text and string.gsub(sub(text, 1, 40), '[^\32-\126]', '?')
  return text and '"' .. short .. '"' or 'nothing'
end

if #KEYS ~= 4 or misnamed then
  return redis.error_reply('SEM_KEYS 4 keys are needed, in this order: PREFIX:{NAME}:permits, '
    .. 'PREFIX:{NAME}:queue, PREFIX:{NAME}:clients, PREFIX:{NAME}:state; got '
    .. (#KEYS ~= 4 and #KEYS or shown(KEYS[misnamed]) .. ' as KEYS[' .. misnamed .. ']'))
end

local function wrong(index, name, wanted)
  return redis.error_reply('SEM_ARG ARGV[' .. index .. '] (' .. name .. ') must be ' .. wanted
    .. ', got ' .. shown(ARGV[index]))
end

local function wrong_number(wanted)
  return redis.error_reply('SEM_ARG ' .. wanted .. ' arguments are needed, got ' .. #ARGV)
end

-- Returns `text` as a number if it is a decimal integer from `min` to `max` without leading zeros.
local function integer(text, min, max)
  local number = text and (find(text, '^[1-9]%d*$') or text == '0') and text + 0
  return number and number >= min and number <= max and number
end
