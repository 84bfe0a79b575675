-- refresh: restarts the leases of permits that are still held, then grants permits to waiters.
--
-- A permit with an expired lease is lost, even if no script has removed it yet. A permit can be
-- moved to a new ID. The old ID is then unknown. If a move is repeated, it only restarts the lease.
--
-- KEYS[1] permits   sorted set: ID -> expiry of its lease, ms on the server's clock
-- KEYS[2] queue     sorted set: ID -> ticket
-- KEYS[3] clients   sorted set: client -> alive until, ms on the server's clock
-- KEYS[4] state     hash: version, limits, last number, longest lease, expiry
-- KEYS[5] order     with groups only: sorted set: requests by group and ticket
-- KEYS[6] turns     with groups only: sorted set: group -> start of its turn
-- ARGV[1+] requests 1 to 1000 times: id, next
--   id              as given to `acquire`
--   next            the new lease in ms, at least 1 and at most the lease in the ID; or a new ID of
--                   the same weight
-- Reply             server time (ms), wake_in, then one integer for each ID:
--   expires_at      the new expiry of its lease, ms on the server's clock
--   0               the permit is lost; if the ID was queued, it has left the queue
--   wake_in         0: call `wake` immediately; -1: no need
-- Errors            SEM_KEYS, SEM_ARG, SEM_TYPE, SEM_VERSION, SEM_GROUPS
-- Cost              O(log N) per ID, per expired lease, and per waiter that leaves the queue.
--                   Commands for one ID:
--   9               held
-- Flags             allow-oom
-- include: lib/arguments.lua
-- include: lib/ids.lua
-- include: lib/groups.lua
-- include: lib/semaphore.lua
-- include: lib/expire.lua
-- include: lib/cancel.lua
-- include: lib/channel.lua
-- include: lib/serve.lua
-- include: lib/commit.lua

local ids, parts, asked = read_ids(ARGV, 0, 2)
if ids.err then return ids end
local count, nexts, durations = #ids, {}, {}
for i, part in ipairs(parts) do
  local next = ARGV[2 * i]
  if string.find(next, ':', 1, true) then
    local moved = read_id(ARGV, 2 * i, 'next', asked, nil, part.weight)
    if moved.err then return moved end
    if moved.group ~= part.group then
      return wrong(ARGV, 2 * i, 'next', 'an ID with the same group')
    end
    nexts[i], durations[i] = next, moved.lease
  elseif integer(next, 1, part.lease) then
    durations[i] = next + 0
  else
    return wrong(ARGV, 2 * i, 'next', 'an integer from 1 to the lease in the ID, or another ID')
  end
end
for _, next in pairs(nexts) do
  ids[#ids + 1] = next
end
local s = read_semaphore(KEYS, ids)
if s.err then return s end

local end_of = {}
for i, id in ipairs(ids) do
  end_of[id] = (s.ends[i] or 0) + 0
end
local reply, gone = {s.now, 0}, {''} -- ZREM needs a member; '' is not in any key
for i = 1, count do
  local id, kept, weight = ids[i], nexts[i] or ids[i], parts[i].weight
  local is_held = end_of[kept] > s.now -- if not, the permit is lost, or moves now to `kept`
  if not is_held then
    for _, it in ipairs({id, nexts[i]}) do
      gone[#gone + 1] = it
      if end_of[it] > 0 then
        count_permit(s, it, -weight)
      end
    end
  end
  reply[i + 2] = 0
  if is_held or end_of[id] > s.now then
    grant(s, kept, weight, durations[i], is_held)
    reply[i + 2] = s.now + durations[i]
  end
end
-- The first write is always a ZREM, even if all IDs are unknown. A replica rejects the ZREM. A
-- server that is out of memory accepts the ZREM, and then also accepts the script's other writes.
redis.call('ZREM', s.permits_key, unpack(gone))
if s.queued > 0 then
  -- All IDs leave the queue, whether their permits are held or lost.
  if s.virtual then
    for _, id in ipairs(ids) do
      leave_queue(s, id)
    end
  else
    s.queued = s.queued - redis.call('ZREM', s.queue_key, unpack(ids))
  end
end
remove_expired(s)
serve_queue(s, {})
reply[2] = commit(s)
return reply
