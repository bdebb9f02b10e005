"""The shape of the shifting load, and how its windows are added up and judged."""

from __future__ import annotations

import contextlib
import math
import os

import pytest
from cltest import wait_until
from cltest.fakeload import FakeLoad, echo

from corelane.bench import loadshift
from corelane.bench.harness import rest
from corelane.bench.harness.session import Session
from corelane.drivers.nic.loadgen.loadgen import Echo


def test_a_schedule_jumps_tenfold_and_back_in_windows() -> None:
    phases = loadshift.schedule(2)
    one = loadshift.BEFORE + loadshift.DURING + loadshift.AFTER
    assert len(phases) == 2 * (one + 1)
    assert [p.series for p in phases[: one + 1]] == [0, *range(1, one + 1)]
    assert not phases[0].measured
    assert phases[loadshift.BEFORE].rate * 10 == phases[loadshift.BEFORE + 1].rate == loadshift.HIGH_RPS
    assert loadshift.RUN_SHIFTS * (one + 1) < 1024
    assert loadshift.shift_s() == pytest.approx(one * 1e-4 + loadshift.PAUSE_S)


def test_windows_of_all_repetitions_are_added_up() -> None:
    fake = FakeLoad(Echo(), arrivals="uniform")
    windows = loadshift.Windows()
    for _ in range(2):
        fake.start(*loadshift.schedule(3))
        fake.serve(echo, fake.now + 200_000_000, step_ns=1000, delay_ns=2000)
        windows.add(fake.load, 3, 10, 0.5)
    assert windows.shifts == 6
    assert windows.work == 20
    assert windows.sent == windows.answered > 0
    per_window = loadshift.HIGH_RPS * loadshift.WINDOW_S
    assert windows.requests()[loadshift.BEFORE] == pytest.approx(6 * per_window, rel=0.2)
    first_high = windows.percentiles_us(99)[loadshift.BEFORE]
    assert len(first_high) == 2
    assert all(2 <= value < 5 for value in first_high)


def test_a_window_is_the_median_of_its_runs() -> None:
    fake = FakeLoad(Echo(), arrivals="uniform")
    windows = loadshift.Windows()
    for delay_ns in (2000, 2000, 5_000_000):
        fake.start(*loadshift.schedule(1))
        fake.serve(echo, fake.now + 200_000_000, step_ns=1000, delay_ns=delay_ns)
        windows.add(fake.load, 1, 0, 0.5)
    session = Session("loadshift", seconds=0.1)
    loadshift.add_rows(session, "arm", windows)
    (row,) = session.arms
    assert row["runs"] == row["shifts"] == 3
    assert row["window_start_us"][loadshift.BEFORE] == 0
    assert 2 <= row["window_p99_us"][loadshift.BEFORE] < 5
    assert row["window_p99_upper_us"][loadshift.BEFORE] > 4000


@pytest.mark.parametrize(
    ("high", "windows"),
    [
        ([10.0] * 20, 0),
        ([90.0, 51.0, 50.0, 19.0] + [10.0] * 16, 2),
        ([4000.0] * 20, 20),
        ([math.inf] * 20, 20),
        ([10.0] * 3, None),
    ],
)
def test_windows_beyond_the_bound_are_counted_however_the_arm_does_before(
    high: list[float], windows: int | None
) -> None:
    for before in (5.0, 4000.0):
        assert loadshift.over_settled([before] * loadshift.BEFORE + high) == windows


@pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="needs two cores that this process may use: taskset -pc 0-1 $$"
)
def test_everybody_sleeps_after_shifts_in_which_the_job_had_no_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under `static` the job waits for a core for ever, and the loop polls meanwhile."""
    first, second = sorted(os.sched_getaffinity(0))[:2]
    with contextlib.ExitStack() as stack:
        ours = loadshift.Ours(stack, (first, second))
        windows = loadshift.Windows()

        def some_were_sent() -> bool:
            """The windows take 4 ms: on a busy machine who sends may have no CPU in all of them."""
            ours.shift("static", 1, windows, 0.05)
            return windows.sent > 0

        wait_until(some_were_sent, 60)
        assert rest.awake(60) == ""
        ours.made.set_policy("static")
        ours.job.paused = False
        ours.made.load.measure(10_000, 0.05)
        monkeypatch.setattr(rest, "AWAKE", 0.0)  # of a machine that may be busy
        monkeypatch.setattr(rest, "LOOK_S", 0.3)
        wait_until(lambda: "cl-loop" in rest.awake(0.0), 60, "who is not put to sleep so is found")
        ours.job.paused = True
