"""`corelane bench isolation`: an application's latency at half load, alone and beside a neighbour that floods.

isolation.py     the benchmark: start here
flood.{h,c} flooder.py   the neighbour, in a process of its own
"""
