"""A load that is recorded while an application serves it, and what each core is to serve of it."""

import os

import numpy as np
import pytest

from corelane.bench.lab import loads, served
from corelane.runtime.errors import CorelaneError

CORES = tuple(sorted(os.sched_getaffinity(0))[:2])


@pytest.mark.skipif(len(CORES) < 2, reason="this process may use one core: allow it a second one")
def test_what_an_application_was_asked_for_is_recorded(monkeypatch):
    monkeypatch.setattr(served, "WHOLE", 0.0)  # a test machine has others to run
    load = served.recorded(CORES, at=0.1, short_us=20, long_us=200, long_share=0.5, seconds=0.3)
    assert 50 < len(load) < 500  # 273 are asked for
    assert len(load.kinds) == 1
    assert load.said["recorded"] == "requests"
    assert load.said["kthreads"] == 1
    work = load.jobs["work_ns"]
    # It spins until so much time is over. What a gap of the machine took is off, which on a busy one is not exact.
    assert np.percentile(work, 10) > 19_000
    assert 0.3 < (work > 150_000).mean() < 0.7
    assert load.jobs["at_ns"].max() < 1e9


@pytest.mark.skipif(len(CORES) < 2, reason="this process may use one core: allow it a second one")
def test_what_an_application_did_not_get_is_no_recording(monkeypatch):
    monkeypatch.setattr(served, "WHOLE", 1.1)
    with pytest.raises(CorelaneError, match=r"wrote down \d+ of \d+ requests"):
        served.recorded(CORES, at=0.1, short_us=20, long_us=200, long_share=0.5, seconds=0.1)


def test_stretches_of_a_load_begin_together():
    at = np.array([0, 40, 90, 100, 130, 210, 390, 400])
    load = loads.Load((loads.Kind(),), loads.jobs(at, 1.0 + np.arange(8)), {"recorded": "requests"})
    one = served.stretches(load, 1, 1, 100)
    assert one.jobs["at_ns"].tolist() == [0, 30]
    assert one.jobs["work_ns"].tolist() == [4, 5]
    two = served.stretches(load, 2, 0, 100)
    assert two.jobs["at_ns"].tolist() == [0, 0, 30, 40, 90]
    assert two.jobs["work_ns"].tolist() == [1, 4, 5, 2, 3]
    assert served.stretches(load, 2, 1, 100).jobs["work_ns"].tolist() == [6, 7]
    assert load.jobs["at_ns"].tolist() == at.tolist()
    with pytest.raises(CorelaneError, match="got nothing"):
        served.stretches(load, 1, 9, 100)
