-- Groups: the shares and caps of requests whose IDs name a group.
--
-- Waiting groups take turns, as in start-time fair queueing (P. Goyal, H. M. Vin, H. Cheng, 1996).
-- The group whose turn has the lowest start is next. Starts are virtual times. After a grant, the
-- group's next turn starts later by weight / share. The virtual time of the semaphore is the latest
-- start of a served turn. If a group begins to wait, its turn starts one unit of its share later
-- than the virtual time, so groups that arrive later cannot starve others. A group that had more
-- than its share starts where its last turn ended. All requests without a group are one more group:
-- '', with share 1.
--
-- permits  '*GROUP' -> minus the weight that the group holds
-- queue    the score of a request with a group is minus its ticket
-- order    GROUP:TICKET:ID, with 16 digits for the ticket; all scores are 0. This is an index of
--          `queue`: an entry without a request in `queue` is dropped when its turn comes.
-- turns    GROUP -> start of its turn: above 0 if the group waits, or +inf from its turn on while
--          it is at its cap. If the group does not wait, the score is minus the end of its last
--          turn. It is removed after the virtual time has reached this end.
-- Like `permits`, `order` and `turns` have a member '*', so that no script empties these keys.

-- Returns the functions of groups. They are made when a call needs them: this takes time.
local function groups_of(s)
  if s.groups then return s.groups end
  local order_key, turns_key = s.keys[5], s.keys[6]
  local left = 0 -- how many requests without a group serve() has removed
  local groups = {
    held = {}, held_before = {}, -- group -> weight, for the groups that this call has read
    waiting = s.queued, -- above 0 if a group waits that is not at its cap
  }
  s.groups = groups

  -- Returns `start` + `distance`, or the next number if this sum would be rounded to `start`.
  local function later(start, distance)
    return math.max(start + distance, start * (1 + 2 ^ -52))
  end

  local function turn_of(name)
    return (redis.call('ZSCORE', turns_key, name) or 0) + 0
  end

  local function set_turn(name, start)
    local added = redis.call('ZADD', turns_key, '-inf', '*', start, name)
    s.has_new_key = s.has_new_key or added == 2
  end

  -- Ends the turns of a group of which no request waits, and forgets up to two groups.
  local function end_turns(name, last)
    set_turn(name, -last)
    local over = redis.call('ZRANGEBYSCORE', turns_key, -s.virtual, '(0', 'LIMIT', 0, 2)
    if over[1] then
      redis.call('ZREM', turns_key, unpack(over))
    end
  end

  local function entry_of(name, ticket, id)
    return string.format('%s:%016.0f:%s', name, ticket, id)
  end

  -- Returns the first two entries of a group in `order`, or the first two IDs without a group.
  local function first_entries(name)
    if name == '' then
      return redis.call('ZRANGEBYSCORE', s.queue_key, '(0', '+inf', 'LIMIT', left, 2)
    end
    local from, to = '[' .. name .. ':', '(' .. name .. ';'
    return redis.call('ZRANGE', order_key, from, to, 'BYLEX', 'LIMIT', 0, 2)
  end

  local function read_held(name)
    if not groups.held[name] then
      local held = -(redis.call('ZSCORE', s.permits_key, '*' .. name) or 0)
      groups.held[name], groups.held_before[name] = held, held
    end
    return groups.held[name]
  end

  -- Counts the weight of a permit that begins, or ends (a negative weight).
  function groups.count(name, weight)
    groups.held[name] = read_held(name) + weight
  end

  -- Adds the changed weights to `entries` of `permits`, and removes the groups that hold nothing.
  function groups.write_held(entries)
    for name, held in pairs(groups.held) do
      if held > 0 and held ~= groups.held_before[name] then
        entries[#entries + 1], entries[#entries + 2] = -held, '*' .. name
      elseif held == 0 and groups.held_before[name] > 0 then
        redis.call('ZREM', s.permits_key, '*' .. name)
      end
    end
  end

  -- `cap`: the cap of a request. A runtime cap of its group replaces it.
  function groups.fits_cap(name, weight, cap)
    local runtime = s.caps and s.caps[name]
    return not runtime and cap == 0 or read_held(name) + weight <= (runtime or cap)
  end

  -- Sets the runtime cap of a group, or clears it if `cap` is nil.
  function groups.set_cap(name, cap)
    s.caps = s.caps or {}
    s.caps[name], s.has_new_runtime = cap, true
    s.caps = next(s.caps) and s.caps
    if turn_of(name) == math.huge then
      set_turn(name, s.virtual) -- its first request may fit the new cap
    end
  end

  -- Enters a queued request into the turns. It may come before a request that did not fit the cap.
  function groups.enter(part, id, ticket)
    local name = part.group or ''
    if part.group and redis.call('ZADD', order_key, 0, '*', 0, entry_of(name, ticket, id)) == 2 then
      s.has_new_key = true
    end
    local turn = turn_of(name)
    if turn <= 0 then -- even if the group is at its cap, so that it cannot starve others
      set_turn(name, math.max(later(s.virtual, 1 / part.share), -turn))
    elseif turn == math.huge and groups.fits_cap(name, part.weight, part.cap) then
      set_turn(name, s.virtual)
    end
  end

  -- Removes a canceled request, which has left the queue.
  function groups.leave(name, ticket, id)
    local turn = turn_of(name)
    if name ~= '' then
      redis.call('ZREM', order_key, entry_of(name, ticket, id))
    end
    -- An empty queue no longer exists, and cannot be read while its slot moves.
    if turn > 0 and (s.queued == 0 or not first_entries(name)[1]) then
      end_turns(name, turn == math.huge and s.virtual or turn)
    elseif turn == math.huge then
      set_turn(name, s.virtual) -- the next request may fit the cap
    end
  end

  -- Returns the position of a queued request in its group.
  function groups.position_of(part, id, ticket)
    if not part.group then
      local grouped = redis.call('ZCOUNT', s.queue_key, '-inf', '(0')
      return redis.call('ZRANK', s.queue_key, id) - grouped - left + 1
    end
    local entry = entry_of(part.group, ticket, id)
    local first = first_entries(part.group)[1] or entry -- nil if an entry has a wrong score
    return redis.call('ZRANK', order_key, entry) - redis.call('ZRANK', order_key, first) + 1
  end

  -- Returns whether a request that is not in the queue fits its cap and comes before all others.
  function groups.is_next(part)
    local name = part.group or ''
    return groups.fits_cap(name, part.weight, part.cap)
      and (s.queued == 0 or groups.waiting == 0 and turn_of(name) <= 0)
  end

  -- Returns the group that is next, the start of its turn, its first request (nil if its entry has
  -- no request in the queue), whether no request follows, and the entry (nil without a group).
  function groups.next()
    local first = redis.call('ZRANGEBYSCORE', turns_key, '(0', '(inf', 'WITHSCORES', 'LIMIT', 0, 1)
    local name, start = first[1], (first[2] or 0) + 0
    local entries = name and first_entries(name) or {}
    if name == '' then return name, start, entries[1], not entries[2] end
    local ticket, id = string.match(entries[1] or '', '^[^:]*:(%d+):(.*)')
    if entries[1] and not (id and (redis.call('ZSCORE', s.queue_key, id) or 0) + ticket == 0) then
      redis.call('ZREM', order_key, entries[1])
      id = nil
    end
    return name, start, id, not entries[2], entries[1]
  end

  -- Removes the first request of a group from the queue.
  local function remove_first(id, entry)
    s.leaving[#s.leaving + 1], s.queued = id, s.queued - 1
    if entry then
      redis.call('ZREM', order_key, entry)
    else
      left = left + 1
    end
  end

  -- Serves up to BOUND requests in the order of the turns. See serve_queue.
  function groups.serve(asked, sweeps, serve_request)
    if s.queued == 0 then return end
    for name, held in pairs(groups.held) do
      if held < groups.held_before[name] and turn_of(name) == math.huge then
        set_turn(name, s.virtual) -- its first request may fit the cap
      end
    end
    if s.held >= s.limit and not sweeps then return end
    groups.waiting = redis.call('ZCOUNT', turns_key, '(0', '(inf')
    local listening, looked, is_blocked = {}, 0, false
    while groups.waiting > 0 and s.queued > 0 and (s.held < s.limit or sweeps) and not is_blocked
      and looked < BOUND do
      local name, start, id, is_last, entry = groups.next()
      local next_start, granted = start, #s.granted
      local outcome = not id or serve_request(s, id, asked, listening)
      looked, is_blocked = looked + 1, not outcome
      if id and outcome == true then
        remove_first(id, entry)
      end
      if #s.granted > granted then
        local weight, share = string.match(id, '^%a:[^:]*:(%d+):%d+:[^:,]*,?(%d*)')
        next_start = later(start, weight / (entry and share or 1))
      end
      if next_start > start or outcome == 'at_cap' then
        s.virtual, s.live_until = math.max(s.virtual, start), math.max(s.live_until, s.now)
      end
      if outcome == 'at_cap' then
        set_turn(name, '+inf')
        groups.waiting = groups.waiting - 1
      elseif outcome and is_last then
        end_turns(name, next_start)
        groups.waiting = groups.waiting - 1
      elseif next_start > start then
        set_turn(name, next_start)
      end
    end
    s.more = s.more or looked == BOUND and groups.waiting > 0 and s.held < s.limit
  end

  if not s.virtual then
    s.virtual, s.live_until = 1, math.max(s.live_until, s.now)
    if s.queued > 0 then -- these requests have no group
      set_turn('', 1)
    end
  end
  return groups
end

-- Returns the virtual time if `state` was lost: the first start, or the last end of a turn. Returns
-- nil if no group waits or holds a permit.
local function virtual_of(keys, extra)
  local function first(min, max)
    return keys[6]
      and redis.call('ZRANGEBYSCORE', keys[6], min, max, 'WITHSCORES', 'LIMIT', 0, 1)[2]
  end
  local start, ended = first('(0', '(inf'), first('(-inf', '(0')
  local has_groups = redis.call('ZCOUNT', keys[1], '-inf', 0) > (extra and 1 or 0)
    or redis.call('ZCOUNT', keys[2], '-inf', '(0') > 0
  return start and start + 0 or ended and -ended or has_groups and 1 or nil
end

-- Counts a permit that begins, or ends (a negative `weight`), for the semaphore and for its group.
local function count_permit(s, id, weight)
  s.permits, s.held = s.permits + (weight < 0 and -1 or 1), s.held + weight
  local name = s.virtual and string.match(id, '^%a:[^:]*:%d+:%d+:([^:,]+),')
  if name then
    groups_of(s).count(name, weight)
  end
end
