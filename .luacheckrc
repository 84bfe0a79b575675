-- How luacheck checks lua/functions.lua: see .ci/run.
std = "lua51"
read_globals = { "redis" } -- what Redis gives to a library
max_line_length = 100
