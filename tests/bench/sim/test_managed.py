"""The check of the simulator against an iokernel: what it makes of a log of moves, and of costs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from corelane.bench._native import lib
from corelane.bench.harness.jitter import Gaps
from corelane.bench.sim import engine, managed, managed_check
from corelane.bench.sim.box import drawn
from corelane.bench.sim.model import App, Constant, Costs, Simulation
from corelane.bench.sim.recorded import Recorded
from corelane.iokernel.control.moves import Move
from corelane.runtime.clock import default_clock
from corelane.runtime.errors import CorelaneError


def ticks(ns: float) -> int:
    return round(ns * default_clock().hz / 1e9)


def moved(at_ns: float, step: int, decided: float, **stamps: float) -> list[Move]:
    """The two entries of a move whose round began at at_ns; stamps in ns after that."""
    base = ticks(at_ns)
    low = {name: (base + ticks(ns)) % 2**32 for name, ns in {"decided": decided, **stamps}.items()}
    end = base + ticks(stamps["back"] + 50)
    wanted = Move(base, 1, 2, lib.CL_IO_LOG_WANTED, step, decided=low["decided"])
    return [wanted, Move(end, 2, 2, lib.CL_IO_LOG_DONE, step, **low)]


LOG = [
    *moved(1e6, lib.CL_IO_STEP_REQUEST, 100, stored=150, lost=400, left=700, back=2100),
    *moved(2e6, lib.CL_IO_STEP_PARKED, 300, stored=350, left=100, back=1800),
]


LOAD = Recorded(np.arange(1, 101) * 1000, np.full(100, 8000))


def slot(us: float = 9.0, load: Recorded = LOAD, **values: Any) -> managed.Slot:
    """All of its requests took so long."""
    plain: dict[str, Any] = {"jobs_per_s": 50.0, "moves_per_s": 0.0, "log": []}
    return managed.Slot(load, np.full(len(load), us * 1e3), np.empty((0, 2), np.int64), **plain | values)


def test_steps_come_from_the_log_of_moves() -> None:
    steps = managed.moved_steps([LOG])
    expected = {"ask": 2000, "seen": 300, "sight": 50, "back": 1500, "notice": 200}
    assert steps == pytest.approx(expected, abs=2)
    assert managed.moved_steps([[]]) == managed.moved_steps([]) == dict.fromkeys(expected, 0.0)


def test_steps_are_of_the_moves_of_all_slots_together() -> None:
    """Two slow moves of a slot that has no others do not weigh as much as a slot of a hundred."""
    slow = [
        one
        for at in (1e6, 2e6)
        for one in moved(at, lib.CL_IO_STEP_REQUEST, 100, stored=150, lost=400, left=700, back=90_000)
    ]
    steps = managed.moved_steps([LOG * 50, slow])
    assert steps["ask"] == pytest.approx(2000, abs=2)
    # The end of one log and the beginning of the next are no move.
    wanted, done = LOG[:2]
    assert managed.moved_steps([[wanted], [done]])["ask"] == 0


def train(each_ns: int) -> managed.Slot:
    """Trains whose answers are so far apart, and the first of each too late."""
    load = managed.trains(0.0)
    answers = np.arange(managed.TRAIN) * each_ns + 9000
    answers[0] = 20_000
    starts = load.at_ns.reshape(-1, managed.TRAIN)[:, :1]
    return managed.Slot(load, (starts + answers).ravel() - load.at_ns, np.empty((0, 2), np.int64), 0.0, 0.0, [])


TAKEN = slot(12.3, log=LOG, crossing_ns=2100.0)
COSTED = {"alone": slot(9.5), "trains": train(8800), "parked": slot(14.5), "taken": TAKEN}


def test_costs_are_what_is_left_of_each_run() -> None:
    found = managed.calibrate(COSTED, 200)
    assert found.request_ns == pytest.approx(800)
    costs = found.costs
    assert (costs.transit_ns, costs.wake_ns, costs.decide_ns) == (700, 5000, 100)
    assert (costs.move_busy_ns, costs.move_idle_ns) == pytest.approx((2000, 1500), abs=2)
    assert costs.longer_ns == pytest.approx(2100 - (2000 + 1500) / 2 - 50, abs=2)
    assert costs.first_ns == pytest.approx(2800 - 2000 - 200 - 200, abs=3)
    assert found.rows()["request_ns"] == found.request_ns


def test_costs_without_answers_are_none() -> None:
    unanswered = {name: slot(float("inf")) for name in ("alone", "parked", "taken")}
    lost = managed.Slot(managed.trains(0.0), np.full(200, np.inf), np.empty((0, 2), np.int64), 0.0, 0.0, [])
    found = managed.calibrate(unanswered | {"trains": lost}, 200)
    assert found.request_ns == 0
    assert found.costs == Costs(decide_ns=100)


def test_a_move_on_average_is_of_what_was_counted_between_two_readings() -> None:
    before, after = {"crossings": 10, "crossing_ns": 1000}, {"crossings": 14, "crossing_ns": 13_000}
    assert managed.mean_crossing_ns(before, after) == 3000
    assert managed.mean_crossing_ns(before, before) == 0


def test_costs_come_from_requests_that_find_no_queue() -> None:
    at = managed.singles(0.01).at_ns
    assert np.diff(at).min() > 2 * managed.SHORT_NS
    starts = managed.trains(0.01).at_ns[:: managed.TRAIN]
    assert np.diff(starts).min() > 1.5 * managed.TRAIN * managed.SHORT_NS


def test_windows_are_of_arrivals() -> None:
    load = Recorded([1, 5_000_000, 10_000_000, 25_000_000], [8000] * 4)
    latency = np.array([10_000.0, 30_000.0, 20_000.0, np.inf])
    assert slot(load=load).windows(latency, 50) == [30.0, 20.0, float("inf")]


class Told:
    """What the check tells its session."""

    def __init__(self) -> None:
        self.settings: dict[str, Any] = {}
        self.arms: dict[str, dict[str, Any]] = {}
        self.skipped: dict[str, str] = {}
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def arm(self, name: str, **row: Any) -> None:
        self.arms[name] = row

    def skip(self, name: str, why: str) -> None:
        self.skipped[name] = why


ALONE_TWICE = {managed_check.ALONE: 40.0, managed_check.ALONE + managed_check.AGAIN: 50.0}
QUIET = (Gaps(0, 0.02, buckets={20e3: (2, 44e3)}), Gaps(1, 0.02))
STOLEN = (Gaps(0, 0.02), Gaps(1, 0.02, buckets={2e6: (1, 2.1e6)}))  # 10.5 % of the second core
SEEN = managed_check.Seen(9.0, 20.0, 0.5, 100.0)


def told(monkeypatch: pytest.MonkeyPatch, bad: dict[str, int]) -> Told:
    """What becomes of three groups at each load; bad: in how many of these the machine spoiled a turn."""
    monkeypatch.setattr(managed_check, "simulated", lambda *_: SEEN)
    good = {**COSTED, managed_check.ALONE: slot(), managed_check.ALONE + managed_check.AGAIN: slot(jobs_per_s=49.0)}
    for policy in managed_check.POLICIES:
        good |= {policy: slot(jobs_per_s=25.0), policy + managed_check.AGAIN: slot(9.9, jobs_per_s=26.0)}
    session = Told()
    groups = [
        managed_check.Group(
            load, {n: managed_check.Turn(one, STOLEN if number < bad.get(n, 0) else QUIET) for n, one in good.items()}
        )
        for load in managed_check.LOADS
        for number in range(3)
    ]
    managed_check.judge(session, groups, 200.0, (1,))  # type: ignore[arg-type]
    return session


def test_both_sides_stand_in_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    row = told(monkeypatch, {}).arms["iokernel and simulator, delay, load 0.5"]
    middle = (9.0 + 9.9) / 2  # of two replays
    assert (row["box_p50_us"], row["model_p50_us"]) == pytest.approx((middle, 9.0))
    assert row["p50_error"] == pytest.approx((9 / 9 - 1 + 9 / 9.9 - 1) / 2)
    assert row["p99_error"] == pytest.approx((20 / 9 - 1 + 20 / 9.9 - 1) / 2)
    assert (row["box_batch_share"], row["batch_apart"]) == pytest.approx((0.51, -0.01))
    assert (row["p50_again_error"], row["p99_again_error"]) == pytest.approx((0.1, 0.1))
    assert row["batch_again_apart"] == pytest.approx(0.02)
    assert row["moves_per_error"] is None  # there was none


def test_jobs_alone_that_differ_by_more_than_replays_do_are_how_far_a_share_is_from_itself() -> None:
    turns = {policy: managed_check.Turn(slot(jobs_per_s=25.0), QUIET) for policy in ("fair", "fair, again")}
    turns |= {name: managed_check.Turn(slot(jobs_per_s=n), QUIET) for name, n in ALONE_TWICE.items()}
    group = managed_check.Group(0.3, turns)
    assert group.seen(turns["fair"].slot).batch_share == 0.5, "of the time that was disturbed less"
    assert managed_check.itself([group], "fair")["batch_again_apart"] == pytest.approx(0.5 * 0.25)


def test_slots_that_the_machine_spoiled_are_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    clean = told(monkeypatch, {})
    some = told(monkeypatch, {"delay": 1})
    assert set(some.arms) == set(clean.arms)
    assert {name for name in clean.arms if some.arms[name] != clean.arms[name]} == {
        f"iokernel and simulator, delay, load {load:g}" for load in managed_check.LOADS
    }
    row = some.arms["iokernel and simulator, delay, load 0.5"]
    assert row["n"] == 500  # of six replays of a hundred
    assert row["p99_again_error"] == pytest.approx(0.1)  # two times are left in which both count
    assert some.settings["managed"] == clean.settings["managed"] | {"slots_left_out": len(managed_check.LOADS)}
    assert some.notes[0] == "5 of the 210 slots of an iokernel were left out: " + managed_check.LOST


def test_where_too_few_slots_are_left_the_rows_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    one = told(monkeypatch, {"fair": 3, f"fair{managed_check.AGAIN}": 2})
    assert set(one.skipped) == {name for name in managed_check.ARMS if ", fair," in name}
    assert all(why.startswith("1 of 6 slots are left") for why in one.skipped.values())
    for run in ("taken", managed_check.ALONE):
        none = told(monkeypatch, {run: 3})
        assert not none.arms
        assert set(none.skipped) == set(managed_check.ARMS)
        assert none.settings["managed"]["costs_ns"] == {}


def test_the_canary_watches_before_and_after_a_slot() -> None:
    order: list[str] = []

    class Slices:
        def slice(self, seconds: float) -> list[Gaps]:
            order.append("canary")
            return [Gaps(3, seconds, buckets={1e6: (1, 1e6)})]

    def run(seconds: float) -> managed.Slot:
        assert seconds == 0.1
        order.append("slot")
        return slot()

    turn = managed_check.watched(Slices(), run, 0.1)  # type: ignore[arg-type]
    assert order == ["canary", "slot", "canary"]
    assert turn.gaps == (Gaps(3, 2 * managed_check.CANARY_S, buckets={1e6: (2, 2e6)}),)
    assert turn.kept  # ten per cent and no more


def test_pauses_are_those_of_the_canary() -> None:
    seen = [Gaps(0, 2.0, buckets={150.0: (9999, 1.5e6), 20e3: (3, 66e3)}), Gaps(1, 2.0, buckets={5e6: (1, 5.5e6)})]
    assert managed_check.pauses_of(seen) == ([22000, 22000, 22000, 5500000], 1.0)


def test_the_loops_pauses_are_replayed_and_the_workers_drawn() -> None:
    one = slot()
    one.loop_gaps = np.array([[5_000, 1_200], [40_000_000, 9_000]])
    rows = managed_check.pauses_at(one, 1, [22_000], 1000.0, seed=1)
    assert rows[rows[:, 1] == 1].tolist() == [[5_000, 1, 1_200], [40_000_000, 1, 9_000]]
    assert (np.diff(rows[:, 0]) >= 0).all()
    drawn = rows[rows[:, 1] == 0]
    assert set(drawn[:, 2]) == {22_000}
    assert 20 <= len(drawn) <= 90  # 50 ms and what comes after, 1000 a second
    assert len(managed_check.pauses_at(one, 1, [], 0.0, seed=1)) == 2


def test_the_worst_is_said() -> None:
    row: dict[str, Any] = {"under": "delay", "load": 0.5, "p50_error": 0.01, "p99_error": None, "moves_per_error": 0.02}
    said = managed_check.apart([row | {"batch_apart": 0.0}, row | {"load": 0.7, "p50_error": -0.2, "batch_apart": 0.1}])
    assert "p50 by 11 % in the median and -20 % at most (delay, load 0.7)" in said
    assert "p99" not in said
    assert "by +0.1 at most (delay, load 0.7)" in said


def seldom(costs: Costs, urgent_ns: int = 1000, policy: str = "shenango", **how: Any) -> Any:
    """Requests of 8 us so seldom that each finds the one core with the batch job, and how they fared."""
    app = App("a", rate_rps=2000, service=Constant(8000), constant_gaps=True, **how)
    world = Simulation(
        [app, App("batch", batch=True)], 1, policy=policy, urgent_ns=urgent_ns, interval_ns=5000, costs=costs
    )
    world.run(until_ns=500_000_000)
    return world


COSTS = Costs(move_busy_ns=2000, move_idle_ns=1000, first_ns=1300, notice_ns=200, transit_ns=700, seen_ns=400)


def test_a_request_for_an_application_without_a_core_is_decided_on_at_once() -> None:
    world = seldom(COSTS)
    seen, batch = world.result("a"), world.result("batch")
    assert seen.done >= 998
    assert seen.mean_latency_ns == pytest.approx(200 + 2000 + 1300 + 8000 + 700, abs=1)
    assert seen.moves == pytest.approx(seen.done, abs=2)
    # The job goes on until it sees that it is asked; it is back after the notice and the move.
    away = 2000 - 400 + 1300 + 8000 + 200 + 1000
    assert batch.cores_worked == pytest.approx(1 - 2000e-9 * away, abs=5e-5)


def test_without_urgent_decisions_it_waits_for_the_interval() -> None:
    mean = seldom(COSTS, urgent_ns=0).result("a").mean_latency_ns
    assert mean > 2000 + 1300 + 8000 + 700
    assert mean != pytest.approx(200 + 2000 + 1300 + 8000 + 700, abs=100)


def test_policies_are_told_how_long_moves_and_first_answers_take() -> None:
    world = seldom(Costs(move_busy_ns=2000, sight_ns=50, first_ns=500))
    assert int(world._view[0]["move_ns"]) == 2050
    assert int(world._table[0]["answer_ns"]) == pytest.approx(2000 + 500 + 8000, abs=16)


def test_policies_are_told_what_moves_cost_batch_work() -> None:
    """There and back, 2000 times a second; a long move counts for no more than an old owner has to let go."""
    long_move = Costs(move_busy_ns=50_000, sight_ns=50, move_idle_ns=1000)
    for costs, each_ns in (
        (COSTS, 2000 + 1000),
        (replace(COSTS, longer_ns=500), 2000 + 1000 + 2 * 500),
        (long_move, 11_050),
    ):
        world = seldom(costs)
        batch_ns, moving_ns = (int(world._view[0][word]) for word in ("batch_ns", "moving_ns"))
        assert moving_ns / batch_ns == pytest.approx(2000 * each_ns / 1e9 / world.result("batch").cores_held, rel=0.15)
        assert batch_ns < 2 * engine.CROSSED_MEMORY_NS


def test_the_default_policy_keeps_batch_work_near_the_line() -> None:
    """Where its target alone would leave half of what the load leaves."""
    service, costs = Constant(200), Costs(move_busy_ns=1900, move_idle_ns=1500, notice_ns=200, seen_ns=300)
    of_line = {}
    for percent in (100, 10):
        apps = [App("a", rate_rps=1e6, service=service), App("batch", batch=True)]
        how = {"policy": "delay", "params": {"moves_percent": percent}, "interval_ns": 5000, "urgent_ns": 1000}
        world = Simulation(apps, 1, costs=costs, **how)  # type: ignore[arg-type]
        world.run(until_ns=20_000_000)
        of_line[percent] = world.result("batch").cores_worked / (1 - 1e6 * 200e-9)
        assert world.result("a").percentile_us(99) < 100
    assert of_line[100] < 0.6
    assert of_line[10] > 0.85


def test_an_owner_that_others_wait_for_has_parked_and_is_woken() -> None:
    world = seldom(Costs(wake_ns=3000), policy="static", guaranteed=1)
    assert world.result("a").mean_latency_ns == pytest.approx(11_000, abs=1)
    assert world.result("batch").cores_worked == 0


def test_pauses_delay_whom_they_meet() -> None:
    """A core that stands still for 50 us 400 times a second; the loop as often. Requests come at random to both."""
    app = App("a", rate_rps=2000, service=Constant(1000), guaranteed=1)
    costs = Costs(pauses_ns=(50_000,), pauses_per_s=400.0)
    world = Simulation([app], 1, policy="static", interval_ns=5000, costs=costs, seed=3)
    world.run(until_ns=30_000_000_000)
    seen = world.result("a")
    assert seen.arrived == pytest.approx(seen.done, abs=3)
    late = 1 - seen.histogram[: late_bucket()].sum() / seen.done
    assert late == pytest.approx(2 * 400 * 50e-6, rel=0.1)
    assert seen.percentile_us(50) == pytest.approx(1.0, rel=0.02)


def late_bucket() -> int:
    """The first bucket of latencies over 2 us."""
    return int(engine.bucket_of(2000))


def test_urgent_decisions_want_an_interval() -> None:
    with pytest.raises(CorelaneError, match="interval_ns"):
        Simulation([App("a")], 1, interval_ns=0, urgent_ns=1000)


def test_same_load_same_answer() -> None:
    found = managed.Calibration(Costs(move_busy_ns=2000), 500.0)
    one = slot(load=drawn(0.5 / managed.MEAN_NS * 1e9, managed.SERVICE, 2000, seed=1))
    once, again = (managed_check.simulated("delay", one, 1, found, ()) for _ in range(2))
    assert once == again
    assert 0 < once.batch_share < 0.5
    assert once.moves_per_s > 0
