-- Functions that check the IDs in ARGV.

-- Returns the parts of the ID in `args[index]`, or an error. `last` is the table with the parts of
-- the previous ID. If the two IDs differ only in their nonces, `last` is returned. Adds the ID to
-- `asked`, the set of the call's IDs. If `weight` is nil, any weight of 1 or more is valid.
local function read_id(args, index, name, asked, last, weight)
  local id, parts = args[index], last
  if not parts or string.find(id, parts.start, 1, true) ~= 1
    or string.find(id, ',', #parts.start, true) then -- only this ID has a group
    local pattern = '^([PSN]):([%w._-]+):(%d+):([1-9]%d*):()'
    local notify, client, weighs, lease, nonce = string.match(id, pattern)
    local fits = notify and integer(weighs, weight or 1, weight or MAX_COUNT)
    if not fits or #client > 100 or lease + 0 > MAX_TIME then
      return wrong(args, index, name, 'NOTIFY:CLIENT:WEIGHT:LEASE:NONCE with a client of 1 to 100 '
        .. 'characters, a weight ' .. (weight and 'of ' .. weight or 'from 1 to 4294967295')
        .. ' and a lease from 1 to 604800000')
    end
    local group, share, cap, after
    if string.find(id, ',', nonce, true) then
      group, share, cap, after = string.match(id, '^([%w._-]+),(%d+),(%d+):()', nonce)
    end
    if group and (#group > 64 or not integer(share, 1, 1000)
      or cap ~= '0' and not integer(cap, fits, MAX_COUNT)) then
      return wrong(args, index, name, 'one with a group of 1 to 64 characters, a share from 1 to '
        .. '1000, and a cap that is 0 or from the weight to 4294967295')
    end
    parts = {
      notify = notify, client = client, weight = weighs + 0, lease = lease + 0,
      group = group, share = (share or 1) + 0, cap = (cap or 0) + 0, -- cap 0: none
      start = string.sub(id, 1, (after or nonce) - 1),
    }
  end
  local size = #parts.start
  if #id < size + 16 or #id > size + 64 or not string.find(id, '^[A-Za-z0-9_-]+$', size + 1) then
    return wrong(args, index, name, 'one with a nonce of 16 to 64 letters, digits, "_" or "-"')
  elseif asked[id] then
    return wrong(args, index, name, 'given once in a call')
  end
  asked[id] = true
  return parts
end

-- Returns an error, or three tables: the IDs, the parts of each ID, and the set of the IDs. The
-- requests follow the first `fixed` arguments. Each request has `size` arguments: first, its ID.
local function read_ids(args, fixed, size)
  local count, ids, parts, asked = (#args - fixed) / size, {}, {}, {}
  if count < 1 or count > 1000 or count % 1 ~= 0 then
    return redis.error_reply('SEM_ARG 1 to 1000 requests of ' .. size
      .. ' arguments must follow the first ' .. fixed .. ', got ' .. #args .. ' in all')
  end
  local last
  for i = 1, count do
    local index = fixed + 1 + (i - 1) * size
    last = read_id(args, index, 'id', asked, last)
    if last.err then return last end
    ids[i], parts[i] = args[index], last
  end
  return ids, parts, asked
end
