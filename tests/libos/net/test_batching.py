"""Which requests are handled together: the rule against a search over all choices, the fit against known profiles, and
the rule against every fixed one in virtual time."""

from __future__ import annotations

import ctypes
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

MOST = 32
PLACES = 64
BETTER = 1.01  # times another's rate is a better one


class Model(ctypes.Structure):
    """struct cl_batch_model."""

    _fields_ = [
        *((name, ctypes.c_double) for name in ("fixed", "each", "spread", "mean_n", "mean_t", "var_n", "cov")),
        ("seen", ctypes.c_uint64),
        ("untried", ctypes.c_uint32),
        ("gap", ctypes.c_uint32),
        *((name, ctypes.c_double * (MOST + 1)) for name in ("mean", "weight", "takes", "rate")),
        ("least", ctypes.c_double),
        ("best", ctypes.c_uint8 * (MOST + 1)),
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
    doubles = ctypes.POINTER(f64)
    library.rule_served.argtypes = [ctypes.POINTER(u64), u32, doubles, f64, u64, u32, u64, u32, u32]
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
def test_the_best_batch_that_is_in_time(
    rule: Any, since: list[int], batch: int, limit: int, fixed: float, each: float
) -> None:
    now = 400

    def best_of(at: int, later: float) -> int:
        """Of those from `at` on, the batch that answers most a tick; of two that are as good the smaller one."""
        left, best = since[at] + limit - now - later, 0
        rate = [0.0] + [n / (fixed + each * n + 1) for n in range(1, MOST + 1)]
        for n in range(1, min(batch, len(since) - at) + 1):
            if fixed + each * n < left and rate[n] > BETTER * rate[best]:
                best = n
        return best

    def all_from(at: int) -> bool:
        later = 0.0
        while at < len(since):
            take = best_of(at, later)
            if not take:
                return False
            at, later = at + take, later + fixed + each * take
        return True

    drop, take = choose(rule, since, batch=batch, limit=limit, fixed=fixed, each=each, now=now)
    assert drop + take <= len(since)
    if limit <= fixed + each:  # not even one that comes now
        assert (drop, take) == (len(since) - 1, 1)
        return
    possible = [(at, best_of(at, 0.0)) for at in range(len(since))]
    in_time = [(at, n) for at, n in possible if n]
    if not in_time:
        over = since[-1] + limit <= now
        assert (drop, take) == ((len(since), 0) if over else (len(since) - 1, 1)), "else nobody would know better"
    elif all_from(in_time[0][0]):
        assert (drop, take) == in_time[0], "nobody is dropped who can be in time beside all others"
    else:
        rate = {at: n / (fixed + each * n + 1) for at, n in in_time}
        assert (drop, take) in in_time
        assert all(rate[drop] * BETTER**2 >= other for other in rate.values()), "no batch answers many more a tick"
        assert all(rate[drop] > rate[at] for at, _ in in_time if at < drop), "and nobody was dropped in vain"


def test_who_would_cost_others_their_answers_is_dropped_early(rule: Any) -> None:
    """The oldest could still be answered, alone; the six behind it together."""
    since = [1, 50, 51, 52, 53, 54, 55]
    how = {"batch": 8, "limit": 100, "fixed": 20.0, "each": 5.0, "now": 75}
    assert choose(rule, since, **how) == (1, 6)
    assert choose(rule, since, **how, drops=False) == (0, 1), "one that keeps all sees to the oldest"
    how["now"] = 135
    assert choose(rule, since, **how) == (6, 1), "none is in time by what is expected, and it may be wrong"
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


def test_a_wrong_guess_does_not_last(rule: Any) -> None:
    """A service that was slow for a while: one that comes just now would be in time, one that waited for a moment is
    not, by what is expected of it."""
    for limit in (100, 101, 150):
        assert choose(rule, [0, 90], batch=8, limit=limit, fixed=50.0, each=49.9, now=99) in ((1, 1), (0, 1)), limit


@pytest.mark.parametrize(
    ("limit", "wait", "by"),
    [(0, 30, 1030), (200, 30, 1030), (200, 10_000, 1000 + 175 - 60), (50, 10_000, 1000)],
)
def test_when_a_batch_has_to_begin(rule: Any, limit: int, wait: int, by: int) -> None:
    assert rule.rule_start_by(limit, wait, 20.0, 10.0, 1000, 4) == by


NS = 1000  # ticks a us, in virtual time
REQUESTS = 6000  # of a load of 1
SIZES = np.arange(1, MOST + 1)
PROFILES = {  # what batches of each size take, us
    "much is fixed": 300 + 30.0 * SIZES,
    "some is fixed": 400 + 100.0 * SIZES,
    "nothing is fixed": 1000.0 * SIZES,
    "a batch loses": np.where(SIZES == 1, 1000.0, 1600.0 * SIZES),
    "one alone is fast, and two are not": np.where(SIZES == 1, 100.0, 290 + 5.0 * SIZES),
    "eight lanes, one alone by another way": np.where(SIZES == 1, 1030.0, 468.75 * (-(-SIZES // 8) * 8)),
}


def arrivals(rate: float, span_us: float, bursty: bool) -> Any:
    """Ticks. bursty: a fifth of the time four times the rate of the rest. The same on every run: no measurement."""
    draw = np.random.default_rng(7)
    parts, at, burst = [], 0.0, bool(draw.random() < 0.2)
    while at < span_us:
        mean = span_us / 50 if burst else span_us / 12.5
        end = min(at + draw.exponential(mean), span_us) if bursty else span_us
        times = (4 if burst else 1) / 1.6 if bursty else 1.0
        parts.append(np.sort(draw.uniform(at, end, draw.poisson(times * rate * (end - at)))))
        at, burst = end, not burst
    return (np.concatenate(parts) * NS).astype(np.uint64)


def served(rule: Any, came: Any, takes: Any, limit_us: float, size: int, wait: float, room: int, fixed: bool) -> int:
    """How many are in time. wait: a part of the limit."""
    at, ticks = came.ctypes.data_as(ctypes.POINTER(ctypes.c_uint64)), np.ascontiguousarray(takes * NS, np.float64)
    of = ticks.ctypes.data_as(ctypes.POINTER(ctypes.c_double))
    limit = int(limit_us * NS)
    return int(rule.rule_served(at, len(came), of, 0.02, limit, size, int(wait * limit), room, fixed))


def over_fixed(rule: Any, takes: Any, times: float, bursty: bool, loads: Sequence[float]) -> list[tuple[float, float]]:
    """What the rule answers in time, and the best of the fixed rules, requests a second at each load. Learning on the
    way what batches take costs it some answers."""
    limit = times * takes[0]
    full = max(n / us for n, us in zip(SIZES, takes, strict=True) if n == 1 or 2 * us <= limit)
    found, span_us = [], REQUESTS / full
    for load in loads:
        came = arrivals(load * full, span_us, bursty)
        best = max(
            served(rule, came, takes, limit, size, wait, room, True)
            for size in (1, 2, 4, 8, 16, 32)
            for wait in ((0.0, 0.25) if size > 1 else (0.0,))
            for room in {size, 2 * size, 4 * size, 512}
        )
        found.append((1e6 * served(rule, came, takes, limit, MOST, 0.0, 512, False) / span_us, 1e6 * best / span_us))
    return found


LOADS = (0.8, 1.5, 4.0)


@pytest.mark.parametrize("bursty", [False, True], ids=["steady", "bursts"])
@pytest.mark.parametrize("times", [3, 6])
@pytest.mark.parametrize("profile", PROFILES)
def test_no_fixed_rule_is_better(rule: Any, profile: str, times: float, bursty: bool) -> None:
    """At any load, whether a batch gains much or loses."""
    found = over_fixed(rule, PROFILES[profile], times, bursty, LOADS)
    for ours, best in found:
        assert ours >= 0.95 * best, found


@pytest.mark.parametrize(("times", "at_least"), [(3, 1.35), (4, 1.15), (6, 1.15), (10, 1.0)])
def test_in_overload_it_beats_every_fixed_batch_the_more_the_shorter_the_limit(
    rule: Any, times: int, at_least: float
) -> None:
    """The gains that docs/benchmarks.md tells."""
    found = over_fixed(rule, PROFILES["some is fixed"], times, False, LOADS)
    assert max(ours for ours, _ in found) >= at_least * max(best for _, best in found), found


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
