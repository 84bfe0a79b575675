-- ARGV[1] one
-- ARGV[3] three
return 1
