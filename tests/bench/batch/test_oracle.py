"""The oracle that bounds `corelane bench batch`, against all schedules of a few requests."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from corelane.bench.batch import oracle


def by_search(came: Sequence[float], takes: Mapping[int, float], limit: float, free: float = 0.0) -> int:
    """Every set of the requests may be the next batch, and may wait for its last one, or nobody is handled any more."""
    best = 0
    for chosen in range(1, 1 << len(came)):
        batch = [i for i in range(len(came)) if chosen >> i & 1]
        end = max(free, came[batch[-1]]) + takes.get(len(batch), np.inf)
        if end <= came[batch[0]] + limit:
            left = [at for i, at in enumerate(came) if i not in batch]
            best = max(best, len(batch) + by_search(left, takes, limit, end))
    return best


def test_no_schedule_answers_more(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(60):
        came = sorted(draw.choice((0.0, draw.uniform(0, 40))) for _ in range(draw.randint(1, 5)))
        took = sorted(draw.uniform(1, 12) for _ in range(3))
        takes = dict(enumerate(took, 1))
        limit = draw.uniform(1, 30)
        found = oracle.most_in_time(np.array(came) * 1e3, takes, limit)
        assert found == by_search(came, {n: us for n, us in takes.items() if us <= limit}, limit), (came, takes, limit)


def test_what_is_full_all_the_time_is_bounded_by_its_best_batch() -> None:
    """Requests without end: each batch is the one that answers most a second within the limit."""
    came_ns, span_s = np.arange(0, 800_000, 1_000), 800e-6
    takes = {1: 10.0, 4: 16.0, 8: 40.0, 16: 90.0}
    assert oracle.most_in_time(came_ns, takes, 50.0) / span_s == pytest.approx(4e6 / 16, rel=0.05)
    assert oracle.most_in_time(came_ns, takes, 12.0) / span_s == pytest.approx(1e6 / 10, rel=0.05)
    assert oracle.most_in_time(came_ns, takes, 9.9) == 0
