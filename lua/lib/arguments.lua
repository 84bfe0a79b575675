-- Checks of KEYS and ARGV. All of them run before the first write, so a call that is refused has
-- changed nothing. `refusal` is the error reply for the first thing that is wrong.

local MAX_COUNT = 4294967295 -- a limit or a weight: an unsigned 32-bit number
local MAX_TIME = 604800000 -- a lease or a liveness: seven days in ms
local MAX_NUMBER = 9007199254740991 -- a token or a ticket: the largest that a double holds exactly

local PERMITS, QUEUE, CLIENTS, STATE = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local refusal

-- What all four keys begin with: the prefix, and the semaphore's name in braces.
local stem = string.match(PERMITS or '', '^([^{}]*:{[^{}]+}):permits$')
if #KEYS ~= 4 or not stem or QUEUE ~= stem .. ':queue' or CLIENTS ~= stem .. ':clients'
  or STATE ~= stem .. ':state' then
  refusal = redis.error_reply('SEM_KEYS 4 keys are needed, in this order: PREFIX:{NAME}:permits, '
    .. 'PREFIX:{NAME}:queue, PREFIX:{NAME}:clients, PREFIX:{NAME}:state')
end

local function wrong(index, name, wanted)
  local got = ARGV[index] and string.gsub(string.sub(ARGV[index], 1, 40), '[^\32-\126]', '?')
  refusal = refusal or redis.error_reply('SEM_ARG ARGV[' .. index .. '] (' .. name .. ') must be '
    .. wanted .. ', got ' .. (got and '"' .. got .. '"' or 'nothing'))
end

-- Whether a text is a decimal integer, without needless zeros, from `min` to `max`.
local function is_integer(text, min, max)
  return text and #text <= 16 and string.find(text, '^%d+$') and text + 0 >= min and text + 0 <= max
    and (string.byte(text) ~= 48 or text == '0')
end

local function check_count(count)
  if #ARGV ~= count then
    refusal = refusal
      or redis.error_reply('SEM_ARG ' .. count .. ' arguments are needed, got ' .. #ARGV)
  end
end

-- After the first `fixed` arguments there must be 1 to 1,000 requests of `size` arguments each.
local function check_requests(fixed, size)
  local count = (#ARGV - fixed) / size
  if count < 1 or count > 1000 or count % 1 ~= 0 then
    refusal = refusal or redis.error_reply('SEM_ARG 1 to 1000 requests of ' .. size
      .. ' arguments must follow the first ' .. fixed .. ', got ' .. #ARGV .. ' in all')
  end
end

local asked = {} -- the words of this call

-- The words among the arguments, from `from` on one in `step`, which are called `name`; and what
-- each says, {how, client, weight, lease}.
local function read_words(name, from, step, min_weight, max_weight)
  local words, parts, sub, find = {}, {}, string.sub, string.find
  local start, said, size = nil, nil, 0 -- mostly all words begin alike, up to the nonce
  for index = from, refusal and 0 or #ARGV, step do
    local word = ARGV[index]
    if sub(word, 1, size) ~= start then
      local how, client, weight, lease, nonce =
        string.match(sub(word, 1, 256), '^([PSN]):([%w._-]+):(%d+):(%d+):()')
      if not how or #client > 100 or not is_integer(weight, min_weight, max_weight)
        or not is_integer(lease, 1, MAX_TIME) then
        wrong(index, name, 'HOW:CLIENT:WEIGHT:LEASE:NONCE with a weight from '
          .. min_weight .. ' to ' .. max_weight)
        return words, parts
      end
      size, said = nonce - 1, {how, client, weight + 0, lease + 0}
      start = sub(word, 1, size)
    end
    if #word < size + 16 or #word > size + 64 or not find(word, '^[%w_-]+$', size + 1) then
      wrong(index, name, 'one with a nonce of 16 to 64 letters, digits, "_" or "-"')
    elseif asked[word] then
      wrong(index, name, 'given once in a call')
    end
    local i = #words + 1
    words[i], parts[i], asked[word] = word, said, true
  end
  return words, parts
end

-- Where a client hears of its permits.
local function channel_of(how, client)
  return string.match(stem, how == 'S' and '.*' or '^(.*):{') .. ':wake:' .. client
end
