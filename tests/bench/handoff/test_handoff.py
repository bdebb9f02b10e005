"""Hand-over: the raw arms end and leave nobody behind, and the log is matched with the right stamps."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from corelane.bench import decision
from corelane.bench._native import ffi, lib
from corelane.bench.handoff import handoff
from corelane.bench.handoff import moves as handoff_moves
from corelane.bench.harness.session import Session
from corelane.iokernel.control.moves import ALL_PARTS, Move
from corelane.runtime.clock import default_clock

two_cores = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="needs two cores that this process may use: taskset -pc 0-1 $$"
)
WANTED, DONE, ASK = lib.CL_IO_LOG_WANTED, lib.CL_IO_LOG_DONE, lib.CL_IO_STEP_REQUEST


def children() -> set[int]:
    """Of this thread and of all others of this process."""
    return {int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}


@two_cores
@pytest.mark.parametrize("way", handoff.WAYS)
def test_a_way_hands_the_core_over_and_ends(way: str) -> None:
    cores = sorted(os.sched_getaffinity(0))[:2]
    before, allowed = children(), os.sched_getaffinity(0)
    times = handoff.raw(handoff.WAYS[way], (cores[0], cores[1]), 0.05)
    assert times.ns or times.missed
    assert all(value > 0 for value in times.ns)
    assert children() == before
    assert os.sched_getaffinity(0) == allowed


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"way": 99}, "a known way"),
        ({"decider_cpu": 1, "worker_cpu": 1}, "two different cores"),
        ({"worker_cpu": 1000}, "did not come to where a round begins"),
    ],
)
def test_refusals(changed: dict[str, int], reason: str) -> None:
    fields = {"way": 0, "decider_cpu": min(os.sched_getaffinity(0)), "worker_cpu": 1, "rounds": 1, "limit_ns": 10**8}
    if fields["decider_cpu"] == fields["worker_cpu"]:
        fields["worker_cpu"] = 0
    out, err = ffi.new("struct cl_handoff_result *"), ffi.new("char[256]")
    times = ffi.new("struct cl_handoff_times[1]")
    rc = lib.cl_handoff_run(ffi.new("struct cl_handoff_config *", fields | changed), times, out, err)
    assert rc < 0
    assert reason in ffi.string(err).decode()


def test_decisions_are_matched_with_their_ends_and_with_the_handlers_stamps() -> None:
    hz = default_clock().hz
    us = hz // 1_000_000
    moves = [
        Move(100 * us, 1, 2, WANTED, ASK),
        Move(102 * us, 2, 2, DONE, ASK),
        Move(110 * us, 2, 1, WANTED, lib.CL_IO_STEP_PARKED),
        Move(111 * us, 1, 1, DONE, lib.CL_IO_STEP_PARKED),
        Move(200 * us, 1, 2, WANTED, ASK),  # overtaken: it has no end
        Move(300 * us, 1, 2, WANTED, ASK),
        Move(304 * us, 2, 2, DONE, ASK),
        Move(310 * us, 2, 1, WANTED, lib.CL_IO_STEP_PARKED),
        Move(311 * us, 1, 1, DONE, lib.CL_IO_STEP_PARKED),
        Move(400 * us, 1, 2, WANTED, ASK),  # the ask was not answered, the signal was
        Move(430 * us, 2, 2, DONE, lib.CL_IO_STEP_INTERRUPT),
    ]
    stamps = [90 * us, 103 * us, 105 * us, 320 * us]  # of another call, of the first move, of the same, of none
    found = handoff_moves.pairs(moves, ASK)
    assert [(wanted.tsc // us, done.tsc // us) for wanted, done, _ in found] == [(100, 102), (300, 304), (400, 430)]
    assert [wanted.tsc // us for wanted, _, _ in handoff_moves.pairs(moves, lib.CL_IO_STEP_INTERRUPT)] == [400]
    assert [round(v / 1e3, 2) for v in handoff_moves.to_handler(moves, ASK, stamps)] == [3.0]


def move(start: int, **changed: int) -> tuple[Move, Move]:
    """A decision at `start` and its end, with stamps 10, 20, ... ticks later; `changed`: other stamps."""
    stamps = {"decided": start + 10, "stored": start + 15, "lost": start + 30, "left": start + 60, "back": start + 100}
    words = {name: value & 0xFFFFFFFF for name, value in (stamps | changed).items()}
    return Move(start, 1, 2, WANTED, ASK), Move(start + 150, 2, 2, DONE, ASK, **words)


@pytest.mark.parametrize("start", [1 << 40, (1 << 40) - 5, (1 << 40) - 45, (1 << 40) - 120])
def test_a_move_is_broken_down_by_its_stamps_which_are_low_words(start: int) -> None:
    found = handoff_moves.broken_down(*move(start), None)
    assert found is not None
    ticks = [round(value * default_clock().hz / 1e9) for value in found.values()]
    assert handoff_moves.took(*move(start), None) == pytest.approx(90 * 1e9 / default_clock().hz)
    assert dict(zip(found, ticks, strict=True)) == dict(zip(ALL_PARTS, (10, 5, 20, 30, 40, 50), strict=True))


@pytest.mark.parametrize("changed", [{"lost": 0}, {"left": (1 << 40) - 1000}, {"back": (1 << 40) + (1 << 31)}])
def test_a_stamp_that_is_missing_or_of_another_move_leaves_the_move_out(changed: dict[str, int]) -> None:
    assert handoff_moves.broken_down(*move(1 << 40, **changed), None) is None
    assert (handoff_moves.took(*move(1 << 40, **changed), None) is None) == ("back" in changed)


def test_decisions_that_came_to_no_end_are_counted_by_reason() -> None:
    parked = Move(0, 2, 1, WANTED, lib.CL_IO_STEP_PARKED)
    asked, done = Move(0, 1, 2, WANTED, ASK), Move(0, 2, 2, DONE, ASK)
    besides = Move(0, 2, 2, lib.CL_IO_LOG_EVICTED, ASK)
    ends = {
        "overtaken": [parked],
        "stalled": [Move(0, 2, 0, lib.CL_IO_LOG_STALLED, ASK)],
        "died": [Move(0, 2, 0, lib.CL_IO_LOG_DIED, ASK)],
        "left": [Move(0, 2, 0, lib.CL_IO_LOG_LEFT, ASK)],
        "woken again": [Move(0, 2, 2, lib.CL_IO_LOG_WOKEN, ASK)],
        "unfinished": [],
    }
    assert set(handoff_moves.ENDS.values()) | {handoff_moves.UNFINISHED} == set(ends)
    for why, after in ends.items():
        assert handoff_moves.lost([asked, done, asked, besides, *after]) == {why: 1}
    assert handoff_moves.lost([asked, besides, done, parked, parked]) == {}


def test_a_move_that_ended_and_did_not_say_when_counts_as_missed() -> None:
    good, bad = move(1 << 40), move((1 << 40) + 1000, back=0)
    found = [(*good, None), (*bad, None)]
    ns, why = handoff_moves.timed(found, {"stalled": 2})
    assert ns == [handoff_moves.took(*good, None)]
    assert why == {"stalled": 2, "unstamped": 1}
    session = Session("handoff", seconds=0.1)
    rounds = [
        handoff.Times(ns, sum(why.values()), more={"asked": 3, "iokernel_p50_us": p50}, why=why) for p50 in (1, 5)
    ]
    handoff.row(session, "ask", rounds)
    (row,) = session.arms
    assert (row["n"], row["missed"], row["missed_stalled"], row["missed_unstamped"]) == (8, 6, 4, 2)
    assert (row["asked"], row["iokernel_p50_us"], row["p99_us"]) == (6, 3, float("inf"))


def test_wakes_of_an_idle_core_are_timed_from_the_rounds_beginning() -> None:
    idle, wake = lib.CL_IO_STEP_IDLE, lib.CL_IO_STEP_WAKE
    begun = [Move(1000, 2, 2, lib.CL_IO_LOG_WOKEN, wake), Move(1900, 2, 2, DONE, wake, back=1500)]
    given = [Move(3000, 0, 2, WANTED, idle), Move(3900, 2, 2, DONE, idle, back=3250)]
    stale = [Move(5000, 2, 2, lib.CL_IO_LOG_WOKEN, wake), Move(5900, 2, 2, DONE, wake, back=4000)]
    stalled = [Move(7000, 2, 2, lib.CL_IO_LOG_WOKEN, wake), Move(7900, 2, 0, lib.CL_IO_LOG_STALLED, wake)]
    ns, why = handoff_moves.woken([*begun, *given, *stale, *stalled])
    hz = default_clock().hz
    assert [round(value * hz / 1e9) for value in ns] == [500, 250]
    assert why == {"unstamped": 1, "stalled": 1}


def test_an_eviction_is_broken_down_at_the_round_that_evicts() -> None:
    wanted, done = move(1 << 40)
    (parts,) = handoff_moves.evictions([wanted, Move((1 << 40) + 70, 2, 2, lib.CL_IO_LOG_EVICTED, ASK), done])
    ticks = [round(value * default_clock().hz / 1e9) for value in parts.values()]
    assert ticks == [60, 30]
    assert handoff_moves.evictions([wanted, done]) == []


def test_the_first_move_from_an_absent_owner_is_found_with_its_step() -> None:
    base, (wanted, done) = 1 << 40, move(1 << 40)
    evicted = Move(base + 60, 2, 2, lib.CL_IO_LOG_EVICTED, ASK)
    by_eviction = done._replace(step=lib.CL_IO_STEP_EVICT)
    before = move(base - 1000)  # it answered
    later = move(base + 5000)
    found = handoff_moves.first_ask([*before, wanted, evicted, by_eviction, *later], base)
    assert found == ([handoff_moves.took(wanted, by_eviction, None)], {}, lib.CL_IO_STEP_EVICT)
    assert handoff_moves.first_ask([*before, wanted], base) == ([], {"unfinished": 1}, None)
    stalled = Move(base + 90, 2, 0, lib.CL_IO_LOG_STALLED, ASK)
    assert handoff_moves.first_ask([wanted, evicted, stalled], base) == ([], {"stalled": 1}, None)
    parked = Move(base, 1, 2, WANTED, lib.CL_IO_STEP_PARKED)
    assert handoff_moves.first_ask([*before, parked, *later], base) is None
    assert handoff_moves.first_ask(before, base) is None


def test_absent_owners_are_counted_by_step_and_those_without_end_are_infinite() -> None:
    absent = handoff.Absent()
    wanted, done = move(1 << 40)
    absent.turn([wanted, done], 1 << 40)
    absent.turn([wanted], 1 << 40)
    absent.turn([], 1 << 40)
    times = absent.times()
    assert (len(times.ns), times.missed, times.why) == (1, 1, {"unfinished": 1})
    assert (times.more["turns"], times.more["by_ask"], times.more["by_evict"]) == (3, 1, 0)
    assert times.us(0.99) == float("inf")


def test_a_move_under_way_is_one_that_was_decided_before_and_was_not_over() -> None:
    base, (wanted, done) = 1 << 40, move(1 << 40)
    evicted = Move(base + 60, 2, 2, lib.CL_IO_LOG_EVICTED, ASK)
    log = [*move(base - 1000), wanted, evicted, done, *move(base + 5000)]
    assert handoff_moves.under_way(log, base + 70, base + 80) == [wanted, evicted, done, *move(base + 5000)]
    assert handoff_moves.under_way(log, base - 10, base + 80) == log[2:], "decided in between"
    assert handoff_moves.under_way(log, base + 160, base + 200) == [], "over"
    assert handoff_moves.under_way(log, base - 2000, base - 1500) == []
    assert handoff_moves.under_way([wanted], base + 70, base + 80) == [wanted]


def test_moves_without_a_stamp_are_said_with_the_reason() -> None:
    session = Session("handoff", seconds=0.1)
    got = {"ask": [handoff.Times([1.0], 2, why={"unstamped": 1, "stalled": 1})] * 2, "evict": [handoff.Times([1.0])]}
    handoff.say_unstamped(session, got)
    (note,) = session.notes
    assert note.startswith("moves that ended without a stamp (ask 2): ")
    handoff.say_unstamped(session, {"evict": got["evict"]})
    assert len(session.notes) == 1


def test_a_parked_owners_core_is_neither_asked_for_nor_interrupted() -> None:
    step = lib.CL_IO_STEP_PARKED
    by_itself = [Move(1, 2, 1, WANTED, step), Move(2, 1, 1, DONE, step)]
    got_up = [Move(3, 2, 1, WANTED, step), Move(4, 1, 1, DONE, ASK)]
    assert [one[0].tsc for one in handoff_moves.parked([*by_itself, *got_up])] == [1]


@two_cores
@pytest.mark.parametrize(
    "active", [2, pytest.param(5, marks=pytest.mark.soak(takes_s=4))]
)  # none has a job of its own, and none rests
def test_decisions_over_many_applications_are_timed(active: int) -> None:
    cores = sorted(os.sched_getaffinity(0))[:2]
    found = decision.measure((cores[0], cores[1]), 5, 0.2, active)
    for times in (found.decision, found.reading):
        assert times.n > 0
        assert len(times.runs_ns) == decision.ROUNDS


def test_a_hand_over_that_never_came_counts_as_infinite() -> None:
    times = handoff.Times([1000.0] * 98, missed=2)
    assert times.us(0.5) == 1.0
    assert times.us(0.99) == float("inf")
