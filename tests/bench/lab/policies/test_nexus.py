"""Requests in batches within their limits: by a plan after the first window, and dropped when they would be late."""

import numpy as np
import pytest

from corelane.bench.lab import table as t
from corelane.bench.lab.loads import Kind

MODEL = Kind(batch_fixed_ns=100, batch_item_ns=10, limit_ns=400)


def test_before_the_first_plan_a_core_takes_all_that_wait(run):
    ran = run([0, 1, 2], [110.0] * 3, (MODEL,), chosen="nexus")
    assert ran.completion_ns.tolist() == [110, 229, 228]


def test_who_would_be_late_is_dropped_and_others_are_not(run):
    """A long job holds the core until the first request could not be answered any more."""
    kinds = (MODEL, Kind(cls=1))
    ran = run([0, 1, 300], [350.0, 110.0, 110.0], kinds, kind=[1, 0, 0], chosen="nexus")
    assert ran.jobs["outcome"].tolist() == [t.OVER, t.TURNED_AWAY, t.OVER]
    assert ran.completion_ns[2] == 50 + 110


def test_by_plan_more_are_in_time_than_one_at_a_time(run):
    """Three times what a core could serve one at a time: few are dropped, and none of the answers is late."""
    rng = np.random.default_rng(1)
    at = np.cumsum(rng.exponential(110 / 3, 3000)).astype(np.int64)
    settings = {"window": 200}
    ran = run(at, [110.0] * 3000, (MODEL,), chosen="nexus", settings=settings)
    late = ran.over & (ran.completion_ns > 400)
    assert not late.any()
    assert (ran.over | (ran.jobs["outcome"] == t.TURNED_AWAY)).all()
    alone = run(at, [110.0] * 3000, (MODEL,))
    assert ran.over.sum() > 0.9 * 3000
    assert ran.over.sum() > 5 * (alone.completion_ns <= 400).sum()


@pytest.mark.soak(takes_s=5)
def test_a_kind_that_fills_cores_has_them_for_itself(run):
    """Two kinds on two cores: the busy one fills the first, so that the other one's few requests wait for nobody."""
    kinds = (MODEL, Kind(cls=1, batch_fixed_ns=10, batch_item_ns=1, limit_ns=100))
    rng = np.random.default_rng(2)
    busy, rare = np.arange(4000) * 18, np.sort(rng.integers(0, 72_000, 100))
    at = np.concatenate([busy, rare])
    kind = np.concatenate([np.zeros(4000, int), np.ones(100, int)])
    order = np.argsort(at, kind="stable")
    work = np.where(kind == 0, 110.0, 11.0)
    ran = run(at[order], work[order], kinds, kind=kind[order], cores=2, chosen="nexus", settings={"window": 400})
    mine = kind[order] == 1
    assert (ran.completion_ns[mine][20:] <= 100).all()
    assert (ran.completion_ns[~mine] <= 400).mean() > 0.8  # before the first plan it had both cores
