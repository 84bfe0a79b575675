-- Defines functions that check the requests in ARGV. `read_id` also adds the ID to `asked`.

-- Returns an error unless ARGV has `fixed` arguments, then 1 to 1,000 requests of `each` arguments.
local function check_count(fixed, each)
  local count = (#ARGV - fixed) / each
  if count < 1 or count > 1000 or count % 1 ~= 0 then
    return redis.error_reply('SEM_ARG 1 to 1000 requests of ' .. each
      .. ' arguments must follow the first ' .. fixed .. ', got ' .. #ARGV .. ' in all')
  end
end

local asked = {} -- ID of this call -> index in `granted` (0: not granted)
local start, size, said -- of the last ID: text before the nonce, length of this text, parts

-- Returns {notify, client, weight, lease} for the ID in ARGV[index], or an error. If `weight` is
-- nil, any weight of 1 or more is valid. Otherwise the ID must have the given weight.
local function read_id(index, name, weight)
  local id = ARGV[index]
  if not start or find(id, start, 1, true) ~= 1 then
    local pattern = '^([PSN]):([%w._-]+):(' .. (weight or '[1-9]%d*') .. '):([1-9]%d*):()'
    local notify, client, weighs, lease, nonce = string.match(id, pattern)
    said = notify and #client <= 100 and {notify, client, weighs + 0, lease + 0}
    if not said or said[3] > MAX_COUNT or said[4] > MAX_TIME then
      return wrong(index, name, 'NOTIFY:CLIENT:WEIGHT:LEASE:NONCE with a client of 1 to 100 '
        .. 'characters, a weight ' .. (weight and 'of ' .. weight or 'from 1 to 4294967295')
        .. ' and a lease from 1 to 604800000')
    end
    start, size = sub(id, 1, nonce - 1), nonce - 1
  end
  if #id < size + 16 or #id > size + 64 or not find(id, '^[A-Za-z0-9_-]+$', size + 1) then
    return wrong(index, name, 'one with a nonce of 16 to 64 letters, digits, "_" or "-"')
  elseif asked[id] then
    return wrong(index, name, 'given once in a call')
  end
  asked[id] = 0
  return said
end
