"""Which arms have a turn, and when it is known on which side of the goal an arm is."""

from __future__ import annotations

import io
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from corelane.bench.harness.openloop import Point
from corelane.bench.harness.pairs import sequential
from corelane.bench.harness.pairs.sequential import ABOVE, LOOKS, OPEN, WITHIN, Compared, Rounds, Turn, take
from corelane.bench.harness.session import Session
from corelane.runtime.hist import Hist

FLOOD, ALONE = "flood", "alone"
FIGURE = "hostile.p99_ratio"  # at most 1.5
ROUND_S = 10.0


def turn(rng: random.Random, harm: float = 1.0) -> Turn:
    """Of a victim whose p99 is off by some 40 % from turn to turn."""
    hist, level_ns = Hist(), 1e5 * harm * rng.lognormvariate(0, 0.4)
    hist.record_all(round(level_ns * rng.expovariate(1)) for _ in range(200))
    point = Point(1e3, 1e3, 200, 200, seconds=0.2, hist=hist)
    point.set_percentiles(hist)
    return Turn(point)


class Machine:
    """A session whose rounds take ROUND_S each, by a clock of its own. loud: numbers of the rounds that are."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, loud: Callable[[int], bool] = lambda number: False) -> None:
        self.session = Session("hostile", cores=[0], progress=io.StringIO())
        self.now, self.rounds = 0.0, 0
        monkeypatch.setattr(sequential.time, "monotonic", lambda: self.now)

        def watched(measure: Callable[[], Any]) -> tuple[Any, bool]:
            self.rounds += 1
            self.now += ROUND_S
            return measure(), not loud(self.rounds)

        monkeypatch.setattr(self.session, "watched", watched)


def taken(machine: Machine, harm: dict[str, float], seconds: float, seed: int = 1) -> tuple[Rounds[Turn], Counter[str]]:
    """Rounds of attacks that do so much harm, all over the victim alone; and how often each arm had a turn."""
    rng, turns = random.Random(seed), Counter[str]()

    def arm(name: str, harm: float) -> Callable[[], Turn]:
        def run() -> Turn:
            turns[name] += 1
            return turn(rng, harm)

        return run

    arms = {name: arm(name, much) for name, much in {**harm, ALONE: 1.0}.items()}
    compared = [Compared(name, ALONE, FIGURE, len(harm)) for name in harm]
    return take(machine.session, arms, compared, seconds), turns


def test_the_time_goes_to_those_of_which_it_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    done, turns = taken(Machine(monkeypatch), {"bad": 6.0, "good": 0.2, "near": 1.5}, 401)
    verdicts = {name: one.verdict for name, one in done.compared.items()}
    assert verdicts == {"bad": ABOVE, "good": WITHIN, "near": OPEN}
    assert (turns["good"], turns["bad"]) == (LOOKS[0], LOOKS[1])
    assert turns["near"] == turns[ALONE] == done.rounds == 40


def test_it_ends_when_all_are_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    done, turns = taken(Machine(monkeypatch), {"good": 0.2}, 4000)
    assert not done.undecided
    assert turns["good"] == LOOKS[0]


def test_a_loud_round_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, loud=lambda number: number % 2 == 0)
    done, turns = taken(machine, {"near": 1.5}, 101)
    assert (done.rounds, done.loud, turns["near"]) == (5, 5, 10)
    assert len(done.compared["near"].pairs) == len(done.turns["near"]) == 5


def test_the_only_round_counts_however_loud_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    done, _ = taken(Machine(monkeypatch, loud=lambda number: True), {"near": 1.5}, 0)
    assert (done.rounds, done.loud) == (1, 0)
    assert done.compared["near"].ratio is not None


@pytest.mark.parametrize(("harm", "never"), [(1.0, ABOVE), (2.5, WITHIN)])
def test_chance_is_no_harm_and_harm_no_chance(harm: float, never: str) -> None:
    """Many attacks, looked at again and again: none is decided wrongly, and most are decided rightly."""
    right, rng = 0, random.Random(5)
    for _ in range(30):
        one = Compared(FLOOD, ALONE, FIGURE, 15)
        for n in range(1, LOOKS[2] + 1):
            one.add(turn(rng, harm), turn(rng))
            if n in LOOKS and one.verdict == OPEN:
                one.look()
        assert one.verdict != never
        right += one.verdict != OPEN
    assert right > 20


def test_a_pair_whose_other_turn_lost_requests_is_left_out() -> None:
    rng = random.Random(1)
    lost = turn(rng)
    assert lost.point.hist is not None
    lost.point.hist.record_infinite(100)
    lost.point.set_percentiles(lost.point.hist)
    one = Compared(FLOOD, ALONE, FIGURE, 15)
    one.add(turn(rng), lost)
    assert (len(one.pairs), one.lost) == (0, 1)
    assert one.measure() is None
    one.add(lost, turn(rng))
    ratio = one.measure()
    assert ratio is not None
    assert ratio.value == one.of_all == float("inf")


def test_a_turn_is_its_middle_windows() -> None:
    point = Point(1e3, 1e3, 100, 100, p99_us=900.0, window_p99_us=(10.0, 12.0, 5000.0))
    assert Turn(point).p99_us == 12
    assert Turn(Point(1e3, 1e3, 100, 100, p99_us=900.0)).p99_us == 900


def test_a_turn_half_disturbed_is_close_to_one_a_little_less_so() -> None:
    """A median is 80 of one and 4000 of the other."""

    def p99_us(disturbed: int) -> float:
        windows = (80.0,) * (17 - disturbed) + (4000.0,) * disturbed
        return Turn(Point(1e3, 1e3, 100, 100, p99_us=900.0, window_p99_us=windows)).p99_us

    assert p99_us(4) == pytest.approx(80)
    assert p99_us(13) == pytest.approx(4000)
    assert all(1 <= p99_us(n + 1) / p99_us(n) < 1.8 for n in range(17))


def test_harm_in_few_windows_of_each_turn_is_above_the_goal() -> None:
    """Nothing of it is in the middle window, and all of it in the p99 of the turn."""
    rng, one = random.Random(3), Compared(FLOOD, ALONE, FIGURE, 15)
    for _ in range(LOOKS[1]):
        attacked, beside = turn(rng, 20.0), turn(rng)
        attacked.point.window_p99_us = beside.point.window_p99_us = (100.0,)
        one.add(attacked, beside)
    one.look()
    assert one.verdict == ABOVE
    assert one.ratio is not None
    assert one.ratio.value == 1


def test_harm_in_few_turns_is_seen_beside_the_ratio() -> None:
    rng = random.Random(2)
    one = Compared(FLOOD, ALONE, FIGURE, 15)
    for n in range(20):
        one.add(turn(rng, 20.0 if n % 4 == 0 else 1.0), turn(rng))
    ratio = one.measure()
    assert ratio is not None
    assert ratio.value < 2.5
    assert one.of_all > 5
    assert one.bad[0] >= 0.25 > one.bad[1]


def test_when_the_time_is_over_there_is_a_last_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first eight of twelve rounds do not decide."""
    done, turns = taken(Machine(monkeypatch), {"good": 0.96}, 121)
    assert (done.rounds, turns["good"]) == (12, 12)
    assert done.compared["good"].verdict == WITHIN


def test_what_goes_along_has_turns_as_long_as_its_arm_is_not_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, turns, rng = Machine(monkeypatch), Counter[str](), random.Random(1)

    def arm(name: str, harm: float) -> Callable[[], Turn]:
        def run() -> Turn:
            turns[name] += 1
            return turn(rng, harm)

        return run

    arms = {name: arm(name, harm) for name, harm in {"good": 0.2, "near": 1.5, "with good": 3.0, ALONE: 1.0}.items()}
    compared = [Compared(name, ALONE, FIGURE, 2) for name in ("good", "near")]
    done = take(machine.session, arms, compared, 121, {"good": ["with good"]})
    assert (turns["with good"], turns["near"]) == (LOOKS[0], 12)
    ratio = done.between("with good", ALONE)
    assert ratio is not None
    assert ratio.pairs == LOOKS[0]
    assert 2 < ratio.value < 4.5
    assert done.between("with good", "nobody") is None


def test_every_other_round_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, asked, rng = Machine(monkeypatch), list[str](), random.Random(1)

    def arm(name: str) -> Callable[[], Turn]:
        def run() -> Turn:
            asked.append(name)
            return turn(rng)

        return run

    arms = {name: arm(name) for name in ("near", "beside", ALONE)}
    take(machine.session, arms, [Compared("near", ALONE, FIGURE)], 31, {"near": ["beside"]}, there_and_back=True)
    assert asked == ["near", "beside", ALONE, ALONE, "beside", "near", "near", "beside", ALONE]
