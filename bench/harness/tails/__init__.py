"""corelane.bench.harness.tails: the p99 of one arm over that of another, by turns, with an interval.

    host.py     what the host took of each CPU, by the guest's own clocks
    waits.py    how long threads were ready while others had their CPU, by the kernel's counts
    pooled.py   the ratio of the p99 of all requests of two arms, and how well it is known
    turns.py    arms by turns, in slots, until it is known on which side of the goal each ratio lies
    asked.py    an arm of servers that are asked at a rate

Some per cent of a core are lost to gaps of 0.1 to 8 ms, and a p99 is what a hundredth of the requests see. So the p99
of a slot with a gap is that of the gap. The slot in the middle forgets them, and with them all harm that an arm does
seldom: a program that looks on once a second, a burst of an attacker. Here all requests of an arm are one population,
and each counts.

Only the slots are left out in which the host, or somebody who has nothing to do with the arm, had the CPU of a thread
that asks or answers; of all arms by the same rule. The kernel tells, and not what the requests saw. What an arm does to
itself stays: its sleeps, its locks, its other threads. Where too many slots are left out, or many more of one arm than
of the other, nothing is judged. Slots are short, so that a gap takes few requests along.
"""

from .asked import Asked
from .pooled import Pooled, pooled
from .turns import LOOKED_S, MISSED, SHOWN, Arm, Compared, Slot, Taken, between, compare, compared, judge, rows, slot_s
from .waits import Waits, since

__all__ = [
    "LOOKED_S",
    "MISSED",
    "SHOWN",
    "Arm",
    "Asked",
    "Compared",
    "Pooled",
    "Slot",
    "Taken",
    "Waits",
    "between",
    "compare",
    "compared",
    "judge",
    "pooled",
    "rows",
    "since",
    "slot_s",
]
