"""The uthread scheduler: C programs, run plain or under a sanitizer (CORELANE_SANITIZE).

On fewer and on more kthreads than this machine has cores. What each program checks is said at its top.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from cltest import soak

Program = Callable[..., Callable[..., str]]

SANITIZED = bool(os.environ.get("CORELANE_SANITIZE"))
# Kthreads and idle mode: alone; more than the cores of a small machine; and spinning, which on one core yields.
SHAPES = [(1, "block"), (4, "block"), (4, "adaptive"), (2, "spin")]
shapes = pytest.mark.parametrize(("kthreads", "mode"), SHAPES)


def program(name: str) -> str:
    """Path of a test program."""
    return f"tests/libos/sched/c/{name}.c"


@shapes
def test_contract_of_every_call(c_program: Program, kthreads: int, mode: str) -> None:
    c_program(program("basics"))(kthreads, mode)


@shapes
def test_registers_rounding_and_alignment_are_kept(c_program: Program, kthreads: int, mode: str) -> None:
    c_program(program("registers"))(kthreads, mode)


@shapes
def test_uthreads_that_sleep_learn_of_a_stop(c_program: Program, kthreads: int, mode: str) -> None:
    c_program(program("stopping"))(kthreads, mode)


@shapes
def test_scopes_and_that_a_cancel_reaches_every_wait(c_program: Program, kthreads: int, mode: str) -> None:
    c_program(program("scope"))(kthreads, mode)


@shapes
def test_channels_with_many_senders_receivers_and_selects(
    c_program: Program, kthreads: int, mode: str, seed: int
) -> None:
    c_program(program("channel"))(kthreads, mode, 200 if SANITIZED else 2000, seed)


@pytest.mark.parametrize("frames", ["narrowly", "widely", "40000", "204800", "1000000"])
def test_stack_overflow_hits_the_guard_and_is_reported(c_program: Program, frames: str) -> None:
    assert "ran over its stack" in c_program(program("overflow"))(frames)


@shapes
def test_primitives_under_stress(c_program: Program, kthreads: int, mode: str, seed: int) -> None:
    c_program(program("sync_stress"))(kthreads, mode, 100 if SANITIZED else 1000, seed)


@shapes
def test_spawn_storm_runs_each_once_and_spreads(c_program: Program, kthreads: int, mode: str) -> None:
    c_program(program("spawn_storm"))(kthreads, mode, 5)


@pytest.mark.soak(short=True, takes_s=2)
@shapes
def test_no_wake_up_is_lost(c_program: Program, kthreads: int, mode: str) -> None:
    c_program(program("park_wake"))(kthreads, mode, 500 if SANITIZED else soak.examples(6_000, 20_000))


@shapes
def test_adopted_kthread_contract_and_ends(c_program: Program, kthreads: int, mode: str) -> None:
    c_program(program("adopt"))(kthreads, mode)


@pytest.mark.parametrize(("kthreads", "mode"), [(1, "block"), (1, "adaptive"), (3, "block")])
def test_kthreads_are_borrowed_by_one_thread_at_a_time(c_program: Program, kthreads: int, mode: str) -> None:
    c_program(program("borrow"))(kthreads, mode)


# Kthreads, those of them that are adopted, and the threads that turn those.
@pytest.mark.parametrize(
    ("kthreads", "mode", "adopted", "threads"),
    [(1, "block", 1, 1), (1, "adaptive", 1, 1), (4, "block", 1, 1), (4, "block", 4, 2), (4, "adaptive", 2, 2)],
)
def test_no_wake_up_of_an_adopted_kthread_is_lost(
    c_program: Program, kthreads: int, mode: str, adopted: int, threads: int
) -> None:
    c_program(program("adopt_wake"))(kthreads, mode, adopted, threads, 200 if SANITIZED else 500)


@shapes
def test_timers_racing_with_cancel(c_program: Program, kthreads: int, mode: str, seed: int) -> None:
    c_program(program("timers"))(kthreads, mode, 1000 if SANITIZED else 10000, seed)


@pytest.mark.skipif(SANITIZED, reason="switches stacks by ucontext, which the sanitizers do not follow; it runs plain")
def test_timers_in_every_interleaving_with_cancel(c_program: Program) -> None:
    assert c_program(program("timer_model"))(3).count("interleavings") == 3


@pytest.mark.skipif(SANITIZED, reason="switches stacks by ucontext, which the sanitizers do not follow; it runs plain")
def test_a_cancel_in_every_interleaving_with_who_waits_and_wakes(c_program: Program) -> None:
    assert c_program(program("scope_model"), sources=["libos/sched/spin.c"])(2).count("interleavings") == 10


@pytest.mark.skipif(SANITIZED, reason="switches stacks by ucontext, which the sanitizers do not follow; it runs plain")
def test_channels_in_every_interleaving(c_program: Program) -> None:
    assert c_program(program("channel_model"), sources=["libos/sched/spin.c"])(2).count("interleavings") == 10


@pytest.mark.soak(short=True, takes_s=1)
def test_alarms_against_a_model_on_a_clock_of_its_own(c_program: Program, seed: int) -> None:
    run = c_program(program("wheel_model"), one_thread=True)
    for i in range(3):
        run(seed + i, soak.examples(4_000, 100_000))


@pytest.mark.soak(short=True, takes_s=2)
@shapes
def test_alarms_of_kthreads_that_are_away(c_program: Program, kthreads: int, mode: str, seed: int) -> None:
    c_program(program("wheel_stress"))(kthreads, mode, soak.examples(1_500, 20_000), seed)


@pytest.mark.soak(short=True, takes_s=2)
@shapes
def test_work_source_frames_are_handled_once(c_program: Program, kthreads: int, mode: str, seed: int) -> None:
    c_program(program("source"))(kthreads, mode, 5000 if SANITIZED else soak.examples(12_000, 40_000), seed)


@shapes
def test_start_stop_fork_and_two_schedulers(c_program: Program, kthreads: int, mode: str) -> None:
    c_program(program("lifecycle"))(kthreads, mode)


@pytest.mark.soak(short=True, takes_s=5)
@shapes
def test_stop_at_any_moment_sees_the_end(c_program: Program, kthreads: int, mode: str, seed: int) -> None:
    c_program(program("stop_race"))(kthreads, mode, 200 if SANITIZED else soak.examples(400, 1500), seed)


@pytest.mark.parametrize("shared", [0, 1])
def test_run_queue_against_a_model(c_program: Program, shared: int, seed: int) -> None:
    run = c_program(program("runq_model"))
    for i in range(2):
        run(shared, 100_000, seed + i)


@pytest.mark.parametrize("thieves", [1, 3])
def test_run_queue_with_thieves(c_program: Program, thieves: int, seed: int) -> None:
    c_program(program("runq_stress"))(thieves, 50_000 if SANITIZED else 200_000, seed)


def test_stepped_run_is_deterministic_and_timers_are_ordered(c_program: Program, seed: int) -> None:
    run = c_program(program("step"))
    for i in range(2):
        run(seed + i)


def test_short_requests_that_overload_one_kthread_spread(c_program: Program) -> None:
    c_program(program("behind"))()


@pytest.mark.parametrize("poll", [0, 1, 2], ids=["spin", "adaptive", "block"])
@pytest.mark.parametrize("kthreads", [1, 2])
def test_what_may_be_done_at_any_time_is_done_when_nothing_else_is(
    c_program: Program, kthreads: int, poll: int
) -> None:
    c_program(program("idle_work"))(kthreads, poll)


def test_a_kthread_that_waits_lets_the_cpu_go_when_it_should(c_program: Program) -> None:
    c_program(program("linger"), one_thread=True)()


@pytest.mark.skipif(SANITIZED, reason="sanitizers make system calls of their own: run without CORELANE_SANITIZE")
def test_steady_loop_makes_no_system_call(c_program: Program) -> None:
    assert c_program(program("steady"))() == "no system call\n"


def test_the_example_of_the_guide_runs(c_program: Program, tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[3]
    (example,) = re.findall(r"^```c$(.*?)^```$", (root / "docs" / "uthreads.md").read_text(), re.M | re.S)
    source = tmp_path / "example.c"
    source.write_text(example)
    c_program(str(source), cflags=[f"-I{root / 'runtime' / '_include'}"])()
