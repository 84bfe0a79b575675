-- Names and bounds that all scripts share.

local PERMITS, QUEUE, WAITING, STATE = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local ARE_FOUR_KEYS = #KEYS == 4
  and PERMITS ~= QUEUE and PERMITS ~= WAITING and PERMITS ~= STATE
  and QUEUE ~= WAITING and QUEUE ~= STATE and WAITING ~= STATE

-- `version` in `state`. The quick ways rely on it: LIGHT says that a limit is in force, all permits
-- weigh 1 and no mark is kept, PLAIN that the queue is empty, too. Otherwise it is VERSION.
local VERSION, LIGHT, PLAIN = '1', '1 light', '1 plain'

local ALL = 3 -- alone in a reply to several requests: one answer for all of them

local MAX_REQUESTS = 1000
local MAX_COUNT = 4294967295 -- a limit or a weight: an unsigned 32-bit number
local MAX_LEASE = 604800000 -- seven days in ms
local MAX_SEQUENCE = 9007199254740991 -- the largest integer that a double holds exactly
local MAX_ID = 256 -- bytes
