"""The studies of the simulator: what they claim is there in a run with few points."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from corelane.bench.sim import studies
from corelane.bench.sim.model import App, Constant, Simulation


class Notes:
    """What a study tells its session."""

    def __init__(self) -> None:
        self.arms: list[dict[str, Any]] = []
        self.stops: dict[str, str] = {}
        self.notes: list[str] = []
        self.settings: dict[str, Any] = {}
        self.figures: dict[str, tuple[float, dict[str, float]]] = {}

    def say(self, text: str) -> None: ...

    def note(self, text: str) -> None:
        self.notes.append(text)

    def stop_uncounted(self, arm: str, why: str) -> None:
        self.stops[arm] = why

    def arm(self, name: str, **row: Any) -> None:
        self.arms.append({"name": name, **row})

    def figure(self, name: str, value: float, *, runs: object, beside: dict[str, float]) -> None:
        self.figures[name] = value, beside


def test_the_plain_error_stands_beside_that_by_control_variate(monkeypatch):
    """A mean wait is a tenth above Erlang-C's; the recursion on the same draws has all of that but a hundredth."""
    monkeypatch.setattr(studies, "SERVERS", (1,))
    monkeypatch.setattr(studies, "SPEED_POINTS", ())
    monkeypatch.setattr(studies, "Simulation", lambda *_, **__: None)
    monkeypatch.setattr(studies.plain, "compare", lambda *_: {"plain error at a moderate load": 0.02})

    def check(_world, servers, _seconds):
        wait_ns = studies.formulas.mean_wait_mmn(servers, studies.LOAD / studies.MEAN_NS, studies.MEAN_NS)
        gap_ns = studies.MEAN_NS / studies.LOAD
        return studies.Checked(9, 1.1 * wait_ns, 0.1 * wait_ns, 1.09 * wait_ns, gap_ns, studies.MEAN_NS, 1e6)

    monkeypatch.setattr(studies, "check", check)
    session = Notes()
    studies.check_formulas(session, 1.0)
    value, beside = session.figures["sim.erlang_error"]
    assert value == pytest.approx(0.01)
    told = {"plain error at a moderate load": 0.02, f"plain error at load {studies.LOAD:g}, the largest": 0.1}
    assert {name: beside[name] for name in told} == pytest.approx(told)
    assert any("by control variate" in note for note in session.notes)


def test_one_loop_ends_where_its_packets_fill_it(monkeypatch):
    """At 0.6 of 128 cores 7.7 requests a microsecond come, and a loop needs 150 ns for each."""
    monkeypatch.setattr(studies, "ONE_LOOP_CORES", (64, 128, 256))
    session = Notes()
    studies.cores_of_one_loop(session, 0.0)
    assert [(r["policy"], r["cores"]) for r in session.arms] == [
        (p, c) for p in ("shenango", "delay", "fair") for c in (64, 128)
    ]
    for policy in ("shenango", "delay", "fair"):
        late, full = session.stops[f"{policy}, one loop"].split("; ")
        assert late.startswith("p99.9 is beyond 100 us at cores 128: ")
        assert "their way through a loop that is 1" in late
        assert full.startswith("cores 128 is not carried: an iokernel loop is 1")
    assert [r["carried"] for r in session.arms] == [True, False] * 3


def test_curves_go_on_to_a_load_that_is_not_carried(monkeypatch):
    """Beyond the one at which the tail is late; and the last one tried says so if it was carried."""
    monkeypatch.setattr(studies, "CORES", (4,))
    monkeypatch.setattr(studies, "POLICIES", ("static", "delay"))
    monkeypatch.setattr(studies, "LOADS", (0.2, 0.5, 0.97, 1.05))
    session = Notes()
    studies.policies_against_load(session, 0.5)
    loads = {p: [r["load"] for r in session.arms if r["policy"] == p] for p in ("static", "delay")}
    assert loads == {"static": [0.2, 0.5], "delay": [0.2, 0.5, 0.97, 1.05]}
    late, full = session.stops["delay, 4 cores"].split("; ")
    assert late.startswith("p99.9 is beyond 100 us at load 0.97: ")
    assert full.startswith("load 1.05 is not carried: they have 100 % of the cores (requests ")
    monkeypatch.setattr(studies, "LOADS", (0.2,))
    studies.policies_against_load(session, 0.0)
    assert session.stops["delay, 4 cores"] == "the highest load tried is carried"


@pytest.mark.parametrize("policy", studies.POLICIES)
def test_equals_have_equal_shares_of_the_cores(policy: str) -> None:
    """Jain's index of core time, of four latency and of four batch applications; under `fair` it is near 1."""
    seen = studies.measure(studies.Point(policy, 64, 0.7 if policy != "static" else 0.2, 4), 0.3)
    assert seen.carried
    least = studies.least_jain([seen])
    assert least == {"batch": seen.jain_batch, "latency": seen.jain_latency}
    assert seen.row()["jain_batch"] == seen.jain_batch
    assert all(1 / 4 <= value <= 1 for value in least.values())
    if policy == "fair":
        assert min(least.values()) > 0.99


def test_unequal_shares_are_seen() -> None:
    apps = [App("a", guaranteed=3, batch=True), App("b", guaranteed=1, batch=True)]
    world = Simulation(apps, 4, seed=1)
    world.run(until_ns=1_000_000)
    assert studies._shared(world, ["a", "b"]) == pytest.approx(16 / (2 * 10), rel=0.01)
    assert np.isnan(studies._shared(world, ["a"]))
    point = studies.measure(studies.Point("delay", 4, 0.3, 1), 0.0)
    assert point.row()["jain_latency"] is None  # there is one
    assert studies.least_jain([point]) == {"batch": point.jain_batch}


def test_a_tail_that_is_not_known_is_named_and_not_called_late(monkeypatch):
    """With no events to spare, at a load whose tail takes millions."""
    monkeypatch.setattr(studies, "CORES", (4,))
    monkeypatch.setattr(studies, "POLICIES", ("delay",))
    monkeypatch.setattr(studies, "LOADS", (0.3, 0.93, 1.0))
    session = Notes()
    studies.policies_against_load(session, 0.0)
    low, high, over = session.arms
    assert not over["carried"]
    assert (low["known"], high["known"]) == (False, False)  # the first one for want of time alone
    assert low["p999_error"] == "inf"  # its batches have too few requests
    assert 0 < low["batch_share"] <= 1
    assert over["batch_share"] is None  # nothing is left to compare it with
    (note,) = session.notes
    assert note.startswith("of 2 points against load that are carried, p99.9 of 2 is not known to 10 %: ")
    assert note.endswith("(delay on 4 cores at load 0.3, 0.93)")
    session = Notes()
    studies.policies_against_load(session, 1.0)
    known = {r["load"]: r["known"] for r in session.arms}
    assert known == {0.3: True, 0.93: False, 1.0: False}
    assert session.notes[0].endswith("(delay on 4 cores at load 0.93, 1)")


def test_a_tail_is_late_if_it_is_so_by_two_standard_errors():
    point = studies.Point("delay", 4, 0.3, 1)
    seen = studies.measure(point, 0.1)
    assert seen.sampled.known
    assert not seen.surely_late
    top = int(np.nonzero(seen.kv.histogram)[0][-1])
    moved = np.zeros_like(seen.kv.histogram)
    moved[top + 80] = seen.kv.done  # all of them far beyond the limit
    late = replace(seen, kv=replace(seen.kv, histogram=moved))
    assert late.p999_us > 2 * studies.LIMIT_US
    assert late.surely_late
    assert not replace(late, sampled=replace(late.sampled, error=0.49)).surely_late


def test_equal_applications_count_as_one():
    world = Simulation([App("a", rate_rps=1e5, service=Constant(1000), guaranteed=1)], 1, seed=3)
    world.run(events=1000)
    one = world.result("a")
    both = studies.together([one, replace(one, dropped=7)])
    assert (both.done, both.dropped, both.moves) == (2 * one.done, 2 * one.dropped + 7 - one.dropped, 2 * one.moves)
    assert np.array_equal(both.histogram, 2 * one.histogram)
