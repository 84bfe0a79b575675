-- include: lib/b.lua
return 1
