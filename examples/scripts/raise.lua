-- raise: sets a number for 60 s to the given number, unless the given number is lower.
--
-- KEYS[1] highest   string: the highest number, until it expires
-- ARGV[1] number    an integer
-- Reply             the highest number now
local highest = tonumber(redis.call('GET', KEYS[1]) or ARGV[1])
local number = tonumber(ARGV[1])
if number >= highest then
  redis.call('SET', KEYS[1], ARGV[1], 'EX', 60)
  return number
end
return highest
