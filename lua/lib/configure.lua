-- Takes over the limit of the caller's configuration: ARGV[1] says what ARGV[2] is. Leaves
-- `declared_before`, and what it changes in `declared`, `runtime` and `limit`.

local kind, number = ARGV[1], integer(ARGV[2], 0, MAX_COUNT)
if kind ~= 'declare' and kind ~= 'declared' and kind ~= 'initial' and kind ~= 'known' then
  return wrong(1, 'kind', '"declare", "declared", "initial" or "known"')
elseif not number then
  return wrong(2, 'limit', 'an integer from 0 to 4294967295')
end
local declared_before, is_known = declared or -1, declared or runtime
if kind == 'declare' and number ~= declared or kind == 'declared' and not is_known then
  declared, changed.declared, live_until = number, number, math.max(live_until, now)
elseif kind == 'initial' and not is_known then
  runtime, changed.runtime, live_until = number, number, math.max(live_until, now)
  has_new_limit = true
end
limit = runtime or declared or 0
