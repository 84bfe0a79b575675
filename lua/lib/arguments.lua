-- Checks of KEYS and ARGV. All of them run before the first write, so a call that is refused has
-- changed nothing. A check answers nil when all is well, else the error reply for the caller.
-- include: lib/constants.lua

local function wrong(index, name, wanted)
  local got = ARGV[index]
  if got == nil then
    got = 'nothing'
  else
    got = '"' .. string.gsub(string.sub(got, 1, 40), '[^\32-\126]', '?') .. '"'
  end
  return redis.error_reply(
    'SEM_ARG ARGV[' .. index .. '] (' .. name .. ') must be ' .. wanted .. ', got ' .. got
  )
end

local function check_keys()
  if #KEYS ~= 4 then
    return redis.error_reply(
      'SEM_KEYS 4 keys are needed (permits, queue, waiting, state), got ' .. #KEYS
    )
  end
  -- The types of the keys tell too little: what does not exist has none.
  if not ARE_FOUR_KEYS then
    return redis.error_reply(
      'SEM_KEYS the 4 keys (permits, queue, waiting, state) must differ from each other'
    )
  end
end

local function check_count(count)
  if #ARGV ~= count then
    return redis.error_reply('SEM_ARG ' .. count .. ' arguments are needed, got ' .. #ARGV)
  end
end

-- After the first `fixed` arguments there must be 1 to 1,000 requests of `size` arguments each.
local function check_requests(fixed, size)
  local count = (#ARGV - fixed) / size
  if count < 1 or count > MAX_REQUESTS or count % 1 ~= 0 then
    return redis.error_reply(
      'SEM_ARG 1 to ' .. MAX_REQUESTS .. ' requests of ' .. size
      .. ' arguments must follow the first ' .. fixed .. ', got ' .. #ARGV .. ' in all'
    )
  end
end

local function check_integer(index, name, min, max)
  local text = ARGV[index]
  local number = text and #text <= 16 and string.find(text, '^%d+$') and tonumber(text)
  if not number or number < min or number > max then
    return wrong(index, name, string.format('an integer from %.0f to %.0f', min, max))
  end
end

-- Ids and client names travel in wake-up messages, which are split at white space.
local function check_word(index, name)
  local text = ARGV[index]
  if not text or text == '' or #text > MAX_ID or string.find(text, '[%s%c]') then
    return wrong(
      index, name, '1 to ' .. MAX_ID .. ' bytes without white space or control characters'
    )
  end
end

-- An id that stands twice in a call has no single answer.
local function check_id(index, seen)
  local id = ARGV[index]
  if seen[id] then
    return wrong(index, 'id', 'given once in a call')
  end
  seen[id] = true
  -- '+' begins the names of the marks that `limit add` keeps among the permits.
  if id and string.sub(id, 1, 1) == '+' then
    return wrong(index, 'id', 'an id that does not begin with "+"')
  end
  return check_word(index, 'id')
end

-- How the client hears of a hand-off.
local function check_wake(index)
  local wake = ARGV[index]
  if wake ~= 'publish' and wake ~= 'spublish' and wake ~= 'poll' then
    return wrong(index, 'wake', '"publish", "spublish" or "poll"')
  end
end
