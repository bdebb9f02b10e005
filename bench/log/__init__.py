"""`corelane bench log`: appends, batching and recovery on a disk, and every cut of a run.

log.py           the benchmark: start here
loops.{h,c} raw.c   appends by uthreads; the floor: one durable write after another
cuts*.{h,c}      a run of the log whose stored sectors are cut off at each place, and what is recovered
"""
