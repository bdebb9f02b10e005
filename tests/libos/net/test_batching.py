"""Which requests are handled together: the rule against a search over all choices, the fit against known profiles."""

from __future__ import annotations

import ctypes
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

MOST = 32
PLACES = 64


class Model(ctypes.Structure):
    """struct cl_batch_model."""

    _fields_ = [
        *((name, ctypes.c_double) for name in ("fixed", "each", "spread", "mean_n", "mean_t", "var_n", "cov")),
        ("seen", ctypes.c_uint64),
    ]


@pytest.fixture(scope="module")
def rule(c_library: Callable[..., Any]) -> Any:
    library = ctypes.CDLL(str(c_library("tests/libos/net/c/batching_rule.c")))
    u32, u64, f64 = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_double
    library.rule_learn.argtypes = [ctypes.POINTER(Model), u32, f64]
    library.rule_cost.argtypes = [ctypes.POINTER(Model), u32]
    library.rule_cost.restype = f64
    library.rule_choose.argtypes = [u32, u32, u64, f64, f64, ctypes.POINTER(u64), u32, u32, u32, u64]
    library.rule_choose.restype = u64
    library.rule_start_by.argtypes = [u64, u64, f64, f64, u64, u32]
    library.rule_start_by.restype = u64
    return library


def choose(
    rule: Any, since: Sequence[int], *, batch: int, limit: int, fixed: float, each: float, now: int, drops: bool = True
) -> tuple[int, int]:
    """How many are dropped, how many taken; the queue's first lies near the end of the memory."""
    first = PLACES - 3
    places = (ctypes.c_uint64 * PLACES)()
    for i, at in enumerate(since):
        places[(first + i) % PLACES] = at
    found = rule.rule_choose(batch, drops, limit, fixed, each, places, first, PLACES - 1, len(since), now)
    return found >> 32, found & 0xFFFFFFFF


ARRIVALS = st.lists(st.integers(0, 400), min_size=1, max_size=PLACES).map(sorted)
# In quarters: sums of them are exact.
TICKS = st.integers(0, 800).map(lambda quarters: quarters / 4)


@given(since=ARRIVALS, batch=st.integers(1, MOST), limit=st.integers(1, 500), fixed=TICKS, each=TICKS)
def test_the_largest_batch_that_is_in_time(
    rule: Any, since: list[int], batch: int, limit: int, fixed: float, each: float
) -> None:
    now = 400

    def in_time(at: int, n: int) -> bool:
        left = since[at] + limit - now
        return n >= 1 and left > fixed and left - fixed >= n * each

    drop, take = choose(rule, since, batch=batch, limit=limit, fixed=fixed, each=each, now=now)
    assert drop + take <= len(since)
    if limit <= fixed + each:  # not even one that comes now
        assert (drop, take) == (len(since) - 1, 1)
        return
    possible = [
        (n, -at) for at in range(len(since)) for n in range(1, min(batch, len(since) - at) + 1) if in_time(at, n)
    ]
    if not possible:
        assert (drop, take) == (len(since), 0), "all are late"
        return
    most, at = max(possible)
    assert (take, drop) == (most, -at), "of the largest batches the oldest, so that nobody is dropped in vain"


def test_who_would_cost_others_their_answers_is_dropped_early(rule: Any) -> None:
    """The oldest could still be answered, alone; the six behind it together."""
    since = [0, 50, 51, 52, 53, 54, 55]
    how = {"batch": 8, "limit": 100, "fixed": 20.0, "each": 5.0, "now": 75}
    assert choose(rule, since, **how) == (1, 6)
    assert choose(rule, since, **how, drops=False) == (0, 1), "one that keeps all sees to the oldest"
    how["now"] = 200
    assert choose(rule, since, **how) == (7, 0)
    assert choose(rule, since, **how, drops=False) == (0, 7), "late, so be done with them"


def test_without_a_limit_a_batch_is_what_is_there(rule: Any) -> None:
    how = {"limit": 0, "fixed": 1e9, "each": 1e9, "now": 10**6}
    assert choose(rule, [0] * 5, batch=8, **how) == (0, 5)
    assert choose(rule, [0] * 9, batch=8, **how) == (0, 8)


def test_a_handler_that_is_too_slow_is_tried_on(rule: Any) -> None:
    """No request is ever in time; still some are handled, so a handler that was slow once is measured again."""
    assert choose(rule, [0, 90, 95], batch=8, limit=50, fixed=60.0, each=1.0, now=100) == (2, 1)
    assert choose(rule, [0, 1, 2], batch=8, limit=50, fixed=60.0, each=1.0, now=100) == (2, 1)


@pytest.mark.parametrize(
    ("limit", "wait", "by"),
    [(0, 30, 1030), (200, 30, 1030), (200, 10_000, 1000 + 175 - 60), (50, 10_000, 1000)],
)
def test_when_a_batch_has_to_begin(rule: Any, limit: int, wait: int, by: int) -> None:
    assert rule.rule_start_by(limit, wait, 20.0, 10.0, 1000, 4) == by


FIXED, EACH = 400.0, 100.0  # us, of the service in virtual time
ONE = FIXED + EACH


def served(arrivals: Sequence[float], limit: float, room: int, choice_of: Callable[[list[float], float], Any]) -> int:
    """How many are answered within the limit by a service that never waits while somebody does, in virtual time.

    choice_of(those that wait, now): how many of them are dropped, and then taken. room: how many may wait.
    """
    waiting: list[float] = []
    came, now, good = 0, 0.0, 0
    while came < len(arrivals) or waiting:
        if not waiting:
            now = max(now, arrivals[came])
        while came < len(arrivals) and arrivals[came] <= now:
            if len(waiting) < room:
                waiting.append(arrivals[came])
            came += 1
        drop, take = choice_of(waiting, now)
        handled, waiting = waiting[drop : drop + take], waiting[drop + take :]
        now += FIXED + EACH * len(handled) if handled else 0.0
        good += sum(now - at <= limit for at in handled)
    return good


@pytest.mark.parametrize(("times", "at_least"), [(3, 1.3), (4, 1.2), (6, 1.08), (10, 0.98)])
def test_in_overload_it_beats_every_fixed_batch_the_more_the_shorter_the_limit(
    rule: Any, times: int, at_least: float
) -> None:
    """The gains that docs/benchmarks.md tells. Arrivals are the same on every run: this is no measurement."""
    limit = times * ONE
    full = min((limit / 2 - FIXED) / EACH, MOST) / (limit / 2)  # requests a us of batches that take half of the limit

    def ours(waiting: list[float], now: float) -> tuple[int, int]:
        since, most = [round(at) for at in waiting[-PLACES:]], len(waiting) - PLACES
        drop, take = choose(rule, since, batch=MOST, limit=round(limit), fixed=FIXED, each=EACH, now=math.ceil(now))
        return max(most, 0) + drop, take

    best_of_ours, best_of_fixed = 0, 0
    for load in (0.8, 1.5, 4.0):
        draw = random.Random(1)
        arrivals, at = [], 0.0
        while at < 300_000:
            at += draw.expovariate(load * full)
            arrivals.append(at)
        best_of_ours = max(best_of_ours, served(arrivals, limit, 512, ours))
        for size in (1, 2, 4, 6, 8, 12, 16, 24, 32):
            for room in {size, 2 * size, 512}:
                found = served(arrivals, limit, room, lambda waiting, now, n=size: (0, min(n, len(waiting))))  # type: ignore[misc]
                best_of_fixed = max(best_of_fixed, found)
    assert best_of_ours >= at_least * best_of_fixed, (best_of_ours, best_of_fixed)


@pytest.mark.parametrize(("fixed", "each"), [(300.0, 40.0), (1000.0, 1.0), (0.0, 50.0)])
@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_the_profile_is_found(rule: Any, fixed: float, each: float, noise: float, seed: int) -> None:
    draw, model = random.Random(seed), Model()
    for _ in range(300):
        n = draw.randint(1, 16)
        rule.rule_learn(model, n, (fixed + each * n) * (1 + noise * draw.uniform(-1, 1)))
    for n in (1, 8, 16):
        cost = rule.rule_cost(model, n)
        right = fixed + each * n
        assert right * (1 - noise) - 1 <= cost <= right * (1.03 + 4 * noise) + 3, (n, cost, right)


def test_one_batch_is_enough_to_begin_with(rule: Any) -> None:
    """What a request adds is not known: so a larger batch is tried, which tells."""
    model = Model()
    rule.rule_learn(model, 1, 340.0)
    assert rule.rule_cost(model, 32) == pytest.approx(340.0)
    rule.rule_learn(model, 8, 620.0)
    assert rule.rule_cost(model, 1) == pytest.approx(340.0, rel=0.3)


def test_what_is_known_stays_where_all_batches_are_alike(rule: Any, seed: int) -> None:
    draw, model = random.Random(seed), Model()
    for _ in range(100):
        n = draw.randint(1, 16)
        rule.rule_learn(model, n, 300.0 + 40.0 * n)
    for _ in range(10_000):
        rule.rule_learn(model, 9, 660.0)
    assert rule.rule_cost(model, 9) == pytest.approx(660.0, rel=0.01)
    assert rule.rule_cost(model, 32) == pytest.approx(1580.0, rel=0.05)


def test_it_follows_a_handler_that_gets_slower(rule: Any, seed: int) -> None:
    draw, model = random.Random(seed), Model()
    for factor in (1, 5, 1):
        for _ in range(400):
            n = draw.randint(1, 16)
            rule.rule_learn(model, n, factor * (300.0 + 40.0 * n))
        assert rule.rule_cost(model, 8) == pytest.approx(factor * 620.0, rel=0.1)


def test_a_lost_core_is_not_believed_at_once(rule: Any) -> None:
    model = Model()
    for n in (1, 8, 4, 16, 2) * 20:
        rule.rule_learn(model, n, 300.0 + 40.0 * n)
    rule.rule_learn(model, 8, 1e9)
    assert math.isfinite(rule.rule_cost(model, 8))
    assert rule.rule_cost(model, 8) < 620.0 * 2
