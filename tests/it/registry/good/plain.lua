-- plain: answers 1.
return 1
