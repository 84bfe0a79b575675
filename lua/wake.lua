-- wake: purges ended leases where room is short, and hands what is free to the queue.
--
-- A waiting client calls this when `wake_in` of an earlier reply has passed. It is never wrong to
-- call it.
--
-- KEYS[1] permits   sorted set: permit id -> end of lease, ms on the server's clock
-- KEYS[2] queue     sorted set: request id -> ticket
-- KEYS[3] waiting   hash: request id -> weight, lease, heard until, wake, client
-- KEYS[4] state     hash: version, limits, last sequence number, weights above 1
-- Reply             server time (ms), wake_in, queue length
--   wake_in         ms until the next call is worth it: 0 at once, -1 no need
-- Errors            SEM_KEYS, SEM_ARG, SEM_TYPE, SEM_VERSION
-- Cost              O(log N) for each waiter served. Commands:
--   5               nothing to do
-- Flags             allow-oom
-- include: lib/arguments.lua
-- include: lib/queue.lua

local function wake()
  local sem, refusal = open(check_keys() or check_count(0))
  if refusal then
    return refusal
  end
  repair(sem)
  hand_off(sem)
  finish(sem)
  return {sem.now, wake_in(sem, sem.queued > 0), sem.queued}
end

return wake()
