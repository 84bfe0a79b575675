-- Checks of the words in ARGV. Leaves them in `asked`.

-- The error if there are not 1 to 1,000 requests of `size` arguments after the first `fixed`.
local function check_count(fixed, size)
  local count = (#ARGV - fixed) / size
  if count < 1 or count > 1000 or count % 1 ~= 0 then
    return redis.error_reply('SEM_ARG 1 to 1000 requests of ' .. size
      .. ' arguments must follow the first ' .. fixed .. ', got ' .. #ARGV .. ' in all')
  end
end

local asked = {} -- the words of this call, and where in `granted` they are: 0, nowhere
local start, said, size = nil, nil, 0 -- mostly all words begin alike, up to the nonce

-- What the word ARGV[index] says, {how, client, weight, lease}; or the error.
local function read_word(index, name, min_weight, max_weight)
  local word = ARGV[index]
  if sub(word, 1, size) ~= start then
    local how, client, weight, lease, nonce =
      string.match(word, '^([PSN]):([%w._-]+):(%d+):(%d+):()')
    weight, lease = integer(weight, min_weight, max_weight), integer(lease, 1, MAX_TIME)
    if not weight or not lease or #client > 100 then
      return wrong(index, name, 'HOW:CLIENT:WEIGHT:LEASE:NONCE with a weight from '
        .. min_weight .. ' to ' .. max_weight)
    end
    size, said = nonce - 1, {how, client, weight, lease}
    start = sub(word, 1, size)
  end
  if #word < size + 16 or #word > size + 64 or not find(word, '^[%w_-]+$', size + 1) then
    return wrong(index, name, 'one with a nonce of 16 to 64 letters, digits, "_" or "-"')
  elseif asked[word] then
    return wrong(index, name, 'given once in a call')
  end
  asked[word] = 0
  return said
end
