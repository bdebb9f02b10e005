"""`corelane bench isolation`: an application's latency at half load, alone and beside a neighbour that floods.

isolation.py     the benchmark: start here
victim.py        the victim, its load, and the rows of its slices; `hostile` has the same
flood.{h,c} flooder.py   the neighbour, in a process of its own
"""
