-- How luacheck checks the Lua scripts: see .ci/run.
std = "lua51"
read_globals = { "redis", "KEYS", "ARGV" } -- what Redis gives to a script
max_line_length = 100
-- Unused names and values: a script need not use all of the shared code that it includes.
ignore = { "211", "231", "311" }
