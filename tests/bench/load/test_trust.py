"""Why a result is not trusted: each check, on samples that are known to deserve it, and on those that do not."""

from __future__ import annotations

import math

import numpy as np
import pytest

from corelane.bench.load import trust
from corelane.runtime.hist import Hist

N = 20_000
CLEAN = dict.fromkeys(
    (
        *("offered", "sent", "answered", "dropped", "wrong", "errors", "broken", "timeouts", "refused"),
        *("late", "held", "misses"),
    ),
    0,
) | {"offered": N, "sent": N, "answered": N}


def records(latency_us: np.ndarray, rate: float = 10_000) -> np.ndarray:
    """Requests at equal distances with these latencies."""
    out = np.zeros(len(latency_us), dtype=trust.RECORD)
    out["due_ns"] = np.arange(len(latency_us)) * (1e9 / rate)
    finite = np.isfinite(latency_us)
    out["latency_ns"][finite] = latency_us[finite] * 1e3
    out["latency_ns"][~finite] = trust.UNANSWERED
    return out


def exponential(n: int = N, seed: int = 1) -> np.ndarray:
    return 50 + 20 * np.random.default_rng(seed).exponential(size=n)


def walk(n: int, pull: float, seed: int = 1) -> np.ndarray:
    """An autoregressive series about 100: pull 1 is a random walk."""
    steps = np.random.default_rng(seed).normal(size=n)
    out = np.zeros(n)
    for i in range(1, n):
        out[i] = pull * out[i - 1] + steps[i]
    return 100 + out - min(out.min(), -50)


def hist_of(latency_us: np.ndarray) -> Hist:
    out = Hist()
    out.record_all(int(v * 1e3) for v in latency_us if math.isfinite(v))
    out.record_infinite(int(np.sum(~np.isfinite(latency_us))))
    return out


def found(latency_us: np.ndarray, **changes: object) -> set[str]:
    """The checks that speak against a run."""
    hist, lag = hist_of(latency_us), Hist()
    lag.record(100, N)
    seen = trust.samples(records(latency_us), len(latency_us))
    given = {
        "seen": seen,
        "found": records(latency_us),
        "latency": hist,
        "lag": lag,
        "counts": CLEAN,
        "offered": 10_000.0,
        "achieved": 10_000.0,
        "carried": True,
    }
    return {doubt.check for doubt in trust.doubts(**given | changes)}


def test_nothing_speaks_against_independent_samples():
    assert found(exponential()) == set()


def test_spearman_is_scipys():
    stats = pytest.importorskip("scipy.stats", reason="needs scipy: pip install 'corelane[test]'")
    rng = np.random.default_rng(3)
    for ties in (1, 7, 1000):
        a = rng.integers(0, ties, size=500).astype(float)
        b = a + rng.integers(0, 50, size=500)
        expected = stats.spearmanr(a, b).statistic if ties > 1 else 0.0
        assert trust.spearman(a, b) == pytest.approx(expected)


def test_neighbours_that_depend_are_counted_once():
    latency = walk(N, 0.9)
    seen = trust.samples(records(latency), N)
    assert seen.correlation == pytest.approx(0.9, abs=0.03)
    assert 16 <= seen.independent_from <= 32  # 0.9^22 is 0.1
    assert seen.n == pytest.approx(N / seen.independent_from)
    assert "samples" not in found(latency)  # there are enough of them


def test_samples_that_always_depend():
    assert "samples" in found(walk(N, 0.9999))


def test_blocks_are_not_neighbours():
    """Records are kept in blocks: what ends one and what begins the next are far apart."""
    latency = np.repeat([50.0, 60.0], trust.BLOCK) + np.random.default_rng(1).exponential(size=2 * trust.BLOCK)
    a, b = trust._pairs(records(latency), 1)
    assert len(a) == len(b) == 2 * (trust.BLOCK - 1)
    assert (np.abs(a - b) < 20_000).all()


def test_too_few_for_the_percentile():
    assert found(exponential(300)) == {"samples"}
    assert found(exponential(300), asked=0.9) == set()
    assert found(exponential(3000), asked=0.999) == {"samples"}


@pytest.mark.parametrize("q", [0.5, 0.9, 0.99, 0.999])
def test_an_interval_has_an_upper_end_from_the_needed_number_on(q: float):
    hist = hist_of(exponential())
    assert math.isfinite(trust.interval(hist, q, trust.needed(q) + 1)[1])
    assert not math.isfinite(trust.interval(hist, q, trust.needed(q) - 2)[1])


def test_intervals_hold_the_true_percentile_19_times_of_20():
    rng, true = np.random.default_rng(5), 1e5 * -math.log(0.01)
    held = 0
    for _ in range(200):
        hist = Hist()
        hist.record_all(int(v) for v in 1e5 * rng.exponential(size=2000))
        low, high = trust.interval(hist, 0.99, 2000)
        held += low <= true <= high
    assert 180 <= held <= 200


def test_drift_and_steps_are_not_stationary():
    assert found(exponential() + np.linspace(0, 30, N)) >= {"stationary"}
    assert found(exponential() + np.where(np.arange(N) < N / 2, 0, 30)) >= {"stationary"}


def test_few_samples_show_a_drift_of_half():
    assert found(exponential(2000) * np.linspace(1, 1.5, 2000)) >= {"stationary"}


def test_two_kinds_of_requests_are_stationary():
    """Of as many of each the median is that of one kind or of the other, by chance."""
    alarms = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        kinds = np.where(rng.random(1000) < 0.5, 50.0, 500.0) + rng.exponential(5, 1000)
        alarms += "stationary" in found(kinds)
    assert alarms <= 4


def test_a_random_walk_has_a_unit_root():
    statistic, critical = trust.dickey_fuller(np.log(walk(5000, 1.0)))
    assert critical == pytest.approx(-2.862, abs=0.002)
    assert statistic > critical
    statistic, critical = trust.dickey_fuller(np.log(exponential(5000)))
    assert statistic < critical


def test_constant_and_short_series_have_no_statistic():
    assert math.isnan(trust.dickey_fuller(np.ones(1000))[0])
    assert math.isnan(trust.dickey_fuller(exponential(20))[0])
    assert found(np.full(N, 80.0)) == set()


def test_a_late_generator_is_told():
    lag = Hist()
    lag.record(30_000, N)
    assert found(exponential(), lag=lag) == {"generator"}


def test_unanswered_requests_are_told():
    latency = exponential()
    latency[::1000] = np.inf
    counts = CLEAN | {"answered": N - N // 1000, "errors": N // 1000}
    texts = trust.doubts(
        seen=trust.samples(records(latency), N),
        found=records(latency),
        latency=hist_of(latency),
        lag=hist_of(np.full(9, 0.1)),
        counts=counts,
        offered=1.0,
        achieved=1.0,
        carried=True,
    )
    assert [d.text for d in texts] == ["20 of 20,000 requests (0.1 %) have no right answer: 20 with an error"]


def test_what_became_of_requests_without_an_answer_is_told():
    came = {"sent": 9, "dropped": 1, "answered": 0, "wrong": 1, "broken": 5, "timeouts": 2, "refused": 7}
    (doubt,) = trust.doubts(
        seen=trust.samples(trust.latencies(b""), 0),
        found=trust.latencies(b""),
        latency=Hist(),
        lag=Hist(),
        counts=CLEAN | {"offered": 10} | came,
        offered=1.0,
        achieved=0.0,
        carried=False,
    )
    assert doubt.text == (
        "none of 10 requests has a right answer: 1 never sent, as no connection was free, 1 with a wrong answer, "
        "3 cut off by the server, 2 given up after --timeout, 3 unanswered when the load ended, "
        "connecting failed 7 times: look whether the server still runs"
    )


def test_loads_that_are_not_the_ones_asked_for():
    assert found(exponential(), counts=CLEAN | {"misses": N // 50}) == {"load"}
    assert found(exponential(), carried=False, achieved=8000.0) == {"load"}
    assert found(exponential(), counts=CLEAN | {"answered": 0}) == {"load"}


def test_what_the_machine_and_the_client_make():
    assert found(exponential(), explained=["p999"]) == {"machine"}
    assert found(exponential(), share_us={"p50": 40.0}, point_us={"p50": 60.0}) == {"machine"}
    assert found(exponential(), share_us={"p50": 10.0}, point_us={"p50": 60.0}) == set()


def test_no_records_are_no_reason():
    assert trust.samples(trust.latencies(b""), 1000) == trust.Samples(0.0, 1, 1000)
