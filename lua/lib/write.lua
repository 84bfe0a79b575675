-- Makes the remaining writes, then publishes the grant messages. If the server rejects a write (too
-- few replicas, a full disk), the script ends before it notifies a client. The first ID in
-- `granted` gets the token `token`, and each further ID gets the next number. `wake_in` is 0 if a
-- bound was reached. Otherwise, if `waits` is true and a lease exists, `wake_in` is the time in ms
-- until the next lease may expire. In all other cases, `wake_in` is -1.

local token = math.max(last_number + 1, now_us)
local entries, text = {}, nil
for i = 1, #granted do
  local lease = leases[i]
  if lease ~= leases[i - 1] then
    local held_until = now + lease
    -- If all leases in use begin now, the longest of them is the longest lease.
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
  local must_last = math.max(live_until, math.floor(last_number / 1000)) -- so numbers only grow
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
      redis.pcall('PEXPIREAT', key, expire_at) -- fails if a migrating slot lacks the key
    end
  end
  if runtime and has_new_runtime then
    redis.call('PERSIST', STATE) -- a runtime limit stays until it is cleared
  elseif not runtime and (moves or has_new_runtime) then
    redis.call('PEXPIREAT', STATE, expire_at + 7200000) -- so numbers grow if the clock is set back
  end
end
-- The queue is written last: a ZREM may empty it, and no script may access a key that it emptied.
if leaving then
  for from = 1, #leaving, 1000 do
    redis.call('ZREM', QUEUE, unpack(leaving, from, math.min(from + 999, #leaving)))
  end
  local lines_for = {} -- the lines of each message, by channel
  for _, it in ipairs(notices) do
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
