"""What makes the tail of a service, in a user's words: which one of the causes that the blamed stage can have.

A rule is asked in order; the first one that holds names the cause. Where none does, the stage is all that is said. What
a rule looks at is the records of the slow requests, never the load that made them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .commands import LEADER, OTHERS, OWN_LOG
from .stages import FAULTS, QUEUED, RUNS, STOPPED, WIRE, Stage, Table
from .stopped import AWAY, COLLECTS, NO_CPU
from .systemcalls import CALLS

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

MOST = 0.5
LONG = 0.25  # of the longest: others only waited
# What a page fault takes, where the page has to be found and cleared: 0.3 us on bare metal, 1 to 7 where a host has to
# find it first.
FAULT_US = 2.0
FAULTING = 0.1  # of the time that slow handlers run: so much explained by page faults is no accident
RUNNING = (RUNS, FAULTS)


@dataclass(frozen=True)
class Slow:
    """Slow requests of a service. stage: that is blamed. one: all requests, with stages as they were recorded; caused:
    the same, where time behind a long request is that one's (behind.py). rows: the slow ones."""

    stage: Stage
    one: Table
    caused: Table
    rows: Array

    def is_in(self, *stages: Stage) -> bool:
        """Whether the stage that is blamed is one of these, or a part of it; or has most of its time in one of these,
        where no part makes it alone."""
        return any(self.stage[: len(stage)] == stage or self._is_most(stage) for stage in stages)

    def _is_most(self, *stages: Stage) -> bool:
        if any(stage[: len(self.stage)] != self.stage for stage in stages):
            return False
        part, whole = (
            sum(self._us(self.caused, path) for path in self.caused.stages if any(path[: len(of)] == of for of in some))
            for some in (stages, (self.stage,))
        )
        return part > MOST * whole

    def waits_for(self, *what: str) -> bool:
        """Whether it is a wait of a handler for one of these."""
        return self.is_in(*(("handler", f"wait: {one}") for one in what))

    @property
    def runs(self) -> bool:
        """Whether handlers run, page faults of theirs included."""
        return self.is_in(*RUNNING) or self._is_most(*RUNNING)

    @property
    def behind(self) -> float:
        """The part of their time in handlers that was spent in front of them, in those of others."""
        parts = (*RUNNING, QUEUED)
        before, after = (sum(self._us(table, path) for path in parts) for table in (self.one, self.caused))
        return 1 - before / after if after > 0 else 0.0

    @property
    def faulting(self) -> float:
        """The part of their own time in handlers that page faults explain, of the long ones whose were counted."""
        import numpy

        own = numpy.sum([self.one.stages[path] for path in RUNNING if path in self.one.stages], axis=0)
        counted = self.one.messages["faults"]
        rows = self.rows & (own > 0) & (own > LONG * own[self.rows].max()) & (counted > 0)
        # The one in the middle: a sum would be that of the few in which the machine stood still, too.
        return float(numpy.median(counted[rows] * FAULT_US / own[rows])) if rows.any() else 0.0

    @property
    def others_ran(self) -> bool:
        """Whether the kernel says that other threads had the CPU for most of the time in which these had none.

        A kernel that does not say how long threads stand in line has at least taken the CPU from them."""
        gaps = self.one.stood.during(self.one.messages[self.rows]).without_cpu
        in_line, gone = float(gaps["waited"].sum()), float(gaps["gone"].sum())
        if in_line:
            return in_line >= MOST * gone
        return bool((self.one.messages["switches"][self.rows] > 0).any())

    def _us(self, table: Table, stage: Stage) -> float:
        return float(table.stages[stage][self.rows].sum()) if stage in table.stages else 0.0


@dataclass(frozen=True)
class Cause:
    """word: for a column. text: a sentence."""

    word: str
    text: str


Rule = tuple[Cause, Callable[[Slow], bool]]

RULES: tuple[Rule, ...] = (
    (
        Cause("lock", "they wait for a lock that others hold for long"),
        lambda slow: slow.waits_for("mutex"),
    ),
    (
        Cause("log flush", "they wait for the log, or the disk under it"),
        lambda slow: slow.waits_for("log", "disk"),
    ),
    (
        Cause("own log", "the leader's own log is slower than the other nodes are"),
        lambda slow: slow.is_in(OWN_LOG),
    ),
    (
        Cause("others", "the other nodes acknowledge late: their logs are slow, or the way to them is"),
        lambda slow: slow.is_in(OTHERS),
    ),
    (
        Cause("leader", "another node leads, and answers late: trace that one"),
        lambda slow: slow.is_in(LEADER),
    ),
    (
        Cause("core taken away", "the iokernel gave the core to another application"),
        lambda slow: slow.is_in((STOPPED, AWAY)),
    ),
    (
        Cause("garbage collection", "the Python interpreter collected garbage on the kthread's thread"),
        lambda slow: slow.is_in((STOPPED, COLLECTS)),
    ),
    (
        Cause("noisy neighbour", "another thread ran on the CPU that the kthread has"),
        lambda slow: slow.is_in((STOPPED, NO_CPU)) and slow.others_ran,
    ),
    (
        Cause("machine", "the machine stood still: its host, interrupts, or a sleep in the kernel"),
        lambda slow: slow.is_in((STOPPED, NO_CPU)),
    ),
    (
        Cause("lost packets", "segments were lost, and had to be sent again"),
        lambda slow: slow.is_in((WIRE, "retransmission"), (WIRE, "missing segment")),
    ),
    (
        Cause("slow peer", "the peer takes no more: its window is closed"),
        lambda slow: slow.is_in((WIRE, "closed window")),
    ),
    (
        Cause("system call", "their handlers are in the kernel, in a call of their own"),
        lambda slow: slow.is_in(CALLS),
    ),
    (
        Cause("page faults", "handlers touch memory for the first time, page by page"),
        lambda slow: slow.is_in(FAULTS) or (slow.runs and slow.faulting >= FAULTING),
    ),
    (
        Cause("long request", "a long request is in front of them"),
        lambda slow: (slow.is_in(QUEUED) or slow.runs) and slow.behind >= MOST,
    ),
    (
        Cause("handler", "their own handlers run for long"),
        lambda slow: slow.runs,
    ),
)


def cause_of(slow: Slow) -> Cause | None:
    """What the rules say."""
    return next((cause for cause, holds in RULES if holds(slow)), None)
