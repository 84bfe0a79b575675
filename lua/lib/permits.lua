-- Permits: count them, purge those whose lease ended, grant and remove them.
-- include: lib/semaphore.lua

local PURGE_CHUNK = 1000
local PURGE_BOUND = 2000 -- ended leases that one script removes at most, when it needs room

local function held(sem)
  return sem.members - sem.marks + sem.extra
end

-- Takes members that have left `permits` out of the count. Answers the weight of each by its id.
local function uncount(sem, ids)
  sem.members = sem.members - #ids
  local weights, marks = {}, 0
  for _, id in ipairs(ids) do
    if sem.marks > 0 and string.sub(id, 1, 1) == '+' then
      marks = marks + 1
    end
    weights[id] = 1
  end
  if marks > 0 then
    -- Marks made before a loss of `state` are not in its number.
    set(sem, 'marks', math.max(0, sem.marks - marks))
  end
  if sem.extra > 0 then
    local fields, known, extra = {}, {}, 0
    for i, id in ipairs(ids) do
      fields[i] = 'w:' .. id
    end
    for i, weight in ipairs(redis.call('HMGET', STATE, unpack(fields))) do
      if weight then
        weights[ids[i]] = tonumber(weight)
        extra = extra + weight - 1
        known[#known + 1] = fields[i]
      end
    end
    if #known > 0 then
      redis.call('HDEL', STATE, unpack(known))
      set(sem, 'extra', sem.extra - extra)
    end
  end
  return weights
end

-- The scores of ids (at most 1,000) in a sorted set of so many members, false where there is none.
local function scores_of(key, members, ids)
  local scores = {}
  if members > 0 then
    scores = redis.call('ZMSCORE', key, unpack(ids))
  end
  for i = 1, #ids do
    scores[i] = tonumber(scores[i]) or false
  end
  return scores
end

-- When the leases of ids end.
local function ends_of(sem, ids)
  return scores_of(PERMITS, sem.members, ids)
end

-- Removes nothing: no id is empty. But a server that is out of memory runs a script to its end if
-- its first write may free some.
local function touch_permits()
  redis.call('ZREM', PERMITS, '')
end

-- Removes ids (at most 1,000) that are members of `permits`, or retires them; answers their weights
-- by id.
local function remove_permits(sem, ids)
  if #ids == 0 then
    return {}
  end
  if #ids < sem.members - sem.unwritten then
    redis.call('ZREM', PERMITS, unpack(ids))
  else
    touch_permits()
    sem.retired = ids
  end
  return uncount(sem, ids)
end

-- One that was granted anew meanwhile stays.
local function remove_retired(sem)
  local ids = {}
  for _, id in ipairs(sem.retired) do
    ids[#ids + 1] = not sem.granted[id] and id or nil
  end
  if #ids > 0 then
    redis.call('ZREM', PERMITS, unpack(ids))
  end
  sem.retired = {}
end

-- Members of `permits` whose leases end between these, at most one chunk.
local function chunk_between(sem, from, to)
  if sem.members == sem.unwritten then
    return {}
  end
  return redis.call('ZRANGEBYSCORE', PERMITS, from, to, 'LIMIT', 0, PURGE_CHUNK)
end

-- Removes one chunk of ended leases; answers whether there may be more.
local function purge_chunk(sem)
  local ended = chunk_between(sem, '-inf', sem.now)
  remove_permits(sem, ended)
  sem.purged = (sem.purged or 0) + #ended
  return #ended == PURGE_CHUNK
end

-- No lease can truly end later than the longest lease from now. One that seems to was given before
-- the server's clock stepped back; without a cut its dead holder would keep it longer by the step.
local function cut_leases(sem)
  local last = sem.now + sem.longest
  local beyond = chunk_between(sem, '(' .. last, '+inf')
  local cut = {}
  for _, id in ipairs(beyond) do
    cut[#cut + 1] = last
    cut[#cut + 1] = id
  end
  if #cut > 0 then
    call_in_chunks('ZADD', PERMITS, cut)
  end
  sem.more = sem.more or #beyond == PURGE_CHUNK
end

-- Whether `weight` fits, after purging as far as it must. Leases are looked at only while room is
-- short, and once in a script: time stands still inside it.
local function make_room(sem, weight)
  while held(sem) + weight > sem.limit and not sem.all_purged do
    if (sem.purged or 0) >= PURGE_BOUND then
      sem.more = true
      return false
    end
    if not purge_chunk(sem) then
      sem.all_purged = true
      cut_leases(sem)
    end
  end
  return held(sem) + weight <= sem.limit
end

-- Counts a permit as granted. `write_permits` must follow.
local function grant(sem, id, weight, lease)
  local token, ends = next_sequence(sem), sem.now + lease
  local longest = sem.members == 0 and lease or math.max(sem.longest, lease)
  if longest ~= sem.longest then
    set(sem, 'longest', longest)
  end
  sem.members, sem.unwritten = sem.members + 1, sem.unwritten + 1
  if weight > 1 then
    set(sem, 'extra', sem.extra + weight - 1)
    sem.changed['w:' .. id] = weight
  end
  sem.writes[#sem.writes + 1] = ends
  sem.writes[#sem.writes + 1] = id
  sem.granted[id] = {token, ends}
  need_until(sem, ends)
end

-- Starts the lease of a permit that is held anew; answers its new end. `write_permits` must follow.
local function renew(sem, id, lease)
  local ends = sem.now + lease
  if lease > sem.longest then
    set(sem, 'longest', lease)
  end
  sem.writes[#sem.writes + 1] = ends
  sem.writes[#sem.writes + 1] = id
  need_until(sem, ends)
  return ends
end

local function write_permits(sem)
  if #sem.writes > 0 then
    -- A key that this call creates (its last member may just have left) has no expiry yet.
    sem.new_permits = sem.new_permits or sem.members == sem.unwritten
    sem.unwritten = 0
    call_in_chunks('ZADD', PERMITS, sem.writes)
    sem.writes = {}
    remove_retired(sem)
  end
end

-- When the next lease ends, in ms from now, for those who wait: 0 asks for `wake` at once because
-- the script stopped at a bound, -1 says that there is nothing to wait for.
local function wake_in(sem, is_waiting)
  if sem.more then
    return 0
  end
  if not is_waiting or sem.members == 0 then
    return -1
  end
  local first = redis.call('ZRANGE', PERMITS, 0, 0, 'WITHSCORES')
  return first[2] and math.max(1, first[2] - sem.now) or -1
end
