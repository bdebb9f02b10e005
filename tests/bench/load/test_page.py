"""The page of a load: its drawings pass the lint, and say what was drawn."""

from __future__ import annotations

import copy
import io
import re
from typing import Any

import numpy as np
import pytest

from corelane.bench.harness.lint import problems
from corelane.bench.harness.session import Session
from corelane.bench.load import page as pages
from corelane.bench.load.trust import RECORD, UNANSWERED
from corelane.runtime.hist import Hist

N = 1000


class Result:
    """A load's result, as far as a page takes it: latencies in ns."""

    def __init__(self, latencies: np.ndarray[Any, Any], unanswered: int = 0) -> None:
        self.latency = Hist()
        self.latency.record_all(int(v) for v in latencies)
        self.latency.record_infinite(unanswered)
        self.records = np.zeros(len(latencies) + unanswered, RECORD)
        self.records["due_ns"] = np.arange(len(self.records)) * 1_000_000
        self.records["latency_ns"][: len(latencies)] = latencies
        self.records["latency_ns"][len(latencies) :] = UNANSWERED


class Load:
    """A load that was measured, as far as a page takes it."""

    def __init__(self, rate: float, result: Result) -> None:
        self.point = type("Point", (), {"offered_rps": rate})
        self.result = result


@pytest.fixture
def document() -> dict[str, Any]:
    with Session("corelane load", seconds=0.05, progress=io.StringIO()) as session:
        session.settings |= {"target": "udp://a", "other": None, "found": {}}
        for rate in (100.0, 1000.0):
            row = {"offered_rps": rate, "achieved_rps": rate, "sent": N, "answered": N, "doubts": []}
            row |= {f"{p}_us": us for p, us in (("p50", 5.0), ("p90", 6.0), ("p99", 9.0), ("p999", 50.0))}
            session.arm("udp://a", **row)
    made = session.document()
    made["canary"]["loud"] = False
    return made


def loads(*results: Result) -> list[tuple[str, Any]]:
    return [("udp://a", Load(1000.0, result)) for result in results]


def latencies(seed: int = 1) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).lognormal(9, 0.5, N)


def test_the_tail_ends_above_the_axis_where_requests_are_unanswered(document: dict[str, Any]) -> None:
    shown = pages._labelled(loads(Result(latencies()), Result(latencies(2), unanswered=10)))
    assert [name for name, _ in shown] == ["udp://a, 1,000/s, run 1", "udp://a, 1,000/s, run 2"]
    figure = pages._tail(document, shown, "")
    assert figure is not None
    assert problems(figure) == []
    first, second = (mark.points for mark in figure.panels[0].marks)
    assert min(y for _, y in second) == pytest.approx(10 / (N + 10))
    assert min(y for _, y in first) < 10 / N
    assert f"n = {2 * N + 10:,}" in figure.said


def test_latency_over_time_is_by_nearest_rank(document: dict[str, Any]) -> None:
    figure = pages._over_time(document, pages._labelled(loads(Result(latencies()))), "")
    assert figure is not None
    assert problems(figure) == []
    median, tail = figure.panels[0].marks
    assert (len(median.points), len(tail.points)) == (pages.PARTS, pages.PARTS)
    part = np.sort(latencies().astype("u8")[:10])
    assert median.points[0][1] == part[4] / 1e3
    assert tail.points[0][1] == part[9] / 1e3


def test_a_spike_gets_its_number(document: dict[str, Any]) -> None:
    spiked = np.full(N, 5000.0)
    spiked[500] = 9e8
    figure = pages._over_time(document, pages._labelled(loads(Result(spiked))), "")
    assert figure is not None
    assert problems(figure) == []
    assert [note.text for note in figure.panels[0].notes] == ["900,000"]


def test_a_sweep_has_its_curve(document: dict[str, Any]) -> None:
    assert pages._curve(document) is None, "one rate is no sweep"
    swept = copy.deepcopy(document)
    swept["settings"]["stops"] = {"udp://a": "two loads were not carried"}
    figure = pages._curve(swept)
    assert figure is not None
    assert problems(figure) == []
    assert "udp://a stops: two loads were not carried" in figure.said
    assert [mark.label for mark in figure.panels[0].marks] == ["udp://a, p50", "udp://a, p99", "udp://a, p99.9"]


def test_nothing_answered_is_nothing_drawn(document: dict[str, Any]) -> None:
    for row in document["arms"]:
        row |= {"intervals_us": dict.fromkeys(("p50", "p90", "p99", "p999"), (None, None))}
    shown = loads(Result(np.zeros(0), unanswered=5))
    assert pages._over_time(document, pages._labelled(shown), "") is None
    assert re.search("n = 5;", " ".join(pages._texts(document, 5, "")))
