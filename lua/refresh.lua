-- refresh: starts the lease of permits anew, if they are still held.
--
-- An ended lease is lost, also when nothing has purged it yet.
--
-- KEYS[1] permits   sorted set: permit id -> end of lease, ms on the server's clock
-- KEYS[2] queue     sorted set: request id -> ticket
-- KEYS[3] waiting   hash: request id -> weight, lease, heard until, wake, client
-- KEYS[4] state     hash: version, limits, last sequence number, weights above 1
-- ARGV[1+] requests 1 to 1000 times: id, lease
--   id              1 to 256 bytes, as given to `acquire`
--   lease           1 to 604800000 ms from now
-- Reply             server time (ms), wake_in, then for each id one integer:
--   end             the new end of lease, ms on the server's clock
--   0               lost
--   wake_in         0: call `wake` at once, -1 no need
-- Errors            SEM_KEYS, SEM_ARG, SEM_TYPE, SEM_VERSION
-- Cost              O(log N) for each id and each waiter served. Commands for one id:
--   8               held
-- Flags             allow-oom
-- include: lib/plain.lua

-- The ids, nil where anything about the arguments wants a closer look.
local function read_requests()
  if not ARE_FOUR_KEYS or #ARGV < 2 or #ARGV > 2 * MAX_REQUESTS or #ARGV % 2 ~= 0 then
    return
  end
  local ids, leases, numbers = {}, {}, ''
  for i = 1, #ARGV / 2 do
    local id, lease = ARGV[2 * i - 1], ARGV[2 * i]
    if #lease > 8 or lease < '1' then
      return
    end
    if lease ~= leases[i - 1] then
      numbers = numbers .. lease
    end
    ids[i], leases[i] = id, lease
  end
  if string.find(numbers, '^%d+$') and are_plain(ids) then
    return ids
  end
end

-- include: lib/queue.lua

local function check()
-- include: lib/arguments.lua
  local refusal = check_keys() or check_requests(0, 2)
  local seen, index = {}, 1
  while not refusal and index <= #ARGV do
    refusal = check_id(index, seen) or check_integer(index + 1, 'lease', 1, MAX_LEASE)
    index = index + 2
  end
  return refusal
end

local function refresh()
  local ids = read_requests()
  local sem, refusal = open(not ids and check() or nil)
  if refusal then
    return refusal
  end
  repair(sem)
  if not ids then
    ids = {}
    for index = 1, #ARGV, 2 do
      ids[#ids + 1] = ARGV[index]
    end
  end
  local reply = {sem.now, 0}
  for i, ends in ipairs(ends_of(sem, ids)) do
    if ends and ends > sem.now then
      reply[i + 2] = renew(sem, ids[i], tonumber(ARGV[2 * i]))
    else
      reply[i + 2] = 0
    end
  end
  if #sem.writes > 0 then
    touch_permits() -- Holders keep what they have.
  end
  write_permits(sem)
  hand_off(sem)
  reply[2] = wake_in(sem, false)
  finish(sem)
  return reply
end

return refresh()
