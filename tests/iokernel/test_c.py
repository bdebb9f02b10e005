"""C programs, best under sanitizers: the fuzzer of the rings, the stress of loops, ports and attaching again, and that
of cores that move between real threads."""

from __future__ import annotations

import os

import pytest
from cltest import soak


@pytest.mark.soak(short=True, takes_s=3)
def test_the_reading_of_rings_withstands_a_fuzzer(c_program, seed):
    run = c_program("tests/iokernel/switch/c/fuzz_rings.c", one_thread=True)
    steps = 60_000 if os.environ.get("CORELANE_SANITIZE") else soak.examples(60_000, 200_000)
    for i in range(3):
        assert "arrived whole" in run(str(seed + i), str(steps), timeout_s=100)


def test_frames_for_a_nic_that_makes_a_call_for_each_burst_are_gathered(c_program):
    assert c_program("tests/iokernel/switch/c/uplink_gather.c", one_thread=True)().endswith("ok\n")


def test_a_round_polls_those_who_have_something(c_program):
    assert c_program("tests/iokernel/switch/c/doorbells.c", one_thread=True)().endswith("ok\n")


def test_frames_are_stamped_for_those_who_ask(c_program):
    assert c_program("tests/iokernel/switch/c/stamps.c", one_thread=True)().endswith("ok\n")


def test_loops_ports_and_attaching_again_under_stress(c_program, socket_path):
    run = c_program("tests/iokernel/switch/c/switch_stress.c")
    assert "arrived whole in 3 lives" in run(socket_path, "20000", timeout_s=100)


@pytest.mark.soak(short=True, takes_s=5)
@pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs that this process may use: taskset -pc 0-1 $$"
)
def test_cores_that_move_between_real_threads(c_program, socket_path, seed):
    run = c_program("tests/iokernel/cores/c/threads.c")
    assert "all work was done" in run(socket_path, str(seed), str(soak.examples(300, 1000)), timeout_s=110)
