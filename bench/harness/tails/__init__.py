"""corelane.bench.harness.tails: the p99 of one arm over that of another, by turns, with an interval.

    host.py     what the host took of each CPU, by the guest's own clocks
    pooled.py   the ratio of the p99 of all requests of two arms, and how well it is known
    turns.py    arms by turns, in slots, until it is known on which side of the goal each ratio lies

Some per cent of a core are lost to gaps of 0.1 to 8 ms, and a p99 is what a hundredth of the requests see. So the p99
of a single turn is that of its gaps. The p99 of the turn in the middle forgets them, and with them all harm that an arm
does seldom: a program that looks on once a second, a burst of an attacker. Here all requests of an arm are one
population, and each counts.

Only the slots in which the host took a CPU are left out, of both arms by the same rule. That is told by the guest's
clock of CPU time, which stands still meanwhile, and not by what the requests saw. It goes on while somebody else in the
guest has the CPU: his harm counts, whoever he is. Not so where an arm names its threads, since nobody else does harm in
its name: then a slot in which one of these waited for its CPU is left out, too, of either arm.
"""

from .pooled import Pooled, pooled
from .turns import LOOKED_S, Arm, Compared, Slot, Taken, between, compare, judge, rows, slot_s

__all__ = [
    "LOOKED_S",
    "Arm",
    "Compared",
    "Pooled",
    "Slot",
    "Taken",
    "between",
    "compare",
    "judge",
    "pooled",
    "rows",
    "slot_s",
]
