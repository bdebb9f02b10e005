"""State that all uthreads of a process share, ready-made: counters, rate limiters, LRU tables.

    tables.py   the Python face: start here
    sharded.c bucket.c lru.c   one mechanism each (corelane/libos/state.h)

Threads: any. In compiled code: counter_add, bucket_take, lru_get and their like (libos/numba/state.py).
"""
