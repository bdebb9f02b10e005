"""Needs and how they are met, by the doorbell and by the scan. How soon is the benchmark's to say."""

from __future__ import annotations

import math
import os

import pytest

from corelane.bench.lab import doorbell

CORES = sorted(os.sched_getaffinity(0))[:2]


@pytest.mark.skipif(len(CORES) < 2, reason="needs two CPUs that this process may use: taskset -pc 0-1 $$")
@pytest.mark.parametrize("arm", [doorbell.SCAN, doorbell.BELL])
def test_each_need_is_met_by_the_way_of_its_arm(arm):
    met = doorbell.measure((CORES[0], CORES[1]), doorbell.ARMS[arm], 0.0)
    assert len(met.ns) == 2 * doorbell.LEAST
    assert min(met.ns) > 0
    assert met.decisions_per_s > 0
    assert (met.rings_per_s > 0) == (arm == doorbell.BELL)


@pytest.mark.skipif(len(CORES) < 2, reason="needs two CPUs that this process may use: taskset -pc 0-1 $$")
@pytest.mark.soak(takes_s=60)
def test_no_uthread_stays_in_front_of_a_kthread_that_idles():
    """An interrupt between a uthread's way to the front and the loop's look at it lost one in seven of these rounds."""
    for _ in range(40):
        assert len(doorbell.measure((CORES[0], CORES[1]), doorbell.ARMS[doorbell.BELL], 0.5).ns) > doorbell.LEAST


def test_a_note_has_our_parts_and_those_of_the_bound():
    parts = {doorbell.HEARD: [500.0, 700.0, 600.0], doorbell.SEEN: [400.0, 300.0, 500.0]}
    parts |= {doorbell.LEAVES: [200.0, 400.0, 100.0], doorbell.SWITCH: [1300.0] * 3, doorbell.BEGINS: [200.0] * 3}
    raw = {doorbell.GONE: [300.0, 250.0, 350.0], doorbell.SWITCH: [1200.0, 1100.0, 1250.0]}
    said = doorbell.told([doorbell.Met([], 1.0, 1.0, parts)], [doorbell.Met([], math.nan, math.nan, raw)], 0.17)
    assert said == (
        "need until the decision 0.6 (bound 0.17), decision until the old owner yields 0.6 (bound 0.3), "
        "yield until the new runs 1.3 (bound 1.2), new owner runs until its uthread does 0.2 (bound 0)"
    )


def test_the_bound_is_told_in_words():
    said = doorbell.bounded(0.4712, 0.332)
    assert "would be 0.471 here, were a need heard after the way of a cache line alone" in said
    assert "0.332 with the kernel's own hand-over" in said


def test_a_row_has_all_needs_and_medians_of_the_rates():
    row = doorbell.row_of([doorbell.Met([3000.0], 1.0, 5.0), doorbell.Met([1000.0, 2000.0], 3.0, 7.0)])
    assert (row["n"], row["p50_us"], row["decisions_per_s"], row["rings_per_s"]) == (3, 2.0, 2.0, 6.0)
    assert math.isnan(doorbell.row_of([doorbell.Met([], 1.0, 5.0)])["p50_us"])
