-- sum: adds up its arguments.
--
-- KEYS[1]  numbers  not used
-- ARGV[1]  first    a number
-- ARGV[2+] others   numbers
-- include: lib/total.lua
-- include: lib/add.lua
return total(ARGV)
