-- include: lib/nowhere.lua
return 1
