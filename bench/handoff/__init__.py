"""`corelane bench handoff`: from the decision to give a busy core to another process to its first instruction there.

handoff.py       the benchmark: start here
loops.{h,c}      the kernel's own ways of giving a core away
moves.py         what the iokernel's log of moves says of hand-overs
"""
