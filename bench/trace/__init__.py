"""`corelane bench trace`: what it costs to write down what becomes of requests, and whether that is true.

trace.py      the benchmark: start here
costs.py      what it costs three servers; turns.py: by turns of its modes within a run (stamps.c: a look at the clock)
right.py      whether the stage that was delayed is blamed (delays.c: the server that is delayed, in virtual time)
sums.py       whether stages add up to the latency that is measured from outside (wire.c: stamps at the NIC)
gaps.py       whether time that the machine takes is named (taker.c: takes it)
watching.py   the server of both
causes.py     whether the causes of examples/slow.py are named
"""
