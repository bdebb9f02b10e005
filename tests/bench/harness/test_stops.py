"""Why a curve stops: a verdict for each resource from counters that are made up, and that a load is offered again."""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import pytest
from cltest.cbuild import ROOT

from corelane.bench.harness import stops
from corelane.bench.harness.load import LIGHT_FRACTION, Load
from corelane.bench.harness.openloop import Point, search_peak, sweep, sweep_in_turns, why_it_stops
from corelane.bench.harness.stops import (
    Counts,
    Evidence,
    Watch,
    between,
    idle_look_s,
    refusals,
    stop_of,
    stop_of_closed,
    stop_of_missed,
    watched,
)


def overload(evidence: Evidence | None, late: int = 0, answered: int = 900) -> Point:
    """A load of 1000 requests in a second."""
    return Point(1000.0, float(answered), 1000, answered, late=late, seconds=1.0, evidence=evidence)


FULL = {"rx_dropped_ring_full": 7}
VERDICTS = [
    (Evidence(worker=0.97, loop=0.6, full=FULL), 0, stops.WORKER),  # a ring in front of a busy core is full, too
    (Evidence(worker=0.95, loop=0.99), 1000, stops.LOOP),  # the generator is late since it runs in the loop
    (Evidence(worker=0.4, disk=0.98), 0, stops.DISK),
    (Evidence(worker=0.7, loop=0.5, taken=0.3, full=FULL), 0, stops.TAKEN_CORE),
    (Evidence(worker=0.8, loop=0.5, taken=0.01, full=FULL), 800, stops.RING),
    (Evidence(worker=0.6), 501, stops.GENERATOR),
    (Evidence(worker=0.6, full={"generator_rx_dropped_ring_full": 3}), 0, stops.GENERATOR),  # answers found it full
    (Evidence(worker=0.6, full={"generator_tx_full": 3, "socket_full": 1}), 900, stops.RING),
    (Evidence(worker=0.6, loop=0.6), 10, stops.UNKNOWN),
    (None, 600, stops.GENERATOR),  # nobody read the server's counters
    (None, 0, stops.UNKNOWN),
]


@pytest.mark.parametrize(("evidence", "late", "resource"), VERDICTS)
def test_each_resource_is_named_by_its_counters(evidence: Evidence | None, late: int, resource: str) -> None:
    stop = stop_of(overload(evidence, late))
    assert stop.resource == resource
    assert stop.resource in stops.RESOURCES
    assert stop.document()["resource"] == resource
    assert f"{late / 10:.3g} % sent late or never" in str(stop)


def test_requests_that_were_never_sent_were_late() -> None:
    """The generator got 600 of 1000 off, 200 of them late."""
    point = Point(1000.0, 600.0, 600, 600, late=200, dropped=400, seconds=1.0, evidence=Evidence(worker=0.5))
    assert stop_of(point).resource == stops.GENERATOR
    assert "60 % sent late or never" in str(stop_of(point))


def test_a_load_that_is_carried_when_it_is_offered_again_was_stopped_by_nothing_that_lasts() -> None:
    carried = overload(Evidence(worker=0.99), answered=1000)
    assert stop_of(carried).resource == stops.NOTHING
    assert stop_of(carried, missed=True).resource == stops.WORKER  # carried, and beyond a limit of latency


def test_evidence_is_what_the_counters_gained() -> None:
    first = Counts(1000, 100, worker_s=2.0, waited_s=0.5, loop_s=1.0, full={"a_full": 3, "b_full": 1})
    last = Counts(2000, 1000, worker_s=2.4, waited_s=0.6, loop_s=1.3, full={"a_full": 3, "b_full": 5, "c_full": 2})
    found = between(first, last, 0.5)
    assert found.worker == pytest.approx(0.9 * 0.8)  # of its looks in the time that it was awake
    assert found.loop == pytest.approx(0.6)
    assert found.taken == pytest.approx(0.2)
    assert found.full == {"b_full": 4, "c_full": 2}
    assert found.disk is None
    assert between(Counts(), Counts(), 1.0) == Evidence()
    assert between(Counts(10, 0), Counts(30, 20), 1.0).worker == 1.0
    assert between(Counts(worker_s=1.0), Counts(worker_s=9.0), 1.0).worker == 1.0  # read too late: never more than all


def test_a_look_that_finds_nothing_takes_what_it_took_at_a_light_load() -> None:
    """A server on AF_XDP at its limit: 3 % of its looks find something, and these take nearly all of its time."""
    idle_s = idle_look_s(Counts(1000, 0), Counts(1_001_000, 10_000), 0.099)
    assert idle_s == pytest.approx(100e-9)
    first, last = Counts(0, 0, worker_s=1.0), Counts(500_000, 15_000, worker_s=1.99)
    found = between(first, last, 1.0, idle_s)
    assert found.worker == pytest.approx(0.99 - 0.0485)
    assert found.looks_found == pytest.approx(0.03)
    assert between(first, last, 1.0).worker == pytest.approx(0.03 * 0.99)  # not learnt: the share of looks
    stop = stop_of(overload(found))
    assert stop.resource == stops.WORKER
    assert "worker 94 % busy (work at 3 % of its looks)" in stop.said
    asleep = between(Counts(waited_s=0.0), Counts(1000, 500, waited_s=0.25), 1.0, 1e-4)
    assert asleep.worker == pytest.approx(0.75 - 0.05)  # who waits for a CPU does not run


def test_what_an_idle_look_takes_is_not_told_by_one_that_sleeps_or_works() -> None:
    assert idle_look_s(Counts(), Counts(), 1.0) is None
    assert idle_look_s(Counts(), Counts(100, 80), 1.0) is None
    published = Counts(100, 0, published_s=5.0), Counts(100, 0, published_s=5.0)
    assert idle_look_s(*published, 1.0) is None  # nothing was written down meanwhile
    later = Counts(1_000_100, 0, worker_s=None, published_s=5.5)
    assert idle_look_s(published[0], later, 0.6) == pytest.approx(0.5e-6)  # of the time that was counted in


def test_who_has_work_and_no_core_by_what_decisions_found() -> None:
    """Something waited in it at 80 % of the decisions, and it had the core for 50 % of the time."""
    found = between(Counts(worker_s=0.0), Counts(worker_s=0.5, decisions=1000, waiting=800), 1.0)
    assert found.taken == pytest.approx(0.3)
    assert stop_of(overload(found)).resource == stops.TAKEN_CORE
    assert between(Counts(worker_s=0.0), Counts(worker_s=0.9, decisions=10, waiting=8), 1.0).taken == 0.0


def test_an_explanation_begins_with_a_light_load_where_looks_are_counted() -> None:
    counted = iter(range(1000, 100_000, 1000))
    generator = Loading()
    load = generator.load(lambda: Counts(next(counted), 0))
    point = load.explain(1e6, 0.02)
    assert generator.rates == [LIGHT_FRACTION * 1e6, 1e6]
    assert point.evidence is not None
    assert point.evidence.looks_found == 0.0
    generator = Loading()
    generator.load(lambda: Counts(worker_s=1.0)).explain(1e6, 0.02)
    assert generator.rates == [1e6]


class Loading:
    """A generator that answers at once, and the load that it is measured with."""

    def __init__(self) -> None:
        self.rates: list[float] = []

    def load(self, counts: Callable[[], Counts]) -> Load:
        load = Load(Mock(), counts=counts)

        def measure(rate: float, seconds: float, meanwhile: Any = None) -> Point:
            self.rates.append(rate)
            with meanwhile:
                return Point(rate, rate, 10, 10)

        load.measure = measure  # type: ignore[method-assign,assignment]
        return load


def test_what_was_published_before_the_load_is_not_taken_for_it() -> None:
    now = time.monotonic()

    def readings() -> Iterator[Counts]:
        yield Counts(100, 0, published_s=now - 1)  # of the time before, in which it had nothing to do
        yield Counts(200, 0, published_s=now + 60)
        while True:
            yield Counts(300, 100, published_s=now + 61)

    reading = readings()
    watch = Watch(lambda: next(reading), 0.05)
    with watch:
        pass
    assert watch.evidence is not None
    assert watch.evidence.worker == 1.0


@pytest.mark.parametrize("published", [None, -1.0], ids=["live", "published before"])
def test_a_load_too_short_for_what_is_published_is_read_all_through(published: float | None) -> None:
    """And not at its end twice, where nothing has grown: then all would look idle."""
    began = time.monotonic()
    read_at: list[float] = []

    def read() -> Counts:
        read_at.append(time.monotonic() - began)
        old_s = None if published is None else began + published
        return Counts(5, 0, worker_s=read_at[-1], loop_s=read_at[-1], published_s=old_s)

    with Watch(read, 0.1) as watch:
        pass
    assert watch.evidence is not None
    assert watch.evidence.loop is not None
    assert watch.evidence.loop > 0.1, "1, unless the machine stood still"
    assert (watch.evidence.worker is None) is (published is not None), "it polls: that it ran says nothing"
    assert watch.evidence.looks_found is None


def test_counters_of_rings_without_room_are_found_by_their_names() -> None:
    counted = {"rx_dropped_ring_full": 2, "rx_dropped_no_buffer": 1, "tx_full": 0, "rx_frames": 9, "name": "x_full"}
    assert refusals(counted, "nic_") == {"nic_rx_dropped_ring_full": 2, "nic_rx_dropped_no_buffer": 1}


class Server:
    """Carries up to `capacity`; says at which loads it was explained. calm: the first explained load is carried."""

    def __init__(self, capacity: float, calm: bool = False) -> None:
        self.capacity, self.calm = capacity, calm
        self.explained: list[tuple[float, float]] = []

    def measure(self, rate: float, seconds: float) -> Point:
        sent = int(rate)
        return Point(rate, min(rate, self.capacity), sent, int(min(rate, self.capacity)), seconds=1.0)

    def explain(self, rate: float, seconds: float) -> Point:
        self.explained.append((rate, seconds))
        point = self.measure(0.5 * self.capacity if self.calm and len(self.explained) == 1 else rate, seconds)
        point.evidence = Evidence(worker=1.0)
        return point


def test_a_sweep_offers_the_load_at_which_it_stops_once_more() -> None:
    server = Server(1e5)
    curve = sweep(server.measure, peak_rps=1e5, seconds=13, fractions=(0.5, 1.0, 1.2, 1.4), explain=server.explain)
    assert "unanswered" in curve.stop
    assert curve.because.resource == stops.WORKER
    assert [rate for rate, _ in server.explained] == [pytest.approx(1.2e5)]
    assert server.explained[0][1] >= stops.EXPLAIN_S
    assert len(curve.points) == 4  # what was read for the reason is no point of the curve


def test_a_load_that_is_carried_again_is_followed_by_the_last_one() -> None:
    server = Server(1e5, calm=True)
    curves = sweep_in_turns(
        {"a": server.measure},
        {"a": 1e5},
        seconds=0.1,
        fractions=(1.0, 1.2, 1.4),
        explain={"a": server.explain},
    )
    assert [rate for rate, _ in server.explained] == [pytest.approx(1.2e5), pytest.approx(1.4e5)]
    assert server.explained[0][1] < stops.EXPLAIN_S  # a short run stays short
    assert curves["a"].because.resource == stops.WORKER


def test_a_curve_whose_last_load_is_carried_has_what_is_used_up_there() -> None:
    server = Server(1e9)
    curve = sweep(server.measure, peak_rps=1e5, seconds=1, fractions=(0.5, 1.0), explain=server.explain)
    assert "was carried" in curve.stop
    assert curve.because.resource == stops.WORKER
    assert [rate for rate, _ in server.explained] == [curve.points[-1].offered_rps]
    calm = Point(1e5, 1e5, 100, 100, evidence=Evidence(worker=0.2))
    assert why_it_stops([], calm, None, 1.0).resource == stops.UNKNOWN, "and nothing is used up there"


def test_a_search_that_ends_below_the_peak_has_what_is_used_up_there() -> None:
    server = Server(1e9)
    curve = search_peak(server.measure, start_rps=1e3, seconds=1, tries=3, explain=server.explain)
    assert "still carried" in curve.stop
    assert curve.because.resource == stops.WORKER
    assert [rate for rate, _ in server.explained] == [curve.points[-1].offered_rps]


def test_only_what_has_no_counters_stops_without_them() -> None:
    """Simulated policies, and servers of others that `load` asks."""
    found = {
        str(path.relative_to(ROOT / "bench"))
        for path in (ROOT / "bench").rglob("*.py")
        if re.search(r"\bstop_uncounted\(|session\.stops\[", path.read_text())
    }
    simulated = {"lab/comparing.py", "sim/quantum.py", "sim/studies.py"}
    assert found == {"harness/session.py", "load/command.py", *simulated}


def test_no_benchmark_draws_a_curve_without_who_can_say_why_it_stops() -> None:
    """`load` apart, whose servers are others' and count nothing for it: it has a sweep of its own."""
    found = 0
    for path in (ROOT / "bench").rglob("*.py"):
        text = path.read_text()
        names = [r"session\.curves"] + [r"\bsweep"] * bool(re.search(r"openloop import .*\bsweep\b", text))
        if path.parent.name != "harness" and re.search(rf"({'|'.join(names)})\(", text):
            for call in (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)):
                if re.fullmatch("|".join(names), ast.unparse(call.func)):
                    assert "explain" in {word.arg for word in call.keywords}, f"{path}:{call.lineno}"
                    found += 1
    assert found >= 8


def test_without_counters_a_curve_says_so() -> None:
    because = sweep(Server(1e5).measure, peak_rps=1e5, seconds=1).because
    assert because.resource == stops.UNKNOWN
    assert because.evidence is None


def test_a_search_for_the_peak_says_why_it_ends() -> None:
    server = Server(1e5)
    curve = search_peak(server.measure, start_rps=2e4, seconds=1, explain=server.explain)
    assert curve.because.resource == stops.WORKER
    assert all(rate > 1e5 for rate, _ in server.explained)


def test_clients_that_wait_for_their_answers_end_at_what_is_busy_or_at_their_waits() -> None:
    assert stop_of_closed(Evidence(disk=0.97)).resource == stops.DISK
    assert stop_of_closed(Evidence(worker=0.95, loop=0.4, disk=0.6)).resource == stops.WORKER
    waiting = stop_of_closed(Evidence(disk=0.5))
    assert str(waiting) == "clients waiting (disk 50 % busy)"
    assert stop_of_missed(Evidence(disk=0.5)).resource == stops.UNKNOWN, (
        "who sends at times of its own waits for nothing"
    )


def test_counters_are_read_beside_a_call_that_keeps_its_thread() -> None:
    disk_s = iter((1.0, 5.0))
    found, evidence = watched(lambda seconds: seconds, lambda: Counts(disk_s=next(disk_s)), 0.02)
    assert found == 0.02
    assert evidence.disk == 1.0
