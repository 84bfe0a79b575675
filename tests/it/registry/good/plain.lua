-- plain: returns 1.
return 1
