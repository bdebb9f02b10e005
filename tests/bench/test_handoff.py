"""Hand-over: the raw arms end and leave nobody behind, and the log is matched with the right stamps."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from corelane.bench import handoff
from corelane.bench._native import ffi, lib
from corelane.bench.harness.shared import Move
from corelane.runtime.clock import default_clock

two_cores = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="needs two cores that this process may use: taskset -pc 0-1 $$"
)
WANTED, DONE, ASK = lib.CL_IO_LOG_WANTED, lib.CL_IO_LOG_DONE, lib.CL_IO_STEP_ASK


def children() -> set[int]:
    """Of this thread and of all others of this process."""
    return {int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}


@two_cores
@pytest.mark.parametrize("way", handoff.WAYS)
def test_a_way_hands_the_core_over_and_ends(way: str) -> None:
    cores = sorted(os.sched_getaffinity(0))[:2]
    before, allowed = children(), os.sched_getaffinity(0)
    times = handoff.raw(handoff.WAYS[way], (cores[0], cores[1]), 0.1)
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
    found = handoff.pairs(moves, ASK)
    assert [(wanted.tsc // us, done.tsc // us) for wanted, done, _ in found] == [(100, 102), (300, 304), (400, 430)]
    assert [wanted.tsc // us for wanted, _, _ in handoff.pairs(moves, lib.CL_IO_STEP_INTERRUPT)] == [400]
    assert [round(v / 1e3, 2) for v in handoff.to_handler(moves, ASK, stamps)] == [3.0]


def move(start: int, **changed: int) -> tuple[Move, Move]:
    """A decision at `start` and its end, with stamps 10, 20, ... ticks later; `changed`: other stamps."""
    stamps = {"decided": start + 10, "stored": start + 15, "lost": start + 30, "left": start + 60, "back": start + 100}
    words = {name: value & 0xFFFFFFFF for name, value in (stamps | changed).items()}
    return Move(start, 1, 2, WANTED, ASK), Move(start + 150, 2, 2, DONE, ASK, **words)


@pytest.mark.parametrize("start", [1 << 40, (1 << 40) - 5, (1 << 40) - 45, (1 << 40) - 120])
def test_a_move_is_broken_down_by_its_stamps_which_are_low_words(start: int) -> None:
    found = handoff.broken_down(*move(start), None)
    assert found is not None
    ticks = [round(value * default_clock().hz / 1e9) for value in found.values()]
    assert handoff.took(*move(start), None) == pytest.approx(90 * 1e9 / default_clock().hz)
    assert dict(zip(found, ticks, strict=True)) == dict(zip(handoff.ALL_STEPS, (10, 5, 20, 30, 40, 50), strict=True))


@pytest.mark.parametrize("changed", [{"lost": 0}, {"left": (1 << 40) - 1000}, {"back": (1 << 40) + (1 << 31)}])
def test_a_stamp_that_is_missing_or_of_another_move_leaves_the_move_out(changed: dict[str, int]) -> None:
    assert handoff.broken_down(*move(1 << 40, **changed), None) is None
    assert (handoff.took(*move(1 << 40, **changed), None) is None) == ("back" in changed)


def test_a_hand_over_that_never_came_counts_as_infinite() -> None:
    times = handoff.Times([1000.0] * 98, missed=2)
    assert times.us(0.5) == 1.0
    assert times.us(0.99) == float("inf")
