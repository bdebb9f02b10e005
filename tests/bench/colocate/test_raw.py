"""Raw hand-overs: two processes that have nothing but a word between them, and what is made of their slots."""

from __future__ import annotations

import math
import os
import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from cltest import answered

from corelane.bench.colocate import floor as colocate_floor
from corelane.bench.colocate import judge as colocate_judge
from corelane.bench.colocate import raw as colocate_bare
from corelane.bench.colocate.arms import COMPARED, Beside
from corelane.bench.colocate.judge import CALM_LEAST, CALM_US, Round
from corelane.bench.colocate.plot import CANARY, LOWEST
from corelane.bench.colocate.raw import RAW, RAW_ALONE, STEPS, Raw, Turn
from corelane.bench.harness.goals import GOALS
from corelane.bench.harness.openloop import Point
from corelane.bench.harness.session import Session
from corelane.runtime.errors import CorelaneError

CORES = sorted(os.sched_getaffinity(0))
two_cores = pytest.mark.skipif(len(CORES) < 2, reason="needs two cores that this process may use: taskset -pc 0-1 $$")
ROUNDS = 16


@pytest.fixture
def session() -> Session:
    return Session("colocate", seconds=0.1)


@pytest.fixture(scope="module")
def raw() -> Iterator[Raw]:
    with Raw((CORES[0], CORES[-1])) as made:
        made.learn(beside(2e-7, 1e6))
        yield made


def beside(service_s: float, rps: float, moves_per_s: float = 0.0) -> Beside:
    """A slot of ours in which each request took kv that."""
    point = Point(rps, rps, 100, 100)
    point.extra |= {"kv_core_share": rps * service_s, "moves_per_s": moves_per_s}
    return Beside(point, 1.0)


# The processes.


@two_cores
@pytest.mark.parametrize("target_us", [0.0, 50.0])
def test_every_request_is_answered_and_the_job_has_the_rest(raw: Raw, target_us: float) -> None:
    for _ in range(10):  # where somebody else has the core, kv's time has his in it
        slot = raw.slot(Turn(target_us), 20_000, 0.1)
        if slot.point.extra["kv_core_share"] < 1 and slot.point.answered == slot.point.sent:
            break
    assert slot.point.answered == slot.point.sent > 0
    assert slot.work > 0
    assert 0 < slot.point.extra["kv_core_share"] < 1
    assert slot.point.extra["moves_per_s"] > 0
    assert len(slot.point.window_p99_us) == 8
    assert slot.point.p50_us >= 0.2  # the service


@two_cores
def test_a_longer_target_takes_fewer_moves_and_lets_requests_wait(raw: Raw) -> None:
    """Whatever else runs, who has to let a request get 2 ms old answers none at once but those that came with it."""
    for turn in range(1, 11):
        patient = raw.slot(Turn(2000.0), 20_000, 0.1)
        if patient.point.answered == patient.point.sent:
            break
        print(f"slot {turn} is not judged: the machine kept the server from the core until the slot's end")
    assert patient.point.answered == patient.point.sent
    assert patient.point.max_us >= 1500  # the target, less a quarter at most
    assert patient.point.extra["moves_per_s"] <= 2 * 1.1 / 1500e-6


@two_cores
@pytest.mark.parametrize("turn", [Turn(50.0), Turn(0.0, alone=True)], ids=["beside", "alone"])
def test_what_is_worked_off_after_the_end_was_not_carried(raw: Raw, turn: Turn) -> None:
    """All of it is answered, at about the rate that the server has, 5 million a second, and not at what was offered."""
    for _ in range(10):  # one that had no CPU for a while makes up for that at once
        slot = raw.slot(turn, 2e7, 0.01)
        if slot.point.achieved_rps <= 2 / 200e-9:
            break
    assert slot.point.sent > 0
    assert slot.point.achieved_rps <= 2 / 200e-9
    assert not slot.point.carried


@two_cores
def test_a_server_may_do_what_kv_does(raw: Raw) -> None:
    for _ in range(10):  # as above
        slot = raw.slot(Turn(0.0, computes=True), 20_000, 0.05)
        if slot.point.answered == slot.point.sent:
            break
    assert slot.point.answered == slot.point.sent > 0
    assert "service_ns" not in slot.point.extra
    answered(lambda: raw.alone_kv(20_000, 0.02).point)


@two_cores
def test_the_way_of_a_request_has_pieces(raw: Raw) -> None:
    for _ in range(10):  # where somebody else has the core, it may not be handed over once
        slot = raw.slot(Turn(0.0), 20_000, 0.05)
        if slot.pieces[STEPS[0]]:
            break
    assert tuple(slot.pieces) == STEPS
    assert len({len(values) for values in slot.pieces.values()}) == 1
    ways = [sum(way) for way in zip(*slot.pieces.values(), strict=True)]
    assert max(ways) >= 0.2  # the service, at least
    assert not raw.alone(20_000, 0.02).pieces


def test_kvs_requests_are_gets_of_what_the_store_has() -> None:
    requests, kept = colocate_bare.kv_requests()
    request, store = requests.each[0], kept[0]
    datagram = bytes(colocate_bare.ffi.buffer(request.data, request.len))
    assert datagram[8:12] == b"get "
    assert store.get(datagram[12:-2]) == (bytes(64), 0, store.get(datagram[12:-2])[2])
    requests.handler(requests.each, 1, requests.arg)
    reply = bytes(colocate_bare.ffi.buffer(request.reply, request.reply_len))
    assert reply[8:].startswith(b"VALUE " + datagram[12:-2])


@two_cores
def test_a_server_alone_needs_no_moves(raw: Raw) -> None:
    slot = raw.alone(20_000, 0.05)
    assert slot.point.answered == slot.point.sent > 0
    assert "moves_per_s" not in slot.point.extra


@two_cores
def test_a_slot_is_as_long_as_the_log_of_requests_lasts(raw: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(colocate_bare, "MOST", 1000)
    slot = raw.alone(20_000, 10.0)
    assert slot.point.seconds < 0.05
    assert slot.point.answered == slot.point.sent > 0


@two_cores
def test_closed_ones_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(colocate_bare.ROLES, "batch")  # which compiles for seconds
    made = Raw((CORES[0], CORES[-1]))
    made.close()
    made.close()
    with pytest.raises(CorelaneError, match="raw hand-overs: they are closed"):
        made.alone(1000, 0.01)


@two_cores
def test_a_rate_of_nothing_is_refused(raw: Raw) -> None:
    with pytest.raises(CorelaneError, match="a rate above 0"):
        raw.slot(Turn(0.0), 1e10, 0.01)
    assert raw.alone(20_000, 0.02).point.sent > 0  # they are whole


@two_cores
def test_what_a_request_takes_is_learnt_from_the_least_disturbed_slot(
    raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    for learnt in ("_service_ns", "_handover_ns"):
        monkeypatch.setattr(raw, learnt, deque(maxlen=colocate_bare.KEPT))
    for service_s in (9e-7, 3e-7, 5e-7):
        raw.taught_by(lambda rate, seconds, service_s=service_s: beside(service_s, rate))(1e6, 0.0)
    assert raw.service_ns == pytest.approx(300)
    assert raw.slot(Turn(0.0), 20_000, 0.05).point.extra["service_ns"] == 300
    raw.learn(beside(3e-7, 1e6, moves_per_s=2.0))  # a hand-over for each turn is not the requests'
    assert raw.service_ns < 300


# What is made of it.


def slot(work: float, p99_us: float = 10.0, *, p50_us: float = 1.0, p90_us: float = 2.0) -> Beside:
    """The server had half of the core."""
    point = Point(1e5, 1e5, 100, 100, p50_us=p50_us, p90_us=p90_us, window_p99_us=(p99_us,))
    point.extra["kv_core_share"] = 0.5
    return Beside(point, work)


def low(raw_share: Sequence[float], raw_added_us: float = 1.0) -> dict[str, list[Beside]]:
    """Rounds in which ours has nine tenths of what raw hand-overs leave, and Linux half of it."""
    return {
        CANARY: [slot(0) for _ in raw_share],
        "kv alone": [slot(0) for _ in raw_share],
        LOWEST: [slot(90 * share) for share in raw_share],
        COMPARED: [slot(50 * share, 40) for share in raw_share],
        RAW: [slot(100 * share, 10 + raw_added_us + 0.01 * n) for n, share in enumerate(raw_share)],
        RAW_ALONE: [slot(0, p50_us=0, p90_us=0) for _ in raw_share],
        "batch alone": [slot(100) for _ in raw_share],
    }


def judged(session: Session, got: dict[str, list[Beside]]) -> dict[str, list[str]]:
    """The notes of each figure."""
    colocate_judge.judge_low(session, got, COMPARED in got)
    colocate_floor.floor_of_low(session, got)
    return {name: [note for note in session.notes if f" of {name}" in note] for name in GOALS}


@pytest.mark.parametrize(
    ("centre", "says"), [(0.70, "lies beyond"), (0.80, "is within reach"), (0.75, "these rounds do not tell")]
)
def test_a_goal_is_beyond_a_core_that_moves_or_not(session: Session, seed: int, centre: float, says: str) -> None:
    rng = random.Random(seed)
    shares = sorted(centre + rng.uniform(0.0, 0.02) * (-1) ** n for n in range(ROUNDS))
    (note,) = judged(session, low(shares))["colocate.low_batch_share"]
    assert says in note
    found = session.figures["colocate.low_batch_share"]["beside"]
    assert found[RAW] == pytest.approx(centre, abs=0.021)
    assert found[f"{RAW}, 95 % from"] <= found[RAW] <= found[f"{RAW}, 95 % to"]
    assert found["ours over raw hand-overs"] == pytest.approx(0.9)


@pytest.mark.parametrize(("added_us", "says"), [(5.0, "not below 5.0"), (1.0, "is within reach")])
def test_where_less_is_better_the_other_end_counts(session: Session, added_us: float, says: str) -> None:
    got = low([0.8] * ROUNDS, added_us)
    notes = judged(session, got)
    (note,) = notes["colocate.low_p99_added_us"]
    assert says in note
    assert "is within reach" in notes["colocate.batch_over_linux"][0]
    assert session.figures["colocate.batch_over_linux"]["beside"][RAW] == pytest.approx(2)
    found = session.figures["colocate.low_p99_added_us"]["beside"]
    assert found["p50 added"] == 0  # what stood there stays
    assert (found[f"{RAW}, p50 added"], found[f"{RAW}, p90 added"]) == (1, 2)


def test_without_linux_there_is_nothing_to_hold_against_it(session: Session) -> None:
    got = low([0.8] * ROUNDS)
    del got[COMPARED]
    notes = judged(session, got)
    assert not notes["colocate.batch_over_linux"]
    assert notes["colocate.low_batch_share"]


def test_what_never_ended_tells_nothing(session: Session) -> None:
    got = low([0.8] * ROUNDS)
    for name in (RAW, RAW_ALONE):
        got[name] = [replace(one, point=replace(one.point, window_p99_us=(math.inf,))) for one in got[name]]
    (note,) = judged(session, got)["colocate.low_p99_added_us"]
    assert "tell nothing" in note


def test_few_rounds_say_so(session: Session) -> None:
    (note,) = judged(session, low([0.7, 0.7]))["colocate.low_batch_share"]
    assert "too few rounds" in note


def half(raw_work: float, raw_p99_us: float, machine_us: float = CALM_US) -> Round:
    return {
        "kv alone": slot(0),
        "beside": slot(45, 60),
        RAW: slot(raw_work, raw_p99_us),
        "batch alone": slot(100),
        CANARY: slot(0, machine_us),
    }


def test_half_of_the_peak(session: Session) -> None:
    """Ours leaves 0.9 of the rest; the raw one 0.96, with its requests in time, in the rounds that count."""
    rounds = [half(48, 55) for _ in range(ROUNDS)] + [half(10, 500, CALM_US + 1) for _ in range(ROUNDS)]
    colocate_judge.judge_half(session, rounds)
    colocate_floor.floor_of_half(session, rounds)
    found = session.figures["colocate.half_batch_over_core_left"]["beside"]
    assert found[RAW] == pytest.approx(0.96)
    assert found["ours over raw hand-overs"] == pytest.approx(0.9 / 0.96)
    assert found[f"{RAW}, p99, us, of the middle window"] == 55
    assert any(
        "0.96 of colocate.half_batch_over_core_left" in note and "within reach" in note for note in session.notes
    )


def test_half_of_the_peak_is_told_of_all_rounds_where_none_counts(session: Session) -> None:
    """Nor too few."""
    rounds = [half(40, 90, CALM_US + 1) for _ in range(CALM_LEAST)] + [half(40, 20) for _ in range(CALM_LEAST - 1)]
    colocate_judge.judge_half(session, rounds)
    colocate_floor.floor_of_half(session, rounds)
    assert session.figures["colocate.half_batch_over_core_left"]["value"] is None
    assert any("the p99 of raw hand-overs is 90 us in the middle window of all rounds" in n for n in session.notes)
    assert not any("within reach" in note for note in session.notes)  # of the share alone, which says nothing
    colocate_floor.floor_of_half(session, [])
