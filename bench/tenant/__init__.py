"""Applications that share a core in the benchmarks, each in a process of its own.

shared.py     an iokernel that manages one worker core, and who fights for it: start here
tenant.py     an application as a process, and the handle of who measures it
loops.{h,c} numba.py   what it does: a batch job, a handler that notes when it was called
"""
