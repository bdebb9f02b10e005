"""What made the tail of a slot: how long the loop did not poll, and where the longest move spent its time.

The canary watches the cores between slots, and a slot of some ten milliseconds has a stall of a millisecond or it has
none: what the canary saw then says little of this slot. So the iokernel is asked what it saw itself, from the first
request to the last answer. Of the gaps of its loop the kernel knows how long the loop waited while others had its core.
Of the worker's core there are the stamps of both applications: where one yielded at once and the other ran a
millisecond later, somebody else had the core in between.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ...iokernel.control.moves import STEP_NAMES, Move
from ...runtime.clock import tsc
from ...runtime.hist import Hist
from .._native import lib
from ..harness.jitter import Gaps, delay_us
from ..harness.numbers import plain
from ..harness.rig import App
from ..harness.usage import threads
from ..tenant.shared import Shared, tsc_ns

COUNTED = ("interrupted", "evicted", "starved", "not_started", "late", "late_decisions")
PARTS = (
    "loop until its words were stored",
    "old owner until it saw them",
    "old owner until it yielded",
    "core until the new owner ran",
    "loop until it saw that",
)
LOOP = "cl-loop-0"
WORD = 1 << 32  # of a stamp


@dataclass(frozen=True)
class LongMove:
    """A move: us from the decision to the loop's seeing the new owner run, by which step, and which of PARTS took most
    of it."""

    us: float = 0.0
    step: str = ""
    part: str = ""


@dataclass
class Stalls:
    """What the iokernel saw in one slot, or in several: counts of COUNTED, moves by step, gaps of its loop, and how
    long that, and kv's kthreads, waited for their CPU by the kernel's account (nan: it keeps none)."""

    counts: Counter[str] = field(default_factory=Counter)
    steps: Counter[str] = field(default_factory=Counter)
    gaps: Gaps = field(default_factory=lambda: Gaps(0))
    longest: LongMove = field(default_factory=LongMove)
    waited_us: float = 0.0
    kv_waited_us: float = 0.0

    def __add__(self, other: Stalls) -> Stalls:
        gaps = Gaps(self.gaps.cpu)
        gaps.add(self.gaps)
        gaps.add(other.gaps)
        longest = max(self.longest, other.longest, key=lambda move: move.us)
        return Stalls(
            self.counts + other.counts,
            self.steps + other.steps,
            gaps,
            longest,
            self.waited_us + other.waited_us,
            self.kv_waited_us + other.kv_waited_us,
        )

    @property
    def gaps_us(self) -> float:
        """All gaps of the loop together."""
        return sum(total for _, total in self.gaps.buckets.values()) / 1e3

    @property
    def gaps_p99_us(self) -> float:
        """The p99 that the loop's gaps alone would give a server that takes no time."""
        return delay_us([self.gaps], 0.99)

    def row(self) -> dict[str, Any]:
        """For an arm of the document; tables have the numbers."""
        move = self.longest
        return {
            "evicted": self.counts["evicted"],
            "starved": self.counts["starved"],
            "loop_gap_us": plain(self.gaps.max_ns / 1e3),
            "loop_gaps_p99_us": plain(self.gaps_p99_us),
            "longest_move_us": plain(move.us),
            "stalls": {name: self.counts[name] for name in COUNTED}
            | {"loop_gaps_us": self.gaps_us, "loop_waited_us": plain(self.waited_us)}
            | {"kv_waited_us": plain(self.kv_waited_us)}
            | {"moves_by_step": dict(self.steps), "longest_move": {"step": move.step, "part": move.part}},
        }

    def sentence(self) -> str:
        """The same for a person."""
        text = (
            f"the loop's gaps there make a p99 of {self.gaps_p99_us:,.0f} (longest {self.gaps.max_ns / 1e3:,.0f}; "
            f"in all {self.gaps_us:,.0f}, of which others had its core for {self.waited_us:,.0f}), "
            f"kv waited for its core for {self.kv_waited_us:,.0f}"
        )
        move = self.longest
        return f"{text}, the longest move {move.us:,.0f} ({move.step}; {move.part})" if move.part else text


class Seen:
    """Around the time in which requests are under way: what the iokernel sees then is `seen`."""

    def __init__(self, made: Shared, kv: App) -> None:
        self._made, self._kv = made, kv
        self.seen = Stalls()
        made.moves()  # those before are none of ours

    def __enter__(self) -> Self:
        self._counts, self._gaps, self._waited = self._made.counts(), self._made.late_decisions(), self._waits_us()
        self._began = tsc()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        ended, gaps, counts = tsc(), self._made.late_decisions().since(self._gaps), self._made.counts()
        waited = [now - then for now, then in zip(self._waits_us(), self._waited, strict=True)]
        moves = [move for move in self._made.moves() if self._began <= move.tsc <= ended]
        self.seen = Stalls(
            Counter({name: counts[name] - self._counts[name] for name in COUNTED}),
            by_step(moves),
            gaps_of(gaps, tsc_ns(ended - self._began) / 1e9),
            longest(moves),
            *waited,
        )

    def _waits_us(self) -> tuple[float, float]:
        """Of the loop that was started last, and of kv's kthreads."""
        loops = sorted(tid for tid, name in threads().items() if name == LOOP)
        return waited_us(loops[-1:]), waited_us(self._kv.threads(), self._kv.pid)


def waited_us(tids: Sequence[int], pid: int | str = "self") -> float:
    """For how long these threads of a process have been ready to run and had no CPU, all together. nan: not known."""
    try:
        each = [int(Path(f"/proc/{pid}/task/{tid}/schedstat").read_text().split()[1]) for tid in tids]
    except (OSError, ValueError, IndexError):
        return math.nan
    return sum(each) / 1e3 if each else math.nan


def gaps_of(hist: Hist, seconds: float) -> Gaps:
    """A histogram of gaps, ns, seen in so many seconds, as the canary's."""
    buckets = {float(low): (n, n * (low + high) / 2) for low, high, n in hist.buckets()}
    return Gaps(0, seconds, hist.count, hist.max, buckets)


def by_step(moves: Iterable[Move]) -> Counter[str]:
    """How many ended, by the last step that was taken."""
    return Counter(STEP_NAMES[move.step] for move in moves if move.what == lib.CL_IO_LOG_DONE)


def longest(moves: Sequence[Move]) -> LongMove:
    """Of those that ended. A stamp of an earlier move, or of none, is no part. One that woke an owner who had kept its
    core has no stamps of its own but the last: it begins with the entry that says so."""
    found, most, woken = None, 0, 0
    for move in moves:
        if move.what == lib.CL_IO_LOG_WOKEN:
            woken = move.tsc
        elif move.what == lib.CL_IO_LOG_DONE:
            if move.step == lib.CL_IO_STEP_WAKE:
                move = move._replace(decided=woken % WORD, stored=0, lost=0, left=0)
            took = _since(move.tsc, move.decided) if move.decided else 0
            if took > most:
                found, most = move, took
    if found is None:
        return LongMove()
    at, parts = 0, []
    for stamp in (found.stored, found.lost, found.left, found.back):
        reached = _since(stamp, found.decided) if stamp else -1
        parts.append(reached - at if at <= reached <= most else 0)
        at += parts[-1]
    parts.append(most - at)
    return LongMove(tsc_ns(most) / 1e3, STEP_NAMES[found.step], PARTS[parts.index(max(parts))])


def _since(later: int, earlier: int) -> int:
    """Ticks between two low words; negative if the second is the later one."""
    ticks = (later - earlier) % WORD
    return ticks if ticks < WORD // 2 else ticks - WORD
