-- probe: tries every command that the scripts use, on the keys of a semaphore that nobody has.
--
-- A client calls this once when it connects, with a random name. It finds a user whose ACL lacks a
-- command, a key or a channel, a replica, and a server too old, before they do harm half-way.
--
-- KEYS[1] permits   as for every script, but of a name that is used for this only
-- KEYS[2] queue
-- KEYS[3] waiting
-- KEYS[4] state
-- ARGV[1] client    1 to 256 bytes, no blank or control character: the channel of the client's
--                   wake-ups
-- ARGV[2] wake      "publish", "spublish" or "poll"
-- Reply             for each command that failed two strings: its name, the server's error
-- Errors            SEM_KEYS, SEM_ARG
-- Cost              O(1)
-- Flags             allow-oom
-- include: lib/arguments.lua

local function check()
  return check_keys()
    or check_count(2)
    or check_word(1, 'client')
    or check_wake(2)
end

-- Runs calls; answers name and error of each that failed.
local function try(calls)
  local failed = {}
  for _, call in ipairs(calls) do
    local answer = redis.pcall(unpack(call))
    if type(answer) == 'table' and answer.err then
      failed[#failed + 1] = call[1]
      failed[#failed + 1] = answer.err
    end
  end
  return failed
end

local function probe()
  local refusal = check()
  if refusal then
    return refusal
  end
  -- What cleans up comes first: where it is refused nothing must be written.
  local failed = try({
    {'PEXPIREAT', STATE, 1},
    {'UNLINK', QUEUE},
    {'TIME'},
    {'HMGET', STATE, 'version'},
    {'HLEN', WAITING},
    {'ZCARD', PERMITS},
    {'ZMSCORE', QUEUE, 'nobody'},
    {'ZRANGE', PERMITS, 0, 0, 'WITHSCORES'},
    {'ZRANGEBYSCORE', PERMITS, '-inf', 0, 'LIMIT', 0, 1},
    {'ZCOUNT', PERMITS, '-inf', 0},
    {'ZRANK', QUEUE, 'nobody'},
    {'ZREM', PERMITS, 'nobody'},
    {'HDEL', WAITING, 'nobody'},
    {'PERSIST', STATE},
  })
  if #failed > 0 then
    return failed
  end
  local calls = {
    {'ZADD', PERMITS, 1, 'nobody'},
    {'HSET', STATE, 'version', '0'},
    {'UNLINK', PERMITS, STATE},
  }
  if ARGV[2] ~= 'poll' then
    calls[#calls + 1] = {'PUBSUB', ARGV[2] == 'spublish' and 'SHARDNUMSUB' or 'NUMSUB', ARGV[1]}
    -- The empty message: nobody was granted anything.
    calls[#calls + 1] = {ARGV[2] == 'spublish' and 'SPUBLISH' or 'PUBLISH', ARGV[1], ''}
  end
  return try(calls)
end

return probe()
