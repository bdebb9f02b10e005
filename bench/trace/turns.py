"""Modes of a server by turns, within a run of its load: off, full, full, off, ... some ten milliseconds each.

The load goes on while the mode changes, and is counted in windows of 2 ms. So the turns that are compared lie side by
side, and what the machine does for longer than that is in both. The first windows of a turn are left out: the mode
holds from the next millisecond on, and who changes it has one of the two cores meanwhile. Of the others the one in
the middle counts: the machine's gaps, which take a core for a part of a millisecond or some, are in few of them.

A cycle, which has each mode once, is left out if its mode was changed too late, or if the server's thread was without
its CPU for more than LOST of a turn. The other cycles are compared pair by pair (`ratios`).
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from ...drivers.nic.loadgen.runs import Result
from ...runtime.errors import CorelaneError
from ..harness.usage import cpu_s

WINDOW_S = 0.002
SETTLES, COUNTED = 4, 15  # windows of a turn: that are left out, and the others
MOST_WINDOWS = 600  # of a run
WARM_S = 0.03
LATE = 0.6  # of the time that is left out: a mode that changes later reaches into the windows that count
LOST = 0.25
BEGINS_S = 30.0  # within which the server is found, and given its items

PER_TURN = SETTLES + COUNTED
TURN_S = PER_TURN * WINDOW_S


class Generator(Protocol):
    """Loadgen, TcpLoad."""

    def begin(self, rate: float, seconds: float, warmup_s: float, windows: int) -> None: ...

    def begins_s(self) -> float | None: ...

    def wait(self) -> None: ...

    def result(self) -> Result: ...


@dataclass(frozen=True)
class Served:
    """A server. tid: of its thread. set_mode: changes the mode, at once. client(closed): what loads it."""

    tid: int
    set_mode: Callable[[str], None]
    client: Callable[[bool], AbstractContextManager[Generator]]


@dataclass(frozen=True)
class Turn:
    """Of the windows of a turn that count: what was answered a second, and p99, each of the one in the middle. n:
    answered in all of them."""

    rps: float
    p99_us: float
    n: int


Cycle = dict[str, Turn]
"""By mode."""


def cycles(
    served: Served, generator: Generator, modes: Sequence[str], rate: float, seconds: float
) -> tuple[list[Cycle], int]:
    """Cycles of about so much time, in runs of MOST_WINDOWS; at least one run. And how many were left out. rate: of a
    closed loop any."""
    a_run = MOST_WINDOWS // PER_TURN // len(modes)
    found: list[Cycle] = []
    left_out = 0
    for _ in range(max(1, round(seconds / (WARM_S + a_run * len(modes) * TURN_S)))):
        got = list(_run(served, generator, modes, rate, a_run))
        left_out += got.count(None)
        found += [cycle for cycle in got if cycle is not None]
    return found, left_out


def _run(served: Served, generator: Generator, modes: Sequence[str], rate: float, n: int) -> Iterator[Cycle | None]:
    order = [mode for i in range(n) for mode in (modes if i % 2 == 0 else reversed(modes))]
    generator.begin(rate, len(order) * TURN_S, WARM_S, len(order) * PER_TURN)
    begins_s = _await_begin(generator)
    sound: list[bool] = []
    edges: list[tuple[float, float]] = []
    for i, mode in enumerate(order):
        due = begins_s + i * TURN_S
        time.sleep(max(due - time.monotonic(), 0))
        served.set_mode(mode)
        now = time.monotonic()
        edges.append((now, cpu_s(served.tid)))
        sound.append(now - due < LATE * SETTLES * WINDOW_S)
    time.sleep(max(begins_s + len(order) * TURN_S - time.monotonic(), 0))
    edges.append((time.monotonic(), cpu_s(served.tid)))
    generator.wait()
    windows = generator.result().windows
    for i, ((begin, used), (end, used_by_then)) in enumerate(itertools.pairwise(edges)):
        sound[i] &= used_by_then - used >= (1 - LOST) * (end - begin)
    for first in range(0, len(order), len(modes)):
        places = range(first, first + len(modes))
        turns = {order[i]: _turn(windows[i * PER_TURN + SETTLES : (i + 1) * PER_TURN]) for i in places}
        whole = all(turn.n and math.isfinite(turn.p99_us) for turn in turns.values())
        yield turns if whole and all(sound[i] for i in places) else None


def _await_begin(generator: Generator) -> float:
    deadline = time.monotonic() + BEGINS_S
    while (begins_s := generator.begins_s()) is None:
        if time.monotonic() > deadline:
            generator.wait()  # says why, if it has failed
            raise CorelaneError(f"the load did not begin within {BEGINS_S:.0f} s")
        time.sleep(0.001)
    return begins_s


def _turn(windows: Sequence[Result]) -> Turn:
    return Turn(
        statistics.median(window.answered for window in windows) / WINDOW_S,
        statistics.median(window.percentile_us(99) for window in windows),
        sum(window.answered for window in windows),
    )


def ratios(found: Sequence[Cycle], mode: str, key: Callable[[Turn], float], off: str = "off") -> list[float]:
    """Of each cycle, what a mode has of what it is without tracing."""
    return [key(cycle[mode]) / key(cycle[off]) for cycle in found if key(cycle[off]) > 0]


def middle(found: Sequence[Cycle], mode: str, key: Callable[[Turn], float]) -> float:
    """The median of a mode's turns."""
    return statistics.median(key(cycle[mode]) for cycle in found)
