-- KEYS, and what checks ARGV. All of that runs before the first write, so a call that is refused
-- has changed nothing.

local MAX_COUNT = 4294967295 -- a limit or a weight: an unsigned 32-bit number
local MAX_TIME = 604800000 -- a lease or a liveness: seven days in ms
local MAX_NUMBER = 9007199254740991 -- a token or a ticket: the largest that a double holds exactly

local PERMITS, QUEUE, CLIENTS, STATE = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
-- What all four keys begin with: the prefix, and the semaphore's name in braces.
local stem = string.match(PERMITS or '', '^([^{}]*:{[^{}]+}):permits$')
if #KEYS ~= 4 or not stem or QUEUE ~= stem .. ':queue' or CLIENTS ~= stem .. ':clients'
  or STATE ~= stem .. ':state' then
  return redis.error_reply('SEM_KEYS 4 keys are needed, in this order: PREFIX:{NAME}:permits, '
    .. 'PREFIX:{NAME}:queue, PREFIX:{NAME}:clients, PREFIX:{NAME}:state')
end

local function wrong(index, name, wanted)
  local got = ARGV[index] and string.gsub(string.sub(ARGV[index], 1, 40), '[^\32-\126]', '?')
  return redis.error_reply('SEM_ARG ARGV[' .. index .. '] (' .. name .. ') must be ' .. wanted
    .. ', got ' .. (got and '"' .. got .. '"' or 'nothing'))
end

local function wrong_number(wanted)
  return redis.error_reply('SEM_ARG ' .. wanted .. ' arguments are needed, got ' .. #ARGV)
end

-- Whether a text is a decimal integer, without needless zeros, from `min` to `max`.
local function is_integer(text, min, max)
  return text and #text <= 16 and string.find(text, '^%d+$') and text + 0 >= min and text + 0 <= max
    and (string.byte(text) ~= 48 or text == '0')
end
