"""Modes by turns within a run (bench/trace/turns.py), by a clock that only sleeps move."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest

from corelane.bench.harness.tails.waits import Look
from corelane.bench.trace import turns
from corelane.bench.trace.costs import _p99, _rps
from corelane.runtime.hist import Hist

OF = {"off": (1000, 10.0), "full": (900, 11.0)}  # answered in a window, and p99 in us


class Server:
    """A server, its load and the clock. late: the number of a change of mode that comes late. host, others: have a CPU
    for so much of the time."""

    def __init__(self, late: int = -1, host: float = 0.0, others: float = 0.0) -> None:
        self.now, self.late, self.host, self.others, self.had = 100.0, late, host, others, 0.0
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
        return self.now * (1 - self.host - self.others)

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


class Counts:
    """What others had of the CPUs of threads: Waits."""

    def __init__(self, server: Server) -> None:
        self.server, self.since = server, 0.0
        self.gained: dict[int, Look] = {}

    def begin(self) -> None:
        self.since = self.server.now

    def end(self) -> float:
        waited_s = (self.server.now - self.since) * self.server.others
        self.gained = dict.fromkeys((1, 2), Look(0.0, waited_s, 0))
        return waited_s


def cycles(server: Server, monkeypatch: pytest.MonkeyPatch) -> turns.Cycles:
    monkeypatch.setattr(turns, "time", server)
    monkeypatch.setattr(turns, "cpu_s", server.cpu_s)
    monkeypatch.setattr(turns, "Waits", lambda tids: contextlib.nullcontext(Counts(server)))
    served: Any = SimpleNamespace(tids=[1], set_mode=server.set_mode)
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


@pytest.mark.parametrize("lost", [{"host": 0.5}, {"others": 0.5}])
def test_threads_without_their_cpus_say_nothing(monkeypatch: pytest.MonkeyPatch, lost: dict[str, float]) -> None:
    assert cycles(Server(**lost), monkeypatch).found == []


@pytest.mark.parametrize(
    ("lost", "disturbed"),
    [
        ({}, False),
        ({"host": 0.006}, False),
        ({"others": 0.006}, False),
        ({"host": 0.02}, True),
        ({"others": 0.02}, True),
    ],
)
def test_of_the_tail_slots_are_left_out_in_which_a_cpu_was_taken(
    monkeypatch: pytest.MonkeyPatch, lost: dict[str, float], disturbed: bool
) -> None:
    """And no cycle."""
    got = cycles(Server(**lost), monkeypatch)
    assert len(got.timely) == len(got.found) == turns.MOST_WINDOWS // turns.PER_TURN // 2
    slots = [turn.slot for cycle in got.timely for turn in cycle.values()]
    assert all(slot.disturbed is disturbed for slot in slots)
    assert sorted({round(slot.point.p99_us) for slot in slots}) == [10, 11]
