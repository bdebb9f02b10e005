"""Peaks sorted by the distance of the cores: near, far or moved; when another search is made. Nothing is measured."""

from __future__ import annotations

import io

import pytest

from corelane.bench.harness.distance import FAR, FAR_NS, LINE_S, MOVED, NEAR, ByDistance, distance
from corelane.bench.harness.openloop import Curve
from corelane.bench.harness.session import Session
from corelane.bench.harness.stops import Stop


class Fake(Session):
    """A session whose cache line takes what the test says."""

    def __init__(self, lines_ns: list[float]) -> None:
        super().__init__("kv", seconds=1.0, progress=io.StringIO())
        self.lines_ns = lines_ns

    def measure_cacheline(self, seconds: float | None = None) -> float:
        assert seconds == LINE_S
        return self.lines_ns.pop(0)


class Found(Curve):
    """What a search for a peak has found."""

    def __init__(self, rps: float) -> None:
        super().__init__([], "", Stop("worker busy", ""))
        self._rps = rps

    @property
    def peak_rps(self) -> float:
        return self._rps


@pytest.mark.parametrize(
    ("lines", "said"),
    [((75.0,), NEAR), ((FAR_NS,), FAR), ((75.0, 80.0), NEAR), ((340.0, 525.0), FAR), ((75.0, 340.0), MOVED)],
)
def test_distance(lines: tuple[float, ...], said: str) -> None:
    assert distance(*lines) == said


def test_peaks_are_sorted_by_the_line_before_and_after() -> None:
    session = Fake([75.0, 80.0, 80.0, 340.0, 340.0, 350.0])
    peaks = iter([6e6, 4e6, 3e6])
    by = ByDistance(session, {NEAR: 5e6, FAR: 4e6})
    search = by.watched("kv", lambda: Found(next(peaks)))
    assert [search().peak_rps for _ in range(3)] == [6e6, 4e6, 3e6]
    assert by.medians("kv") == {NEAR: 6e6, FAR: 3e6}
    assert by.beside("kv") == {NEAR: 6e6, FAR: 3e6, "near / 5,000,000": 1.2, "far / 4,000,000": 0.75}
    by.report()
    assert session.settings["by_distance"] == {
        NEAR: {"line_ns": [75.0, 80.0], "peaks_rps": {"kv": [6e6]}},
        FAR: {"line_ns": [340.0, 350.0], "peaks_rps": {"kv": [3e6]}},
        MOVED: {"line_ns": [80.0, 340.0], "peaks_rps": {"kv": [4e6]}},
    }
    assert session.notes == [
        "cores near (a cache line's round trip of 75 to 80 ns): kv 6,000,000/s",
        "cores far (a cache line's round trip of 340 to 350 ns): kv 3,000,000/s",
    ]


def test_a_state_that_was_not_there_is_said_and_searched_for_once_it_is() -> None:
    session = Fake([75.0, 75.0, 80.0, 340.0, 340.0, 340.0, 340.0])
    by = ByDistance(session)
    by.watched("kv", lambda: Found(6e6))()
    by.complete()  # still near
    by.report()
    assert session.settings["by_distance"][FAR] is None
    assert session.notes[-1] == "cores far: the host never had them so while peaks were searched for"
    by.complete()
    by.complete()
    assert by.medians("kv") == {NEAR: 6e6, FAR: 6e6}
    assert session.lines_ns == []
