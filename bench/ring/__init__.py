"""`corelane bench ring`: a message from one core to another, by our rings, a mutex queue and a pipe.

ring.py       the benchmark: start here
loops.{h,c}   its loops
"""
