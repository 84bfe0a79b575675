from common import *
s,r=scripts()
S=Server(BIN['7']); c=S.c
for label,sc in (('quick',s),('long',r)):
    S.at(1_800_000_000_000_000)
    k=keys(label); ev=lambda n,*a: c('EVAL',sc[n],4,*k,*a)
    ev('limit','declare',1)
    ev('acquire','declared',1,'c','poll',604800000,'longjob',1,604800000,'wait')   # seven days
    ev('acquire','declared',1,'c','poll',604800000,'b',1,30000,'wait')
    ev('acquire','declared',1,'c','poll',604800000,'c',1,30000,'wait')
    ev('release','return','longjob')         # b holds 30 s, then crashes; 30 s is the only lease in use
    S.at(1_800_000_000_000_000-3600_000_000) # the clock steps back by an hour
    for t in range(0,3700,10):
        S.at(1_800_000_000_000_000-3600_000_000+t*1000000)
        ev('wake')
        h=ev('inspect',0,10,0,10)[8]
        if h[0]=='c': break
    print(label,'c granted',t,'s after the step; longest =',c('HGET',k[3],'longest'))
S.stop()
