"""`corelane bench log`: appends, batching and recovery on a disk, and every cut of a run.

log.py           the benchmark: start here; names.py plots.py: what it compares with, and its plot
batching.py modelled.py model.{h,c} lanes.{h,c}   when a flush goes, on modelled disks
arrivals.py      the same on what there is, with Poisson arrivals
loops.{h,c} raw.c   appends by uthreads; the floor: one durable write after another
cuts*.{h,c}      a run of the log whose stored sectors are cut off at each place, and what is recovered
"""
