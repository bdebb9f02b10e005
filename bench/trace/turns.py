"""Modes of a server by turns, within a run of its load: off, full, full, off, ... some ten milliseconds each.

The load goes on while the mode changes, and is counted in windows of 2 ms. So the turns that are compared lie side by
side, and what the machine does for longer than that is in both. The first windows of a turn are left out: the mode
holds from the next millisecond on, and who changes it has one of the two cores meanwhile. Of the others the one in
the middle counts: the machine's gaps, which take a core for a part of a millisecond or some, are in few of them.

A cycle, which has each mode once, is left out if its mode was changed too late, or if the host or others had the CPU of
the server or the client for more than LOST of a turn. The other cycles are compared pair by pair (`ratios`).

Of the tail all requests of the windows that count are compared (harness/tails), and no cycle is left out but those
whose mode was changed too late; of the others the slots in which a CPU was taken.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial

from ...drivers.nic.loadgen.runs import Result
from ...runtime.hist import Hist
from ..harness.load import Generator, await_begin
from ..harness.openloop import Point
from ..harness.tails import Slot, Waits
from ..harness.usage import cpu_s

WINDOW_S = 0.002
SETTLES, COUNTED = 4, 15  # windows of a turn: that are left out, and the others
MOST_WINDOWS = 600  # of a run
WARM_S = 0.03
LATE = 0.6  # of the time that is left out: a mode that changes later reaches into the windows that count
LOST = 0.25

PER_TURN = SETTLES + COUNTED
TURN_S = PER_TURN * WINDOW_S


@dataclass(frozen=True)
class Served:
    """A server. tids: its threads, of which the lowest polls. set_mode: changes the mode, at once. client(under_way):
    what loads it, with so many requests at a time; 0: in an open loop."""

    tids: Collection[int]
    set_mode: Callable[[str], None]
    client: Callable[[int], AbstractContextManager[Generator]]


@dataclass(frozen=True)
class Turn:
    """Of the windows of a turn that count: what was answered a second, and p99, each of the one in the middle. n:
    answered in all of them. slot: all of their requests."""

    rps: float
    p99_us: float
    n: int
    slot: Slot


Cycle = dict[str, Turn]
"""By mode."""


@dataclass
class Cycles:
    """found: those that are compared; left_out: as many are not. timely: those whose mode was changed in time."""

    found: list[Cycle] = field(default_factory=list)
    timely: list[Cycle] = field(default_factory=list)
    left_out: int = 0


def cycles(
    served: Served,
    generator: Generator,
    modes: Sequence[str],
    rate: float,
    seconds: float,
    clients: Collection[int] = (),
) -> Cycles:
    """Cycles of about so much time, in runs of MOST_WINDOWS; at least one run. rate: of a closed loop any. clients:
    threads of the generator, which poll."""
    a_run = MOST_WINDOWS // PER_TURN // len(modes)
    out, polling = Cycles(), {min(served.tids), *clients}
    with Waits({*served.tids, *clients}) as waits:
        for _ in range(max(1, round(seconds / (WARM_S + a_run * len(modes) * TURN_S)))):
            for cycle, timely, sound in _run(served, generator, modes, rate, a_run, _Losses(waits, polling)):
                out.timely += [cycle] if timely else []
                out.found += [cycle] if sound else []
                out.left_out += not sound
    return out


class _Losses:
    """What turns lost to the host and to others, in order. A thread that polls and neither ran nor waited for others
    has lost its CPU to the host."""

    def __init__(self, waits: Waits, polling: Collection[int]) -> None:
        self.found: list[tuple[float, float]] = []
        self._waits, self._polling = waits, polling
        self._idle_s: dict[int, float] = {}

    def edge(self, change: Callable[[], None]) -> None:
        """Between two turns, before the first one, and behind the last one."""
        if self._idle_s:
            others_s, idle_s = self._waits.end(), self._idle()
            lost = {tid: idle_s[tid] - had for tid, had in self._idle_s.items()}
            waited_s = {tid: one.waited_s for tid, one in self._waits.gained.items()}
            self.found.append((max(s - waited_s.get(tid, 0.0) for tid, s in lost.items()), others_s))
        change()
        self._waits.begin()
        self._idle_s = self._idle()

    def _idle(self) -> dict[int, float]:
        return {tid: time.monotonic() - cpu_s(tid) for tid in self._polling}


def _run(
    served: Served, generator: Generator, modes: Sequence[str], rate: float, n: int, losses: _Losses
) -> Iterator[tuple[Cycle, bool, bool]]:
    """Cycles, whether their modes were changed in time, and whether server and client had their CPUs besides."""
    order = [mode for i in range(n) for mode in (modes if i % 2 == 0 else reversed(modes))]
    n_windows = len(order) * PER_TURN + 1  # the load ends behind the last turn
    generator.begin(rate, n_windows * WINDOW_S, WARM_S, n_windows)
    begins_s = await_begin(generator)
    timely: list[bool] = []
    for i, mode in enumerate(order):
        due = begins_s + i * TURN_S
        time.sleep(max(due - time.monotonic(), 0))
        losses.edge(partial(served.set_mode, mode))
        timely.append(time.monotonic() - due < LATE * SETTLES * WINDOW_S)
    time.sleep(max(begins_s + len(order) * TURN_S - time.monotonic(), 0))
    losses.edge(lambda: None)
    generator.wait()
    windows = generator.result().windows
    for first in range(0, len(order), len(modes)):
        places = range(first, first + len(modes))
        counted = {i: windows[i * PER_TURN + SETTLES : (i + 1) * PER_TURN] for i in places}
        turns = {order[i]: _turn(counted[i], *losses.found[i]) for i in places}
        whole = all(turn.n and math.isfinite(turn.p99_us) for turn in turns.values())
        in_time = all(timely[i] for i in places)
        had_cpu = all(turn.slot.lost_s <= LOST * TURN_S for turn in turns.values())
        yield turns, in_time, whole and in_time and had_cpu


def _turn(windows: Sequence[Result], host_s: float, others_s: float) -> Turn:
    hist, seconds = Hist(), len(windows) * WINDOW_S
    for window in windows:
        hist.merge(Hist.view(window.latency.ptr, window.latency))
    n = sum(window.answered for window in windows)
    point = Point(n / seconds, n / seconds, sum(window.sent for window in windows), n, seconds=seconds, hist=hist)
    point.set_percentiles(hist)
    return Turn(
        statistics.median(window.answered for window in windows) / WINDOW_S,
        statistics.median(window.percentile_us(99) for window in windows),
        n,
        Slot(point, host_s, others_s),
    )


def ratios(found: Sequence[Cycle], mode: str, key: Callable[[Turn], float], off: str = "off") -> list[float]:
    """Of each cycle, what a mode has of what it is without tracing."""
    return [key(cycle[mode]) / key(cycle[off]) for cycle in found if key(cycle[off]) > 0]


def middle(found: Sequence[Cycle], mode: str, key: Callable[[Turn], float]) -> float:
    """The median of a mode's turns."""
    return statistics.median(key(cycle[mode]) for cycle in found)
