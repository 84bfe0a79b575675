-- The queue: requests in the order of their tickets, and the hand-off to its head.
-- include: lib/permits.lua

local LOOK_CHUNK = 100
local LOOK_BOUND = 1000 -- waiters that one script looks at at most

-- A waiter's record in `waiting`.
local function record(sem, weight, lease, liveness, wake, client)
  local heard_until = sem.now + liveness
  need_until(sem, heard_until)
  return table.concat({weight, lease, string.format('%.0f', heard_until), wake, client}, ' ')
end

-- Puts a request in the queue. `write_queue` must follow.
local function enqueue(sem, id, ticket, value)
  sem.new_queue = sem.new_queue or sem.queued == 0 or sem.waiting <= 0
  sem.queued = sem.queued + 1
  sem.tickets[#sem.tickets + 1] = ticket
  sem.tickets[#sem.tickets + 1] = id
  sem.records[#sem.records + 1] = id
  sem.records[#sem.records + 1] = value
end

-- Removes ids (at most 1,000) that are members of `queue`. The last ones are only noted as `left`.
local function leave_queue(sem, ids)
  if #ids == 0 then
    return
  end
  if #ids < sem.queued then
    redis.call('ZREM', QUEUE, unpack(ids))
    sem.waiting = sem.waiting - redis.call('HDEL', WAITING, unpack(ids))
  else
    redis.call('ZREM', QUEUE, '') -- as touch_permits does
    sem.left, sem.waiting = ids, 0
  end
  sem.queued = sem.queued - #ids
end

local function remove_left(sem)
  if #sem.left > 0 then
    redis.call('ZREM', QUEUE, unpack(sem.left))
    redis.call('HDEL', WAITING, unpack(sem.left))
    sem.left = {}
  end
end

local function write_queue(sem)
  if #sem.tickets > 0 then
    call_in_chunks('ZADD', QUEUE, sem.tickets)
    call_in_chunks('HSET', WAITING, sem.records)
    sem.tickets, sem.records = {}, {}
    remove_left(sem)
  end
end

-- The tickets of ids.
local function tickets_of(sem, ids)
  return scores_of(QUEUE, sem.queued, ids)
end

local function read_waiter(value)
  local weight, lease, heard_until, wake, client =
    string.match(value or '', '^(%d+) (%d+) (%d+) (%a+) (%S+)$')
  return {
    weight = tonumber(weight),
    lease = tonumber(lease),
    heard_until = tonumber(heard_until),
    wake = wake,
    client = client,
  }
end

-- Gives what is free to the queue, in its order, until its head does not fit. Waiters whose client
-- is gone, or was not heard of in time, leave the queue without a permit.
local function serve_queue(sem)
  -- Whether anybody listens at a waiter's address: a client that is gone is granted nothing. Where
  -- the server refuses to say, the client counts as there.
  local function is_listening(waiter)
    if waiter.wake == 'poll' then
      return true
    end
    local known = sem.listens[waiter.client]
    if known == nil then
      local count = waiter.wake == 'spublish' and 'SHARDNUMSUB' or 'NUMSUB'
      local answer = redis.pcall('PUBSUB', count, waiter.client)
      known = answer.err ~= nil or answer[2] ~= 0
      sem.listens[waiter.client] = known
    end
    return known
  end

  -- Has a waiter's client told of its grant, or with token 0 that it left the queue without one.
  -- `finish` must follow.
  local function tell(waiter, id, token, ends)
    if waiter.wake == 'poll' or sem.asking[id] then
      return
    end
    local message = sem.messages[waiter.client]
    if not message then
      local command = waiter.wake == 'spublish' and 'SPUBLISH' or 'PUBLISH'
      message = {command = command, lines = {string.match(PERMITS, '{(.*)}') or PERMITS}}
      sem.messages[waiter.client] = message
    end
    message.lines[#message.lines + 1] = string.format('%s %.0f %.0f', id, token, ends)
  end

  -- What the queue's head gets: true when it leaves the queue, false when it must wait.
  local function serve(id, waiter)
    local is_here = sem.asking[id]
      or (waiter.weight and waiter.heard_until >= sem.now and is_listening(waiter))
    if not is_here then
      return true
    end
    if not sem.runtime and waiter.weight > sem.limit then
      tell(waiter, id, 0, 0)
      return true
    end
    if not make_room(sem, waiter.weight) then
      return false
    end
    grant(sem, id, waiter.weight, waiter.lease)
    tell(waiter, id, unpack(sem.granted[id]))
    return true
  end

  local looked, blocked = 0, false
  while sem.queued > 0 and not blocked and make_room(sem, 1) do
    if looked >= LOOK_BOUND then
      sem.more = true
      break
    end
    local free = sem.limit - held(sem)
    local count = math.min(LOOK_CHUNK, sem.queued, math.max(free, looked))
    local ids = redis.call('ZRANGE', QUEUE, 0, count - 1)
    local values = redis.call('HMGET', WAITING, unpack(ids))
    local leaving = {}
    for i, id in ipairs(ids) do
      if not make_room(sem, 1) or not serve(id, read_waiter(values[i])) then
        blocked = true
        break
      end
      leaving[i] = id
    end
    leave_queue(sem, leaving)
    looked = looked + #ids
  end
  write_permits(sem)
end

-- Invariant S5: after each script the queue is empty, or its head does not fit.
local function hand_off(sem)
  if sem.queued > 0 and make_room(sem, 1) then
    serve_queue(sem)
  end
end

-- Ends a script: saves, and then tells the clients, one message each. A write that the server
-- refuses (too few replicas, no disk, no primary any more) ends the script before anybody is told.
local function finish(sem)
  save(sem)
  remove_retired(sem)
  remove_left(sem)
  for client, message in pairs(sem.messages) do
    redis.pcall(message.command, client, table.concat(message.lines, '\n'))
  end
end
