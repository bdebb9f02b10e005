"""Cores needed against the time between decisions: what deciding rarely costs, and when that is known."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import Any

import pytest

from corelane.bench.sim import interval
from corelane.bench.sim.sampling import Sampled

from .test_studies import Notes


@pytest.fixture(autouse=True)
def loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading the policy tries it in a process of its own, which takes a second."""
    monkeypatch.setattr(interval, "load_policy", load_once)


load_once = functools.cache(interval.load_policy)


@pytest.mark.soak(takes_s=6)
def test_deciding_rarely_takes_more_cores_and_more_where_the_load_shifts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shenango's observation; and a long interval is not judged by a handful of decisions."""
    monkeypatch.setattr(interval, "INTERVALS_US", (5, 100, 1000))
    session: Any = Notes()
    interval.cores_against_interval(session, 0.3)
    assert len(session.arms) == 6
    held = {kind: [r["cores_held"] for r in session.arms if r["arrivals"] == kind] for kind in interval.ARRIVALS}
    for cores in held.values():
        assert cores[0] < cores[1] < cores[2] <= interval.CORES
    assert held["shifting"][1] > held["steady"][1]
    assert held["shifting"][2] > held["steady"][2] + 1
    work = interval.LOAD * interval.CORES
    for row in session.arms:
        assert row["p999_us"] <= interval.LIMIT_US
        # Of the mean of a rate in so many phases.
        assert row["cores_worked"] == pytest.approx(work, rel=0.05 if row["arrivals"] == "steady" else 0.3)
        least_us = interval.LEAST_TURNS * row["interval_us"]
        assert row["n"] > (0.9 if row["arrivals"] == "steady" else 0.6) * least_us * work / interval.SERVICE_NS * 1e3


@functools.cache
def some_trial() -> interval.Tried:
    """A real one, as the start of those below: it compiles, so not while tests are collected."""
    return interval.tried(load_once(f"{interval.__name__}:headroom"), 4, 20_000, 0.0, 0.0)


def tail(us: float, known: bool = True, error: float = 0.05, dropped: int = 0) -> interval.Tried:
    """One whose every latency is the same."""
    done = some_trial().seen.done
    histogram = some_trial().seen.histogram * 0
    histogram[bucket(us)] = done
    seen = replace(some_trial().seen, histogram=histogram, dropped=dropped, arrived=done + dropped)
    return interval.Tried(seen, Sampled(error, 10.0, known))


def bucket(us: float) -> int:
    from corelane.bench.sim.engine import bucket_of

    return int(bucket_of(round(us * 1e3)))


@pytest.mark.parametrize(
    ("one", "sure"),
    [
        ({"us": 50.0}, True),
        ({"us": 50.0, "known": False}, False),
        ({"us": 130.0, "known": False, "error": 0.05}, True),  # beyond the limit by more than two standard errors
        ({"us": 130.0, "known": False, "error": 0.2}, False),
        ({"us": 900.0, "known": False, "error": math.inf}, False),
        ({"us": 50.0, "known": False, "error": math.inf, "dropped": 10**6}, True),
    ],
)
def test_when_a_trial_is_sure(one: dict[str, Any], sure: bool) -> None:
    assert tail(**one).sure is sure


@pytest.mark.parametrize(("which", "known"), [(None, True), (3, False), (2, False), (8, True)])
def test_a_point_is_known_if_both_that_decide_are(
    monkeypatch: pytest.MonkeyPatch, which: int | None, known: bool
) -> None:
    """The least headroom is 3: what 3 and 2 saw decides, whatever else was tried on the way."""

    def tried(policy: Any, spare: int, *_: Any) -> interval.Tried:
        return tail(50.0 if spare >= 3 else 110.0, known=spare != which, error=0.05 if spare != which else 0.5)

    monkeypatch.setattr(interval, "tried", tried)
    monkeypatch.setattr(interval, "INTERVALS_US", (20,))
    session: Any = Notes()
    interval.cores_against_interval(session, 0.1)
    assert [(r["headroom_cores"], r["known"]) for r in session.arms] == [(3, known)] * 2
    assert [row["one_less_p999_us"] > interval.LIMIT_US for row in session.arms] == [True, True]
    assert len(session.notes) == (0 if known else 2)


def test_without_any_headroom_one_trial_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interval, "tried", lambda *_: tail(50.0))
    monkeypatch.setattr(interval, "INTERVALS_US", (5,))
    session: Any = Notes()
    interval.cores_against_interval(session, 0.1)
    assert [(r["headroom_cores"], r["known"], r["one_less_p999_us"]) for r in session.arms] == [(0, True, None)] * 2


def test_a_limit_that_nothing_keeps_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interval, "tried", lambda *_: tail(500.0))
    monkeypatch.setattr(interval, "INTERVALS_US", (5,))
    session: Any = Notes()
    interval.cores_against_interval(session, 0.1)
    assert not session.arms
    assert [note.rpartition(", ")[2] for note in session.notes] == ["steady load", "shifting load"]
