"""Which arms have slots, which slots are left out, and when it is known on which side of the goal a ratio lies."""

from __future__ import annotations

import contextlib
import io
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import pytest
from cltest import soak
from cltest.slots import HOST_GAP_S, slot

from corelane.bench.harness import tails
from corelane.bench.harness.openloop import Point
from corelane.bench.harness.session import Session
from corelane.bench.harness.tails import Arm, Compared, Slot, Taken, turns
from corelane.bench.harness.tails.turns import LOOKS, MET, MISSED, OPEN
from corelane.bench.harness.tails.waits import Look, Waits

COST, GAIN = "tcp.attack_p99", "posix.p99_gain"  # at most 3; at least 2
ALONE, SLOT_S = "alone", 10.0
THREAD, OWN = 7, 8  # of an arm that names its threads: one that waits, and one that may have its CPU meanwhile

Drawn = Callable[[random.Random], Slot]


class Machine:
    """A session whose slots take SLOT_S each, by a clock of its own, and whose host takes what the slots say. THREAD is
    ready for as long as others have its CPU; OWN runs as long in arms whose stalls are their own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, arms: dict[str, Drawn], seed: int = 1) -> None:
        self.session = Session("tcp", seconds=1, cores=[0], progress=io.StringIO())
        self.now, self.host_s, self.waited_s, self.own_s, self.turns = 0.0, 0.0, 0.0, 0.0, Counter[str]()
        self.stalls: set[str] = set()
        self.order: list[str] = []
        rng = random.Random(seed)
        monkeypatch.setattr(turns.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(turns, "Host", lambda cpus: self)
        monkeypatch.setattr(turns, "Waits", partial(Counts, self))
        monkeypatch.setattr(self.session, "take_canary", lambda: None)
        self.arms = {name: self._arm(name, rng, drawn) for name, drawn in arms.items()}

    def _arm(self, name: str, rng: random.Random, drawn: Drawn) -> Callable[[AbstractContextManager[object]], Point]:
        def run(meanwhile: AbstractContextManager[object]) -> Point:
            got = drawn(rng)
            with meanwhile:
                self.now += SLOT_S
                self.host_s += got.host_s or 0.0
                self.waited_s += got.others_s
                self.own_s += got.others_s if name in self.stalls else 0.0
            self.turns[name] += 1
            self.order.append(name)
            return got.point

        return run

    why_not = ""

    def taken_s(self) -> dict[int, float] | None:
        return {0: 1.0, 1: self.host_s}

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *why: object) -> None: ...

    def take(self, figure: str, seconds: float, **how: Any) -> Taken:
        over = {name: ALONE for name in self.arms if name != ALONE}
        return self.over(figure, over, seconds, **how)

    def over(
        self,
        figure: str,
        over: dict[str, str],
        seconds: float,
        turn_s: float = 0.0,
        threads: tuple[int, ...] = (),
        **how: Any,
    ) -> Taken:
        arms = {
            name: Arm(slot, turn_s, partial(self.within, name), lambda: threads, lambda: [OWN])
            for name, slot in self.arms.items()
        }
        return tails.compare(self.session, figure, arms, over, seconds, **how)

    @contextlib.contextmanager
    def within(self, name: str) -> Iterator[None]:
        self.order.append(f"{name} begins")
        yield
        self.order.append(f"{name} ends")

    def figure(self, name: str, done: Taken) -> dict[str, Any]:
        tails.judge(self.session, name, done)
        found: dict[str, Any] = self.session.document()["figures"][name]
        return found


class Counts(Waits):
    """Of a Machine's threads, which have one CPU."""

    def __init__(self, machine: Machine, threads: frozenset[int], own: list[int]) -> None:
        super().__init__((), ())
        self.machine, self.threads = machine, frozenset(threads)
        self._cpus = {tid: {0} for tid in (*threads, *own)}

    def _look(self) -> dict[int, Look]:
        of = {THREAD: Look(0.0, self.machine.waited_s, 0), OWN: Look(self.machine.own_s, 0.0, 0)}
        return {tid: of.get(tid, Look(0.0, 0.0, 0)) for tid in self._cpus}


def arm(level_us: float = 10.0, **how: float) -> Drawn:
    return lambda rng: slot(rng, level_us, **how)


def test_the_time_goes_to_those_of_which_it_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, {ALONE: arm(), "bad": arm(60), "good": arm(11), "near": arm(30)})
    done = machine.take(COST, 2000)
    assert {name: one.verdict for name, one in done.compared.items()} == {"bad": MISSED, "good": MET, "near": OPEN}
    assert machine.turns["good"] == machine.turns["bad"] == LOOKS[0]
    assert machine.turns["near"] == machine.turns[ALONE] == done.rounds > LOOKS[0]
    assert machine.now < 2000
    order = [name for name in machine.order if name in machine.arms]
    assert order[:8] == [ALONE, "bad", "good", "near", "near", "good", "bad", ALONE]


def test_it_ends_when_all_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, {ALONE: arm(), "ours": arm(40)})
    done = machine.take(GAIN, 1e6)
    assert done.rounds == LOOKS[0]
    figure = machine.figure(GAIN, done)
    assert figure["met"] is True
    assert figure["value"] == pytest.approx(4, rel=0.2)


def test_a_round_is_taken_however_long_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, {ALONE: arm(), "bad": arm(60)})
    done = machine.take(COST, 0)
    assert done.rounds == 1
    figure = machine.figure(COST, done)
    assert figure["met"] is None
    assert "not known on which side" in figure["reason"]
    machine.session.seconds = turns.LOOKED_S
    assert machine.take(COST, 0).rounds == LOOKS[0]


def test_turns_that_the_host_took_are_made_up_for(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, {ALONE: arm(host=0.2), "near": arm(30)}, seed=4)
    machine.session.seconds = turns.LOOKED_S
    done = machine.take(COST, 0)
    assert LOOKS[0] < done.rounds < 2 * LOOKS[0]
    assert done.compared["near"].counted == LOOKS[0]


@pytest.mark.parametrize("level_us", [10.0, 20.0])
def test_gaps_of_the_host_are_left_out_of_both_arms(monkeypatch: pytest.MonkeyPatch, level_us: float) -> None:
    """They take a hundredth of the time of either arm, and are all of its p99 with them."""
    machine = Machine(monkeypatch, {ALONE: arm(host=0.3), "other": arm(level_us, host=0.3)}, seed=4)
    done = machine.take(GAIN, 1280)
    one = done.compared["other"]
    figure = machine.figure(GAIN, done)
    assert one.ratio is not None
    assert figure["value"] == pytest.approx(level_us / 10, rel=0.15)
    assert one.plain is not None
    assert one.plain.below_us > 10 * one.ratio.below_us
    assert all(n > 0 for n in one.left_out.values())
    assert figure["beside"]["left out, other"] == one.left_out["other"]
    assert figure["beside"]["left out, alone"] == one.left_out[ALONE]
    assert figure["beside"]["turns of each"] == one.ratio.turns < len(one.pairs)


@pytest.mark.parametrize("threads", [(), (THREAD - 1, THREAD)])
def test_stalls_of_an_arm_are_seen(monkeypatch: pytest.MonkeyPatch, threads: tuple[int, ...]) -> None:
    """Another thread of the arm has the CPU of the one that answers, which is ready meanwhile; or the arm sleeps, or
    waits for a lock, so that nobody is ready: none of the slots is left out."""
    machine = Machine(monkeypatch, {ALONE: arm(), "attacked": arm(burst=0.4, burst_s=0.012)}, seed=3)
    machine.stalls = {"attacked"}
    done = machine.take(COST, 1e4, threads=threads)
    one = done.compared["attacked"]
    assert one.verdict == MISSED
    assert one.left_out == {"attacked": 0, ALONE: 0}
    figure = machine.figure(COST, done)
    assert figure["met"] is False
    assert figure["beside"]["of the middle slots"] < 3  # they forget it


def test_slots_in_which_others_had_the_cpu_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    bursts = {"burst": 0.4, "burst_s": 0.012}
    machine = Machine(monkeypatch, {ALONE: arm(**bursts), "attacked": arm(20, **bursts)}, seed=3)
    done = machine.take(COST, 1280, threads=(THREAD - 1, THREAD))
    one = done.compared["attacked"]
    assert one.verdict == MET
    assert one.value == pytest.approx(2, rel=0.15)
    for name, slots in one.slots.items():
        assert one.left_out[name] == sum(slot.others_s > 0 for slot in slots) > 0
    found = tails.turns.said(one)
    assert max(found["others_ms_of_slots"]["attacked"]) == pytest.approx(12)


def test_what_the_host_takes_is_not_known_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, {ALONE: arm(host=0.3), "other": arm(host=0.3)})
    machine.why_not = "what the host takes is not known: no"
    monkeypatch.setattr(machine, "taken_s", lambda: None)
    done = machine.take(COST, 160)
    machine.figure(COST, done)
    assert done.compared["other"].left_out == {"other": 0, ALONE: 0}
    assert any("no slot is left out for it" in note for note in machine.session.notes)


def test_a_turn_may_have_several_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those in which the host took a CPU are left out of it."""
    machine = Machine(monkeypatch, {ALONE: arm(), "other": arm(40, host=0.5)}, seed=6)
    done = machine.take(GAIN, 100, turn_s=2.5 * SLOT_S)
    one = done.compared["other"]
    assert machine.order[:5] == [f"{ALONE} begins", ALONE, ALONE, ALONE, f"{ALONE} ends"]
    assert {len(turn) for pair in one.pairs for turn in pair} == {3}
    assert 0 < one.left_out["other"] < len(one.slots["other"])
    assert one.value == pytest.approx(4, rel=0.2)


def test_nothing_is_known_where_the_host_was_in_each_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, {ALONE: arm(host=1), "other": arm()})
    figure = machine.figure(COST, machine.take(COST, 100))
    assert figure["value"] is None
    assert "the host took a CPU, or others" in figure["reason"]


@pytest.mark.parametrize(
    ("alone", "other", "why"),
    [({"host": 0.6}, {"host": 0.6}, "which is too many"), ({}, {"host": 0.4}, "too far apart")],
)
def test_many_slots_that_are_left_out_judge_nothing(
    monkeypatch: pytest.MonkeyPatch, alone: dict[str, float], other: dict[str, float], why: str
) -> None:
    machine = Machine(monkeypatch, {ALONE: arm(**alone), "other": arm(60, **other)}, seed=5)
    done = machine.take(COST, 1280)
    figure = machine.figure(COST, done)
    assert done.compared["other"].verdict == OPEN
    assert figure["met"] is None
    assert why in figure["reason"]
    assert figure["value"] == pytest.approx(6, rel=0.2)


def test_a_part_that_is_added_is_the_ratio_less_one(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "trace.p99_cost"
    machine = Machine(monkeypatch, {ALONE: arm(), "full": arm(20)})
    figure = machine.figure(name, machine.take(name, 1e4, less=1.0))
    assert figure["met"] is False
    assert figure["value"] == pytest.approx(1, rel=0.3)


def test_rows_are_of_the_slots_that_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, {ALONE: arm(host=0.3), "other": arm()}, seed=2)
    done = machine.take(COST, 320)
    row = tails.rows(machine.session, done, lambda arm: f"a client, {arm}")[ALONE]
    left = sum(one.disturbed for turn in done.turns[ALONE] for one in turn)
    assert row["name"] == f"a client, {ALONE}"
    assert (row["slots"], row["left_out"]) == (done.rounds, left)
    assert row["host_ms"] == pytest.approx(1e3 * HOST_GAP_S * left)
    assert row["p99_us"] < 100


def test_what_is_shown_beside_has_a_slot_in_each_round(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, {ALONE: arm(), "near": arm(30), "bound": arm(20, host=0.2)}, seed=9)
    done = machine.over(COST, {"near": ALONE}, 900)
    assert machine.turns["bound"] == machine.turns["near"] == done.rounds >= LOOKS[0]
    assert tails.between(done, "near", "bound") == pytest.approx(1.5, rel=0.2)


def test_arms_that_are_alike_bound_what_can_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, {ALONE: arm(), "near": arm(30), "alone again": arm()}, seed=10)
    done = machine.over(COST, {"near": ALONE}, 900)
    tails.judge(machine.session, COST, done, alike=tails.compared(done, "alone again", ALONE))
    figure = machine.session.document()["figures"][COST]
    low, high = (figure["beside"][f"bound: alone again, 95 % {end}"] for end in ("from", "to"))
    assert low < 1 < high
    assert figure["reason"].endswith(f"; alone again: {low:.3g} to {high:.3g}")


@pytest.mark.parametrize(("figure", "level_us", "never"), [(COST, 15, MISSED), (COST, 45, MET), (GAIN, 30, MISSED)])
def test_chance_decides_nothing(figure: str, level_us: float, never: str) -> None:
    """Many comparisons, looked at again and again: none is decided wrongly, and most are decided rightly."""
    right, rng = 0, random.Random(11)
    for _ in range(15):
        one = Compared(figure, "other", ALONE)
        for n in range(1, LOOKS[1] + 1):
            one.pairs.append(([slot(rng, level_us)], [slot(rng)]))
            if n in LOOKS and one.verdict == OPEN:
                one.look(12)
        assert one.verdict != never
        right += one.verdict != OPEN
    assert right > 10


@pytest.mark.soak(short=True, takes_s=2)
@pytest.mark.parametrize(("seed", "gaps", "told"), [(21, 0.04, True), (22, 0.3, True), (23, 0.04, False)])
def test_at_the_goal_gaps_decide_nothing(seed: int, gaps: float, told: bool) -> None:
    """Slots with and without gaps of 3 to 7 ms, in which others have the CPU, and levels that differ from turn to turn:
    a ratio that is the goal itself is taken for better, or for worse, no more often than it may be. Nor is it if nobody
    tells of the gaps."""
    rng, verdicts = random.Random(seed), Counter[str]()
    for _ in range(soak.examples(10, 20)):
        one = Compared(GAIN, "other", ALONE)
        for n in range(1, 11):
            above, below = (level * rng.lognormvariate(0, 0.1) for level in (20.0, 10.0))
            one.pairs.append((turn_of(rng, above, gaps, told), turn_of(rng, below, gaps, told)))
            if n in LOOKS and one.verdict == OPEN:
                one.look()
        if one.verdict == OPEN:
            one.look()
        verdicts[one.verdict] += 1
    print(verdicts)
    assert verdicts[MET] <= 1
    assert verdicts[MISSED] <= 1


def turn_of(rng: random.Random, level_us: float, gaps: float, told: bool) -> list[Slot]:
    slots = [slot(rng, level_us, burst=gaps, burst_s=rng.uniform(0.003, 0.007), requests=150) for _ in range(4)]
    return slots if told else [Slot(one.point, 0.0) for one in slots]
