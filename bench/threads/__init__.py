"""`corelane bench threads`: uthreads beside pthreads: yield, spawn and join, mutex, condition variable, semaphore.

threads.py    the benchmark: start here
loops.{h,c}   the same work on both
"""
