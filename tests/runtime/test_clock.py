"""The clock: conversions, calibration, the fallback, and corrections that step backwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.runtime.clock import Clock, Pairs, Timeline, VirtualClock, default_clock, tsc
from corelane.runtime.errors import CorelaneError

rates_hz = st.integers(10**6, 32 * 10**9)
DAY_NS = 86_400 * 10**9


@given(rates_hz, st.integers(0, 2**64 - 1), st.integers(-(2**50), 2**50), st.integers(-100 * DAY_NS, 100 * DAY_NS))
def test_conversions_match_exact_arithmetic(hz, base_tsc, base_ns, ns):
    clock = Clock.from_hz(hz, base_tsc, base_ns)
    ticks = clock.ns_to_ticks(ns)
    assert abs(ticks - Fraction(ns * hz, 10**9)) <= 2 + abs(ticks) * Fraction(1, 10**9)
    assert abs(clock.ticks_to_ns(ticks) - ns) <= 2 + 2 * 10**9 // hz + abs(ns) // 10**9
    stamp = clock.ns_to_tsc(base_ns + ns)
    assert stamp == (base_tsc + ticks) % 2**64
    assert clock.tsc_to_ns(stamp) == base_ns + clock.ticks_to_ns(ticks)


@given(rates_hz, st.integers(-(2**55), 2**55), st.integers(0, 2**30))
def test_conversion_never_goes_back(hz, ticks, more):
    clock = Clock.from_hz(hz)
    assert clock.ticks_to_ns(ticks + more) >= clock.ticks_to_ns(ticks)


def test_calibration_agrees_with_the_kernel():
    clock = Clock.calibrate()
    # Bracketed by the kernel's clock, and free to be off by its own stated bounds.
    before = time.monotonic_ns()
    here = clock.now_ns()
    after = time.monotonic_ns()
    age_ns = after - int(clock.ptr.base_ns)
    slack = int(clock.ptr.base_error_ns) + age_ns * clock.error_ppb // 10**9 + 1
    assert before - slack <= here <= after + slack
    assert clock.as_dict()["source"] in ("measured", "kernel", "architecture", "monotonic")


def test_default_clock_is_one_for_all_threads():
    seen: list[int] = []

    def look():
        seen.append(int(default_clock().ptr.base_tsc))

    threads = [threading.Thread(target=look) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(seen) == 8
    assert len(set(seen)) == 1


def test_stamps_go_forward():
    stamps = [tsc() for _ in range(10_000)]
    assert stamps == sorted(stamps)


@given(st.lists(st.tuples(st.integers(1, 5 * 10**9), st.integers(-500, 500)), min_size=2, max_size=20), st.data())
def test_pairs_follow_a_clock_that_is_steered(parts: list[tuple[int, int]], data: st.DataObject) -> None:
    """A counter of 1 GHz, and a clock that runs some millionths faster or slower than it from look to look."""
    pairs = Pairs(10**9)  # begins with what this machine says now
    stamp, ns = 2**61, 2**60
    seen = [(stamp, ns)]
    pairs.saw(stamp, ns)
    for ticks, ppm in parts:
        stamp, ns = stamp + ticks, ns + max(ticks + ticks * ppm // 10**6, 1)
        pairs.saw(stamp, ns)
        seen.append((stamp, ns))
    assert (pairs.stamp_of(ns), pairs.ns_of(stamp)) == (stamp, ns), "the last one is known"
    (a, at_a), (b, at_b) = seen[-2:]
    inside = data.draw(st.integers(a, b))
    off = abs(pairs.ns_of(inside) - (at_a + (inside - a) * (at_b - at_a) // (b - a)))
    assert off <= 2 + 2 * Pairs.APART_NS * 500 // 10**6, "wrong by what it was steered between looks that are kept"
    assert abs(pairs.stamp_of(pairs.ns_of(inside)) - inside) <= 2
    later = data.draw(st.integers(0, DAY_NS))
    assert pairs.ns_of(stamp + later) == ns + later, "behind them the rate holds"


def test_pairs_keep_one_a_second_and_the_last() -> None:
    pairs = Pairs(10**9)
    at = 2**60
    for n in range(1000):
        pairs.saw(2**60 + n * 10**7, at + n * 10**7)
    assert len(pairs._times) <= 13
    pairs.saw(2**60, at)  # nothing goes back
    assert pairs.ns_of(2**60 + 999 * 10**7) == at + 999 * 10**7


def test_a_pair_is_of_now() -> None:
    begun_ns = time.monotonic_ns()
    before = tsc(), time.monotonic_ns()  # between any two of these the thread may lose its CPU
    pairs = Pairs(default_clock().hz)
    after = tsc(), time.monotonic_ns()
    hz = default_clock().hz
    assert before[0] - hz // 1000 <= pairs.stamp_of(before[1]) <= after[0] + hz // 1000
    assert begun_ns - 10**6 <= pairs.ns_of(before[0]) <= after[1] + 10**6


def test_fallback_counts_nanoseconds():
    code = (
        "import json, time; from corelane.runtime.clock import *; c = Clock.calibrate(); a = time.clock_gettime_ns(4);"
        "b = tsc(); d = time.clock_gettime_ns(4); print(json.dumps([c.source, c.hz, a, b, d, c.ticks_to_ns(12345)]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "CORELANE_CLOCK": "monotonic"},
        capture_output=True,
        text=True,
        check=True,
    )
    source, hz, before, stamp, after, ns = json.loads(done.stdout)
    assert (source, hz, ns) == ("monotonic", 10**9, 12345)
    assert before <= stamp <= after


def test_a_backwards_step_leaves_earlier_stamps_alone():
    clock = Clock.from_hz(10**9)
    wall = Timeline(clock)
    wall.step(0, 1_000_000)
    stamps = [100, 200, 300]
    before = [wall.ns(s) for s in stamps]
    version = wall.version
    wall.step(250, 400_000)  # the master says: we are 0.6 ms ahead
    assert [wall.ns(s) for s in stamps] == [1_000_100, 1_000_200, 400_300]
    assert wall.ns(300) < wall.ns(200), "the corrected clock did step back ..."
    assert clock.ticks_to_ns(stamps[2] - stamps[1]) == 100, "... and no interval changed"
    assert [wall.ns(s, version) for s in stamps] == before, "what was read once can be read so again"
    assert wall.ns(100, 0) == 100


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(-(10**9), 10**9)), max_size=30), st.integers(0, 40_000))
def test_timeline_matches_a_list(steps, stamp):
    clock = Clock.from_hz(10**9)
    line = Timeline(clock)
    model: list[tuple[int, int]] = []
    at = 0
    for gap, offset in steps:
        at += gap
        model.append((at, offset))
        assert line.step(at, offset) == len(model)
    for version in range(len(model) + 1):
        valid = [offset for start, offset in model[:version] if start <= stamp]
        assert line.ns(stamp, version) == stamp + (valid[-1] if valid else 0)


def test_corrections_are_appended_only():
    line = Timeline(Clock.from_hz(10**9))
    line.step(1000, 5)
    with pytest.raises(CorelaneError, match="in the order of their stamps"):
        line.step(999, 5)
    for i in range(255):
        line.step(1000 + i, i)
    with pytest.raises(CorelaneError, match="256 at most"):
        line.step(5000, 0)
    assert line.version == 256


def test_impossible_rates_are_refused():
    for hz in (0, 10**5, 33 * 10**9):
        with pytest.raises(CorelaneError, match=f"clock of {hz} Hz"):
            Clock.from_hz(hz)


def test_a_virtual_clock_stands_still_and_is_exact():
    clock = VirtualClock()
    assert clock.source == "virtual"
    assert clock.now_ns() == clock.now_ns() == VirtualClock.START_NS
    assert clock.advance(123) == clock.now_ns() == VirtualClock.START_NS + 123
    for ns in (1, 999_999_999, 10**17 + 1):
        assert clock.tsc_to_ns(ns) == clock.ns_to_tsc(ns) == clock.ns_to_ticks(ns) == clock.ticks_to_ns(ns) == ns
    assert default_clock().now_ns() != clock.now_ns()


def test_a_virtual_clock_goes_forward_from_where_it_may_begin():
    with pytest.raises(CorelaneError, match="1 ns or later"):
        VirtualClock(0)
    with pytest.raises(CorelaneError, match="time goes forward"):
        VirtualClock(5).advance(-1)
