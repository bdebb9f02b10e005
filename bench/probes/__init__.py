"""`corelane bench probes`: what probes cost in numeric kernels, and how far apart they poll.

probes.py        the benchmark: start here
kernels.py loops.h c.py   the kernels in Python and in C
bound.py         the least that counting turns can cost
gaps.{h,c}       notes when a probe was reached
"""
