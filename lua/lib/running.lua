-- For the quick ways: whether all leases run, so that nobody's place has become free unseen.
-- include: lib/constants.lua

-- The permit whose lease ends first: {id, end}. Nil where its lease has ended, or the last one ends
-- later than any can (the server's clock stepped back).
local function first_to_end(members, now, longest)
  local first = redis.call('ZRANGE', PERMITS, 0, 0, 'WITHSCORES')
  local last = members == 1 and first or redis.call('ZRANGE', PERMITS, -1, -1, 'WITHSCORES')
  return first[2] + 0 > now and last[2] + 0 <= now + longest and first or nil
end
