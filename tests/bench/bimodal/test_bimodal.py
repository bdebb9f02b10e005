"""How bimodal sums up: windows of all turns in a row, and a pause of the machine in some of them."""

from __future__ import annotations

import math
import os
from collections import Counter

import pytest

from corelane.bench.bimodal import bimodal, server
from corelane.bench.harness.openloop import Point
from corelane.bench.harness.session import Session
from corelane.bench.harness.stops import Evidence


def turn(*short_p99_us: float) -> Point:
    """Of some windows, each of 100 short requests and one long."""
    point = Point(1e5, 1e5, 101 * len(short_p99_us), 101 * len(short_p99_us))
    point.extra |= {"cpu_s": 1.0, "service_s": 0.5, "handled": 1000, "preempted": 20}
    for kind, requests, windows in (("short", 100, list(short_p99_us)), ("long", 1, [900.0])):
        point.extra[f"{kind}_requests"] = requests * len(short_p99_us)
        point.extra |= {f"{kind}_{name}_us": 1.0 for name in ("p50", "p90", "p99", "p999")}
        point.extra[f"{kind}_p99_windows_us"] = windows
    return point


def test_a_row_has_the_median_of_all_windows() -> None:
    session = Session("bimodal", seconds=0.1)
    bimodal.add_row(session, "quantum", 0.6, [turn(8.0, 9.0, 4000.0), turn(10.0, math.inf, 7.0)])
    (row,) = session.arms
    assert row["load"] == 0.6
    assert row["short_requests"] == 600
    assert row["short_windows"] == 6
    assert row["short_p99_window_us"] == pytest.approx(9.5)
    assert (row["short_p99_window_lower_us"], row["short_p99_window_upper_us"]) == (8.0, 4000.0)
    assert row["long_p99_window_us"] == 900.0
    assert "short_p99_windows_us" not in row
    assert (row["cpu_s"], row["handled"], row["preempted"]) == (2.0, 2000, 40)


def test_a_window_without_long_requests_says_nothing_of_them() -> None:
    assert math.isnan(bimodal.middle_us([]))
    assert bimodal.middle_us([1.0, 2.0, 3.0]) == 2.0


class Made:
    """An iokernel that counts a drop as long as its application is attached."""

    socket_path = "nowhere"

    def __init__(self) -> None:
        self.attached = True
        self.kernel = self

    def __enter__(self) -> Made:
        return self

    def __exit__(self, *why: object) -> None:
        assert not self.attached

    def drops(self) -> Counter[str]:
        """As Shared.drops."""
        return Counter({"tx_dropped_full": 3, "rx_dropped_no_buffer": 1} if self.attached else {})


class Application:
    """A runtime on it, and the service that is set up there."""

    def __init__(self, made: Made) -> None:
        self._made = made
        self.dropped: dict[str, int] = {}

    def start(self) -> None: ...

    def stop(self) -> None:
        self.dropped = {"rx_dropped_no_buffer": 2, "type_queue_full": 5, "udp_no_port": 0}

    def stats(self) -> Application:
        return self

    def close(self) -> None:
        self._made.attached = False


def test_what_was_dropped_for_an_application_is_read_before_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made()
    application = Application(made)
    monkeypatch.setattr(server.shared, "shared", lambda *_, **__: made)
    monkeypatch.setattr(server, "Runtime", lambda *_, **__: application)
    monkeypatch.setattr(server.spin, "setup", lambda *_: application)
    with server.server((0, 1), server.How(5, typed=True)) as arm:
        arm.unanswered = 11
    assert arm.dropped == {"tx_dropped_full": 3, "rx_dropped_no_buffer": 3, "type_queue_full": 5}
    session = Session("bimodal", seconds=0.1)
    bimodal.say_drops(session, "typed", arm)
    (note,) = session.notes
    assert "typed: 11 requests stayed unanswered" in note
    assert "type_queue_full 5, tx_dropped_full 3, rx_dropped_no_buffer 3" in note
    assert session.settings["dropped"]["typed"] == dict(arm.dropped)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs: one for the loop, one for the kthread")
@pytest.mark.parametrize(
    "how", [server.How(5, signal=True), server.How(5), server.How()], ids=["signal", "probe", "no"]
)
def test_an_arm_preempts_in_its_own_way_and_loses_no_request(monkeypatch: pytest.MonkeyPatch, how: server.How) -> None:
    """Some 40 requests of 5 ms, each with as good a chance as not that another one comes meanwhile."""
    for name, value in (("LONG_US", 5000.0), ("LONG_FRACTION", 0.5), ("MEAN_US", 2500.5), ("BACKLOG_S", 60)):
        monkeypatch.setattr(server, name, value)
    loop, worker, *_ = sorted(os.sched_getaffinity(0))
    with server.server((loop, worker), how) as arm:
        point = arm.measure(0.5, 0.4)
        sched = arm.runtime.stats().sched
    assert point.extra["handled"] >= point.sent > 0, "all were worked off, in time for the generator or not"
    assert (point.extra["preempted"] > 0) == (how.quantum_us > 0)
    assert (sched["quantum_signals"] > 0) == how.signal
    assert 0 < point.extra["service_s"] <= point.extra["cpu_s"]


def arm_of(unanswered: int = 0) -> server.Server:
    """An arm that is never measured."""
    return server.Server(Made(), None, None, unanswered)  # type: ignore[arg-type]


def test_an_arm_without_drops_says_that_its_answers_were_late() -> None:
    session = Session("bimodal", seconds=0.1)
    arm = arm_of(1)
    bimodal.say_drops(session, "quantum", arm)
    (note,) = session.notes
    assert note.endswith("none that is counted: they were answered too late")
    arm.unanswered = 0
    bimodal.say_drops(session, "typed", arm)
    assert len(session.notes) == 1


def test_an_arm_stops_at_the_first_load_that_is_not_carried_and_says_why() -> None:
    session = Session("bimodal", seconds=0.1)
    arm = arm_of()
    asked: list[float] = []

    def explain(rate: float, seconds: float) -> Point:
        asked.append(rate)
        return Point(rate, 0.9 * rate, 1000, 900, seconds=1.0, evidence=Evidence(worker=1.0))

    arm.explain = explain  # type: ignore[method-assign]
    carried, failed = Point(1e5, 1e5, 1000, 1000), [Point(rate, 1e5, 1000, 800) for rate in (2e5, 3e5)]
    bimodal.say_stop(session, "quantum", arm, [carried, *failed], 0.01)
    assert asked == [2e5]
    assert session.stops["quantum"].startswith("20 % unanswered at 200,000 requests/s offered: worker busy")
    assert session.stops_because["quantum"]["resource"] == "worker busy"
    bimodal.say_stop(session, "typed", arm, [carried], 0.01)
    assert "was carried" in session.stops["typed"]
    assert asked == [2e5, 1e5]
    assert session.stops_because["typed"]["resource"] == "worker busy"


def test_it_is_said_who_pays() -> None:
    session = Session("bimodal", seconds=0.1)
    plain, slower = turn(9.0), turn(9.0)
    slower.extra |= {"long_p50_us": 3.0, "long_p99_us": 2.0}
    bimodal.say_who_pays(session, {"run to completion": [plain, plain], "quantum": [slower, slower]})
    assert session.settings["long_slowdown"] == {"quantum": {"p50": 3.0, "p99": 2.0}}
    assert session.notes[-1].endswith("of that of running to completion: quantum 3 times (p99 2 times)")
