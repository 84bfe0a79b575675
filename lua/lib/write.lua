-- Writes what was decided and is not written yet, and tells last: a write that the server refuses
-- (too few replicas, no disk) ends the script before anybody is told. `token` is that of the first
-- ID of `granted`, the next ones count on. `wake_in` is 0 where a bound was met, else in how
-- many ms the next lease may end, if somebody `waits` for that and is to call `wake` then.

local token = math.max(last_number + 1, now_us)
local entries, text = {}, nil
for i = 1, #granted do
  local lease = leases[i]
  if lease ~= leases[i - 1] then
    local held_until = now + lease
    -- Where all leases in use begin now, none is longer than the longest of these.
    if lease > longest_lease or i == 1 and #granted == permits and lease ~= longest_lease then
      longest_lease, changed.longest_lease = lease, lease
    end
    if held_until < first_expiry then
      first_expiry, changed.first_expiry = held_until, held_until
    end
    live_until = math.max(live_until, held_until)
    text = string.format('%.0f', held_until)
  end
  entries[2 * i - 1], entries[2 * i] = text, granted[i]
end
if granted[1] then
  last_number = token + #granted - 1
end
if held - permits ~= extra and (extra or permits > 0) then
  entries[#entries + 1], entries[#entries + 2] = permits - held, '*'
  live_until = math.max(live_until, now)
end
for from = 1, #entries, 1000 do
  redis.call('ZADD', PERMITS, unpack(entries, from, math.min(from + 999, #entries)))
end
if live_until > 0 then
  local must_last = math.max(live_until, math.floor(last_number / 1000)) -- numbers must not go back
  local moves = must_last > expire_at
  if moves then
    expire_at = must_last + math.max(60000, must_last - now)
    changed.expire_at = expire_at
  end
  local fields = {'last_number', last_number}
  for field, value in pairs(changed) do
    fields[#fields + 1], fields[#fields + 2] = field, value
  end
  redis.call('HSET', STATE, unpack(fields))
  if moves or has_new_key then
    for _, key in ipairs({PERMITS, QUEUE, CLIENTS}) do
      redis.pcall('PEXPIREAT', key, expire_at) -- one that is empty may have moved to another node
    end
  end
  if runtime and has_new_runtime then
    redis.call('PERSIST', STATE) -- a limit set at run time stays until it is cleared
  elseif not runtime and (moves or has_new_runtime) then
    redis.call('PEXPIREAT', STATE, expire_at + 7200000) -- so numbers grow on if the clock steps back
  end
end
-- Last, since the queue may be empty after that.
if leaving then
  for from = 1, #leaving, 1000 do
    redis.call('ZREM', QUEUE, unpack(leaving, from, math.min(from + 999, #leaving)))
  end
  local lines_for = {} -- of each message, by channel
  for _, it in ipairs(told) do
    local id, channel, notify, index = unpack(it)
    local lines = lines_for[channel] or {string.match(stem, '{(.*)}'), notify = notify}
    lines[#lines + 1] = string.format('%s %.0f %.0f', id,
      index and token + index - 1 or 0, index and now + leases[index] or 0)
    lines_for[channel] = lines
  end
  for channel, lines in pairs(lines_for) do
    local command = lines.notify == 'S' and 'SPUBLISH' or 'PUBLISH'
    redis.pcall(command, channel, table.concat(lines, '\n'))
  end
end
local wake_in = more and 0
  or waits and first_expiry < MAX_NUMBER and math.max(1, first_expiry - now) or -1
