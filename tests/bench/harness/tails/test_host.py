"""What the host takes of a CPU, by the guest's clocks."""

from __future__ import annotations

import os

import pytest

from corelane.bench.harness.tails import host

TEXT = b"""Sched Debug Version: v0.11
ktime                                   : 1541620.235493

cpu#0, 2596.138 MHz
  .nr_running                    : 3
  .curr->pid                     : 2123
  .clock                         : 1541618.628712
  .clock_task                    : 1540208.920149
  .avg_idle                      : 138590

cfs_rq[0]:/autogroup-14
  .left_deadline                 : 17992.246245

cpu#11, 2596.138 MHz
  .nr_running                    : 0
  .clock                         : 1541618.500000
  .clock_task                    : 1541618.500000
"""


def test_the_clock_of_tasks_is_behind_by_what_was_taken() -> None:
    assert host.clocks(TEXT) == {0: pytest.approx(1.409708563), 11: 0}


def test_another_file_is_refused() -> None:
    with pytest.raises(ValueError, match="no clocks"):
        host.clocks(b"cpu#0\n  .nr_running : 1\n")


def test_it_is_read_or_the_reason_is_said() -> None:
    cpus = sorted(os.sched_getaffinity(0))[:2]
    with host.Host(cpus) as clocks:
        for _ in range(10):  # who reads may lose its CPU between two lines of the file
            first, second = clocks.taken_s(), clocks.taken_s()
            if not first or not second or all(first[cpu] <= second[cpu] for cpu in cpus):
                break
        if clocks.why_not:
            assert first is None
            assert "not known" in clocks.why_not
            return
    assert first is not None
    assert second is not None
    assert list(first) == cpus
    assert all(0 <= first[cpu] <= second[cpu] for cpu in cpus)
    assert clocks.taken_s() is None
    assert os.sched_getaffinity(0) >= set(cpus)
