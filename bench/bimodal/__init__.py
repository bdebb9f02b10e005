"""`corelane bench bimodal`: short requests behind long ones on one core, with preemption by probe and by signal.

bimodal.py   the benchmark: start here
server.py    an arm: the spin application behind an iokernel of its own, and what a load took of its core
cost.py      what preemption costs the core, from two loads that used it up
"""
