-- Returns the channel on which a client with this NOTIFY is notified.
local function channel_of(permits_key, notify, client)
  local beginning = string.match(permits_key, notify == 'S' and '^(.*):permits$' or '^(.*):{')
  return beginning .. ':wake:' .. client
end
