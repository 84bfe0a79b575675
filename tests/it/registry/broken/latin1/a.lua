-- café
return 1
