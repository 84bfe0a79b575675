-- probe: tries every command that the scripts use, on the keys of an unused semaphore.
--
-- Clients may call this script when they connect, with a random semaphore name. An error shows that
-- a right is missing (for a command or a channel), or that the server is a replica or too old.
-- From Redis 7.0 on, the script checks each right first, and skips denied calls.
--
-- KEYS[1] permits   as for every script, but with a name that nothing else uses
-- KEYS[2] queue
-- KEYS[3] clients
-- KEYS[4] state
-- ARGV[1] notify_mode  "P", "S" or "N", as in an ID
-- ARGV[2] client    1 to 100 bytes, as in an ID
-- Reply             for each command that failed or is denied, two strings: its name and the error
-- Errors            SEM_KEYS, SEM_ARG
-- Cost              O(1)
-- Flags             allow-oom
-- include: lib/arguments.lua
-- include: lib/channel.lua

local permits, queue, clients, state = unpack(KEYS)
local notify_mode, client = ARGV[1], ARGV[2]
local failure = check_keys(KEYS)
if failure then return failure end
if #ARGV ~= 2 then
  return redis.error_reply('SEM_ARG 2 arguments are needed, got ' .. #ARGV)
elseif notify_mode ~= 'P' and notify_mode ~= 'S' and notify_mode ~= 'N' then
  return wrong(ARGV, 1, 'notify_mode', '"P", "S" or "N"')
elseif #client > 100 or not string.find(client, '^[%w._-]+$') then
  return wrong(ARGV, 2, 'client', '1 to 100 letters, digits, ".", "_" or "-"')
end

-- Returns false only if the server can check the right, and the user lacks it.
local function is_allowed(...)
  local is_known, answer = pcall(redis.acl_check_cmd, ...)
  return not is_known or answer
end

-- Returns a `NOPERM` error if the user may not make the call, otherwise nil. The keys need no
-- check: without the right to the keys, the user could not call this script.
local function denial(call)
  if is_allowed(unpack(call)) then
    return nil
  end
  local words = {call[1]}
  if call[1] == 'PUBSUB' then
    words[2] = call[2]
  end
  if is_allowed(unpack(words)) then
    return 'NOPERM this user has no permissions to access one of the channels'
  end
  local name = string.lower(table.concat(words, '|'))
  return "NOPERM this user has no permissions to run the '" .. name .. "' command"
end

local failed = {}

-- Makes the calls, unless an earlier call has failed: then it only checks the rights. Adds the name
-- and the error of each call that failed or is denied to `failed`.
local function try(calls)
  local is_safe = not failed[1]
  for _, call in ipairs(calls) do
    local denied = denial(call)
    local answer = denied and {err = denied} or is_safe and redis.pcall(unpack(call))
    if type(answer) == 'table' and answer.err then
      failed[#failed + 1] = call[1]
      failed[#failed + 1] = answer.err
    end
  end
end

-- Tries PEXPIREAT first, because it cleans up. If one of these commands fails, no key is created.
try({
  {'PEXPIREAT', state, 1},
  {'TIME'},
  {'HMGET', state, 'version'},
  {'ZCARD', permits},
  {'ZSCORE', clients, '*'},
  {'ZMSCORE', permits, '*'},
  {'ZRANGE', queue, 0, 0},
  {'ZRANGE', queue, '[a', '[b', 'BYLEX', 'LIMIT', 0, 1},
  {'ZRANGEBYSCORE', permits, 0, 0},
  {'ZCOUNT', permits, 0, 0},
  {'ZRANK', queue, '*'},
  {'ZREM', permits, '*'},
  {'HDEL', state, 'runtime'},
  {'PERSIST', state},
})
local calls = {
  {'ZADD', permits, 1, '*'},
  {'HSET', state, 'version', '0'},
  {'PEXPIREAT', permits, 1},
  {'PEXPIREAT', state, 1},
}
if notify_mode ~= 'N' then
  local channel = channel_of(permits, notify_mode, client)
  calls[5] = {'PUBSUB', notify_mode == 'S' and 'SHARDNUMSUB' or 'NUMSUB', channel}
  calls[6] = {notify_mode == 'S' and 'SPUBLISH' or 'PUBLISH', channel, ''} -- clients ignore ''
end
try(calls)
return failed
