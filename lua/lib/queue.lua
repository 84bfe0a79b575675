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
  sem.new_queue = sem.new_queue or sem.queued == 0 or sem.waiting == 0
  sem.queued = sem.queued + 1
  sem.tickets[#sem.tickets + 1] = ticket
  sem.tickets[#sem.tickets + 1] = id
  sem.records[#sem.records + 1] = id
  sem.records[#sem.records + 1] = value
end

local function write_queue(sem)
  if #sem.tickets > 0 then
    call_in_chunks('ZADD', QUEUE, sem.tickets)
    call_in_chunks('HSET', WAITING, sem.records)
    sem.tickets, sem.records = {}, {}
  end
end

-- Removes ids (at most 1,000) that are members of `queue`.
local function leave_queue(sem, ids)
  if #ids == 0 then
    return
  end
  redis.call('ZREM', QUEUE, unpack(ids))
  redis.call('HDEL', WAITING, unpack(ids))
  sem.queued = sem.queued - #ids
end

-- Tells a waiter's client of its grant, or with token 0 that it left the queue without one. Answers
-- whether anybody heard it. Where the server does not say (the command was refused), the waiter
-- counts as told: it learns the truth when it asks again.
local function tell(sem, waiter, id, token, ends)
  if waiter.wake == 'poll' or sem.asking[id] then
    return true
  end
  local name = string.match(PERMITS, '{(.*)}') or PERMITS
  local message = string.format('%s\n%s %.0f %.0f', name, id, token, ends)
  local command = waiter.wake == 'spublish' and 'SPUBLISH' or 'PUBLISH'
  return redis.pcall(command, waiter.client, message) ~= 0
end

-- What the queue's head gets: true when it leaves the queue, false when it must wait.
local function serve(sem, id, waiter, dead)
  local gone = not waiter.weight or waiter.heard_until < sem.now or dead[waiter.client]
  if gone and not sem.asking[id] then
    return true
  end
  if not sem.runtime and waiter.weight > sem.limit then
    tell(sem, waiter, id, 0, 0)
    return true
  end
  if not make_room(sem, waiter.weight) then
    return false
  end
  -- Told before it is written: only the number of listeners says whether the client is there.
  if tell(sem, waiter, id, sem.sequence + 1, sem.now + waiter.lease) then
    grant(sem, id, waiter.weight, waiter.lease)
  else
    dead[waiter.client] = true
  end
  return true
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

-- The tickets of ids.
local function tickets_of(sem, ids)
  return scores_of(QUEUE, sem.queued, ids)
end

-- Gives what is free to the queue, in its order, until its head does not fit. Waiters whose client
-- is gone, or was not heard of in time, leave the queue without a permit.
local function hand_off(sem)
  local looked, blocked, dead = 0, false, {}
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
      if not make_room(sem, 1) or not serve(sem, id, read_waiter(values[i]), dead) then
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
