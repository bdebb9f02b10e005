"""`corelane bench colocate`: the key-value store and a batch job fight for one worker core.

colocate.py          the benchmark: start here
arms.py              what is compared: behind an iokernel, and on Linux
raw.{h,c,py} floor.py   the floor: two processes that hand a core over by a word in shared memory
sweep.py bound.py wall.py rows.py   batch work over loads, what it can be at most, where a curve ends
pieces.py            where the time of a request goes, of ours and of raw hand-overs
judge.py stalls.py   what slots make of the figures; what made a slot's tail
plot.py              the plot
"""
