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
    out, err, ns = ffi.new("struct cl_handoff_result *"), ffi.new("char[256]"), ffi.new("double[1]")
    rc = lib.cl_handoff_run(ffi.new("struct cl_handoff_config *", fields | changed), ns, out, err)
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
    ]
    stamps = [90 * us, 103 * us, 105 * us, 320 * us]  # of another call, of the first move, of the same, of none
    ends, to_handler = handoff.spans(moves, ASK, stamps)
    assert [round(v / 1e3, 2) for v in ends] == [2.0, 4.0]
    assert [round(v / 1e3, 2) for v in to_handler] == [3.0]


def test_a_hand_over_that_never_came_counts_as_infinite() -> None:
    times = handoff.Times([1000.0] * 98, missed=2)
    assert times.us(0.5) == 1.0
    assert times.us(0.99) == float("inf")
