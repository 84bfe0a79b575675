-- Makes the remaining writes, then publishes the grant messages. If the server rejects a write (too
-- few replicas, a full disk), the script ends before it publishes a message.

-- Writes the permits in `granted`. Their tokens are consecutive numbers; `s.token` is the first.
local function write_permits(s)
  local granted, leases, now, entries, text = s.granted, s.leases, s.now, {}, nil
  s.token = math.max(s.last_number + 1, s.now_us)
  for i = 1, #granted do
    local lease = leases[i]
    if lease ~= leases[i - 1] then
      local held_until = now + lease
      -- If the leases of all permits begin now, `longest_lease` is the longest of these leases.
      local is_longest = lease > s.longest_lease or i == 1 and #granted == s.permits
      if is_longest and lease ~= s.longest_lease then
        s.longest_lease, s.changed.longest_lease = lease, lease
      end
      if held_until < s.first_expiry then
        s.first_expiry, s.changed.first_expiry = held_until, held_until
      end
      s.live_until = math.max(s.live_until, held_until)
      text = held_until .. '' -- exact, because it has at most 14 digits
    end
    entries[2 * i - 1], entries[2 * i] = text, granted[i]
  end
  if granted[1] then
    s.last_number = s.token + #granted - 1
  end
  local extra = s.held - s.permits
  if extra ~= s.extra and (s.extra or s.permits > 0) then
    entries[#entries + 1], entries[#entries + 2] = -extra, '*'
    s.live_until = math.max(s.live_until, now)
  end
  if s.groups then
    s.groups.write_held(entries)
  end
  for from = 1, #entries, 1000 do
    redis.call('ZADD', s.permits_key, unpack(entries, from, math.min(from + 999, #entries)))
  end
end

local function write_state(s)
  local expire_at = s.expire_at
  -- Without `state`, tokens begin at the clock. So `must_last` is at least `last_number` in ms.
  local must_last = math.max(s.live_until, math.floor(s.last_number / 1000))
  local moves = must_last > expire_at
  if moves then
    expire_at = must_last + math.max(60000, must_last - s.now)
    s.changed.expire_at = expire_at
  end
  local stays = s.runtime or s.caps -- until it is cleared
  if s.has_new_runtime and stays then
    -- `runtime` contains the runtime limit ("-" without one), and GROUP=CAP for each runtime cap.
    local runtime = string.format(s.runtime and '%.0f' or '-', s.runtime)
    for group, cap in pairs(s.caps or {}) do
      runtime = string.format('%s %s=%.0f', runtime, group, cap)
    end
    s.changed.runtime = runtime
  elseif s.has_new_runtime then
    redis.call('HDEL', s.state_key, 'runtime')
  end
  if s.virtual then
    s.changed.virtual = s.virtual
  end
  local fields = {'last_number', s.last_number}
  for field, value in pairs(s.changed) do
    fields[#fields + 1], fields[#fields + 2] = field, value
  end
  redis.call('HSET', s.state_key, unpack(fields))
  if moves or s.has_new_key then
    for index, key in ipairs(s.keys) do
      if index < 4 or index > 4 and s.virtual then
        -- This fails if the slot is migrating and has no such key.
        redis.pcall('PEXPIREAT', key, expire_at)
      end
    end
  end
  if stays and s.has_new_runtime then
    redis.call('PERSIST', s.state_key)
  elseif not stays and (moves or s.has_new_runtime) then
    -- `state` expires later, so tokens grow even if the clock is set back by under 2 hours.
    redis.call('PEXPIREAT', s.state_key, expire_at + 7200000)
  end
end

-- Publishes one message per channel in `notices`: the semaphore's name, then a line per request.
local function publish(s)
  local lines_of = {} -- the lines of each message, by channel
  for _, notice in ipairs(s.notices) do
    local channel, index = notice.channel, s.index_of[notice.id]
    local lines = lines_of[channel]
      or {string.match(s.permits_key, '{(.*)}'), notify = notice.notify}
    lines[#lines + 1] = string.format('%s %.0f %.0f', notice.id,
      index and s.token + index - 1 or 0, index and s.now + s.leases[index] or 0)
    lines_of[channel] = lines
  end
  for channel, lines in pairs(lines_of) do
    local command = lines.notify == 'S' and 'SPUBLISH' or 'PUBLISH'
    redis.pcall(command, channel, table.concat(lines, '\n'))
  end
end

-- Writes the decisions, and returns `wake_in`: 0 if a bound was reached. Otherwise, it is -1 if
-- `should_call` is false or no lease can expire, or else the ms until the next lease may expire.
local function commit(s, should_call)
  write_permits(s)
  if s.live_until > 0 then
    write_state(s)
  end
  -- The ZREM comes last, because it may empty the queue: a script must not access an emptied key.
  local leaving = s.leaving
  for from = 1, #leaving, 1000 do
    redis.call('ZREM', s.queue_key, unpack(leaving, from, math.min(from + 999, #leaving)))
  end
  if s.notices[1] then
    publish(s)
  end
  return s.more and 0
    or should_call and s.first_expiry < MAX_NUMBER and math.max(1, s.first_expiry - s.now) or -1
end
