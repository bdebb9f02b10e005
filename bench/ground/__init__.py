"""`corelane bench ground`: what streams stand on.

ground.py     the benchmark: start here
rearm.py      moving one of many armed deadlines; rearm.{h,c} are its loops
turn.py       an adopted kthread beside an ordinary one; turn.{h,c} are its loops
burst.py      answers to many requests under way over AF_XDP, where a doorbell is a system call
virtual.py    two hosts that live by a virtual clock; exchange.{h,c} are the client's uthreads
"""
