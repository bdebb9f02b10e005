"""Modes by turns within a run (bench/trace/turns.py), by a clock that only sleeps move."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from corelane.bench.trace import turns
from corelane.bench.trace.costs import _p99, _rps
from corelane.runtime.hist import Hist

OF = {"off": (1000, 10.0), "full": (900, 11.0)}  # answered in a window, and p99 in us


class Server:
    """A server, its load and the clock. late: the number of a change of mode that comes late. idle: thread `who`, 1 the
    server's and 2 the client's, is without a CPU for so much of the time; waits: because of others, and not of the
    host."""

    def __init__(self, late: int = -1, idle: float = 0.0, waits: bool = False, who: int = 1) -> None:
        self.now, self.late, self.idle, self.waits, self.who = 100.0, late, idle, waits, who
        self.modes: list[tuple[float, str]] = []
        self.begins = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def set_mode(self, mode: str) -> None:
        if len(self.modes) == self.late:
            self.now += turns.SETTLES * turns.WINDOW_S
        self.modes.append((self.now, mode))

    def cpu_s(self, tid: int) -> float:
        return self.now * (1 - self.idle if tid == self.who else 1)

    def waited_s(self, tid: int) -> float:
        return self.now * self.idle if self.waits and tid == self.who else 0.0

    def begin(self, rate: float, seconds: float, warmup_s: float, windows: int) -> None:
        self.begins, self.windows = self.now + warmup_s, windows
        assert windows <= turns.MOST_WINDOWS
        assert seconds == pytest.approx(windows * turns.WINDOW_S)

    def begins_s(self) -> float | None:
        return self.begins

    def wait(self) -> None: ...

    def result(self) -> Any:
        return SimpleNamespace(windows=[self.window(self.begins + i * turns.WINDOW_S) for i in range(self.windows)])

    def window(self, at: float) -> Any:
        mode = [mode for since, mode in self.modes if since <= at + 1e-9][-1]
        answered, p99_us = OF[mode]
        hist = Hist()
        hist.record(round(1e3 * p99_us), answered)
        return SimpleNamespace(answered=answered, sent=answered, percentile_us=lambda percent: p99_us, latency=hist)


def cycles(server: Server, monkeypatch: pytest.MonkeyPatch) -> turns.Cycles:
    monkeypatch.setattr(turns, "waited_s", server.waited_s)
    monkeypatch.setattr(turns, "time", server)
    monkeypatch.setattr(turns, "cpu_s", server.cpu_s)
    served: Any = SimpleNamespace(tid=1, set_mode=server.set_mode)
    generator: Any = server
    return turns.cycles(served, generator, ("off", "full"), 1.0, 0.1, [2])


def test_turns_lie_side_by_side_and_are_compared_in_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    got = cycles(server, monkeypatch)
    found = got.found
    assert len(found) == turns.MOST_WINDOWS // turns.PER_TURN // 2
    assert got.left_out == 0
    assert [mode for _, mode in server.modes[:4]] == ["off", "full", "full", "off"]
    assert turns.ratios(found, "full", _rps) == pytest.approx([0.9] * len(found))
    assert turns.ratios(found, "full", _p99) == pytest.approx([1.1] * len(found))
    assert turns.middle(found, "off", _rps) == pytest.approx(1000 / turns.WINDOW_S)


def test_a_mode_that_changes_late_leaves_its_cycle_out(monkeypatch: pytest.MonkeyPatch) -> None:
    got = cycles(Server(late=5), monkeypatch)
    assert got.left_out == 1
    assert len(got.found) == len(got.timely) == turns.MOST_WINDOWS // turns.PER_TURN // 2 - 1


def test_a_server_without_its_cpu_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cycles(Server(idle=0.5), monkeypatch).found == []


@pytest.mark.parametrize("who", [1, 2])
@pytest.mark.parametrize("waits", [False, True])
def test_of_the_tail_what_the_host_took_is_left_out_and_no_more(
    monkeypatch: pytest.MonkeyPatch, waits: bool, who: int
) -> None:
    got = cycles(Server(idle=0.5, waits=waits, who=who), monkeypatch)
    assert len(got.timely) == turns.MOST_WINDOWS // turns.PER_TURN // 2
    slots = [turn.slot for cycle in got.timely for turn in cycle.values()]
    assert all(slot.disturbed is not waits for slot in slots)
    assert sorted({round(slot.point.p99_us) for slot in slots}) == [10, 11]
