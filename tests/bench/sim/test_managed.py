"""The check of the simulator against an iokernel: what it makes of a log of moves, and of costs."""

from __future__ import annotations

from typing import Any

import pytest

from corelane.bench._native import lib
from corelane.bench.harness.jitter import Gaps
from corelane.bench.sim import engine, managed, managed_check
from corelane.bench.sim.model import App, Constant, Costs, Simulation
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


def slot(**values: Any) -> managed.Slot:
    plain: dict[str, Any] = {"short_p50_us": 9.0, "requests": 100, "achieved_rps": 0.0, "jobs_per_s": 0.0}
    return managed.Slot([9.0], [20.0], **plain | {"moves_per_s": 0.0, "log": []} | values)


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


def costed(**runs: Any) -> dict[str, list[managed.Slot]]:
    """One slot of each run of `costing`."""
    return {name: [slot(**values)] for name, values in runs.items()}


def test_costs_are_what_is_left_of_each_run() -> None:
    slots = costed(
        alone={"short_p50_us": 9.5},
        full={"achieved_rps": 0.99 / 10.8e-6},
        parked={"short_p50_us": 14.5},
        taken={"short_p50_us": 12.3, "log": LOG},
    )
    found = managed.calibrate(slots, 200, stalled=0.01)
    assert found.request_ns == pytest.approx(800)
    assert found.service.mean == pytest.approx(8800)
    costs = found.costs
    assert (costs.transit_ns, costs.wake_ns, costs.decide_ns) == (700, 5000, 100)
    assert (costs.move_busy_ns, costs.move_idle_ns) == pytest.approx((2000, 1500), abs=2)
    assert costs.first_ns == pytest.approx(2800 - 2000 - 200 - 200, abs=3)


@pytest.mark.parametrize("rounds", [2, 3])
def test_one_bad_round_does_not_make_the_costs(rounds: int) -> None:
    good = {"achieved_rps": 9e4, "log": LOG}
    bad = {"short_p50_us": 5000.0, "achieved_rps": 4e4}
    names = ("alone", "full", "parked", "taken")
    slots = {name: [slot(**good)] * (rounds - 1) + [slot(**bad)] for name in names}
    expected = managed.calibrate(costed(**dict.fromkeys(names, good)), 200, 0.0)
    assert managed.calibrate(slots, 200, 0.0) == expected


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


QUIET = (Gaps(0, 0.02, buckets={20e3: (2, 44e3)}), Gaps(1, 0.02))
STOLEN = (Gaps(0, 0.02), Gaps(1, 0.02, buckets={2e6: (1, 2.1e6)}))  # 10.5 % of the second core
BAD = {"short_p50_us": 5000.0, "achieved_rps": 1.0, "jobs_per_s": 1.0, "moves_per_s": 1e6}


def told(monkeypatch: pytest.MonkeyPatch, bad: dict[str, int]) -> Told:
    """What becomes of three rounds; bad: how many of a run's turns the machine spoiled."""
    seen = managed_check.Seen(9.0, 20.0, 0.5, 100.0)
    monkeypatch.setattr(managed_check, "simulated", lambda *_: seen)
    good = managed_check.Turn(slot(achieved_rps=9e4, jobs_per_s=50.0, moves_per_s=100.0, log=LOG), QUIET)
    spoiled = managed_check.Turn(slot(**BAD), STOLEN)
    names = ("alone", "full", "parked", "taken", managed_check.ALONE, *managed_check.ARMS)
    turns = {n: [spoiled] * bad.get(n, 0) + [good] * (3 - bad.get(n, 0)) for n in names}
    session = Told()
    managed_check.judge(session, turns, 200.0, 1, 1)  # type: ignore[arg-type]
    return session


def test_slots_that_the_machine_spoiled_are_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    clean = told(monkeypatch, {})
    arm = next(iter(managed_check.ARMS))
    some = told(monkeypatch, {"taken": 1, managed_check.ALONE: 1, arm: 1})
    assert clean.arms[arm]["n"] == 300
    assert some.arms == clean.arms | {arm: clean.arms[arm] | {"n": 200}}
    assert some.settings["managed"] == clean.settings["managed"] | {"slots_left_out": 3}
    assert clean.settings["managed"]["costs_ns"]["pause_mean_ns"] == 22_000  # nothing of the spoiled ones
    assert some.notes[:-1] == ["3 of the 75 slots of an iokernel and of its costs were left out: " + managed_check.LOST]
    assert some.notes[-1:] == clean.notes


def test_where_too_few_slots_are_left_the_rows_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    arm = list(managed_check.ARMS)[-1]
    one = told(monkeypatch, {arm: 2})
    assert one.skipped == {
        arm: f"1 of 3 slots are left of {arm!r}, and 2 are needed: around the others {managed_check.LOST}"
    }
    assert set(one.arms) == set(managed_check.ARMS) - {arm}
    for run in ("taken", managed_check.ALONE):
        none = told(monkeypatch, {run: 3})
        assert not none.arms
        assert not none.notes
        assert set(none.skipped) == set(managed_check.ARMS)
        assert all(why.startswith(f"0 of 3 slots are left of {run!r}") for why in none.skipped.values())
    assert not told(monkeypatch, dict.fromkeys(managed_check.ARMS, 3)).arms


def test_the_canary_watches_before_and_after_a_slot() -> None:
    order: list[str] = []

    class Slices:
        def slice(self, seconds: float) -> list[Gaps]:
            order.append("canary")
            return [Gaps(3, seconds, buckets={1e6: (1, 1e6)})]

    def run() -> managed.Slot:
        order.append("slot")
        return slot()

    turn = managed_check.watched(Slices(), run)  # type: ignore[arg-type]
    assert order == ["canary", "slot", "canary"]
    assert turn.gaps == (Gaps(3, 2 * managed_check.CANARY_S, buckets={1e6: (2, 2e6)}),)
    assert turn.kept  # ten per cent and no more


def test_pauses_are_those_of_the_canary() -> None:
    seen = [Gaps(0, 2.0, buckets={150.0: (9999, 1.5e6), 20e3: (3, 66e3)}), Gaps(1, 2.0, buckets={5e6: (1, 5.5e6)})]
    costs = managed_check.with_pauses(Costs(move_busy_ns=7), seen)
    assert costs == Costs(move_busy_ns=7, pauses_ns=(22000, 22000, 22000, 5500000), pauses_per_s=1.0)
    assert managed_check.stalled(seen[:1]) == pytest.approx(66e3 / 2e9)
    assert managed_check.stalled(seen[1:]) == 0


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
    for costs, each_ns in ((COSTS, 2000 + 1000), (Costs(move_busy_ns=50_000, sight_ns=50, move_idle_ns=1000), 11_050)):
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
    once, again = (managed_check.simulated("delay", 0.5, 1, found, windows=4) for _ in range(2))
    assert once == again
    assert 0 < once.batch_share < 0.5
    assert once.moves_per_s > 0
