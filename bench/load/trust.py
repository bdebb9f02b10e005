"""Why a result is not to be trusted: the checks that Lancet makes (Kogias, Mallon, Bugnion, "Lancet: a self-correcting
latency measuring tool", USENIX ATC 2019, section 4), and those of this project's own rules.

    samples     are neighbours independent? Spearman's rank correlation at growing distances says from which one on
                they are. Intervals count only so many samples, and a percentile needs enough of them.
    stationary  does the latency wander? The augmented Dickey-Fuller test on the samples, and beside it, since that one
                takes a slow drift among much noise for no drift, the medians and ranks of ten parts of the run.
    generator   did the requests leave when they were due? Its own delays against the latency, at each percentile.
    load        was everything answered, and at the rate that was asked for?
    machine     do the canary's gaps, or the client's own share, make most of what was measured?

Records (struct cl_sockload_record) are what the first two look at. Importing this imports numpy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...runtime.hist import Hist
from ..harness.numbers import PERCENTILES
from ..harness.table import quantity

Array = NDArray[Any]

Z95 = 1.959964  # of the normal distribution, for 95 %
RECORD = np.dtype(
    [("due_ns", "u8"), ("latency_ns", "u8"), ("lag_ns", "u4"), ("worker", "u2"), ("op", "u2")], align=True
)
UNANSWERED = np.iinfo(np.uint64).max
BLOCK = 1024  # records that follow one another, CL_SOCKLOAD_BLOCK
DISTANCES = tuple(2**i for i in range(10))
DEPENDENT = 0.1  # a smaller correlation changes no interval by much
PARTS, DRIFT, DRIFT_US = 10, 0.1, 2.0
ADF_SAMPLES, ADF_LAGS = 5000, 10
LEAST_SAMPLES = 200  # of which the tests say anything
LAG_SHARE = 0.1
MISSES_MOST = 0.01
SHARE_MOST = 0.5
# MacKinnon, "Critical values for cointegration tests", Queen's University 1227 (2010), table 2: 5 %, constant.
ADF_CRITICAL = (-2.86154, -2.8903, -4.234, -40.040)


@dataclass(frozen=True)
class Doubt:
    """One reason. check: samples, stationary, generator, load, machine. text: a sentence for a person."""

    check: str
    text: str


@dataclass(frozen=True)
class Samples:
    """What the records say. independent_from: neighbours so far apart are independent; 0: not even the farthest looked
    at. n: independent samples in the whole run."""

    correlation: float
    independent_from: int
    n: float


def _ranks(values: Array) -> Array:
    """Ranks, ties given their mean."""
    _, where, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    out: Array = (ends - (counts - 1) / 2)[where]
    return out


def spearman(a: Array, b: Array) -> float:
    """Spearman's rank correlation of pairs; 0 if one of both is constant."""
    ra, rb = _ranks(a), _ranks(b)
    ra, rb = ra - ra.mean(), rb - rb.mean()
    size = math.sqrt(float(ra @ ra) * float(rb @ rb))
    return float(ra @ rb) / size if size else 0.0


def latencies(records: bytes) -> Array:
    """The records as an array, in the order of due times within each worker."""
    return np.frombuffer(records, dtype=RECORD)


def _finite(found: Array) -> Array:
    """Latencies in ns; what was not answered is slower than all that was."""
    out: Array = found["latency_ns"].astype(np.float64)
    out[found["latency_ns"] == UNANSWERED] = np.inf
    return out


def _pairs(found: Array, distance: int) -> tuple[Array, Array]:
    """Latencies of requests `distance` apart, of one worker and one block."""
    values, blocks = _finite(found), np.arange(len(found)) // BLOCK
    same = (blocks[distance:] == blocks[:-distance]) & (found["worker"][distance:] == found["worker"][:-distance])
    return values[:-distance][same], values[distance:][same]


def samples(found: Array, answered: int) -> Samples:
    """How many independent samples `answered` requests are, by the records."""
    if len(found) < LEAST_SAMPLES:
        return Samples(0.0, 1, answered)
    first = 0.0
    for distance in DISTANCES:
        a, b = _pairs(found, distance)
        if len(a) < LEAST_SAMPLES // 2:
            break
        rho = spearman(a, b)
        first = rho if distance == 1 else first
        if abs(rho) < max(DEPENDENT, Z95 / math.sqrt(len(a))):
            return Samples(first, distance, answered / distance)
    return Samples(first, 0, answered / DISTANCES[-1])


def dickey_fuller(series: Array, lags: int = ADF_LAGS) -> tuple[float, float]:
    """The augmented Dickey-Fuller statistic with a constant, and its critical value at 5 %: a series whose statistic is
    below that has no unit root (Dickey and Fuller, JASA 74, 1979). Both nan if the series is constant or short."""
    n = len(series) - 1 - lags
    if n < 3 * lags or np.ptp(series) == 0:
        return math.nan, math.nan
    steps = np.diff(series)
    columns = [np.ones(n), series[lags:-1], *(steps[lags - k : len(steps) - k] for k in range(1, lags + 1))]
    design, target = np.column_stack(columns), steps[lags:]
    solved, _, rank, _ = np.linalg.lstsq(design, target, rcond=None)
    if rank < design.shape[1]:
        return math.nan, math.nan
    left = target - design @ solved
    variance = float(left @ left) / (n - design.shape[1])
    spread = math.sqrt(variance * float(np.linalg.inv(design.T @ design)[1, 1]))
    a, b, c, d = ADF_CRITICAL
    return (float(solved[1]) / spread if spread else math.nan), a + b / n + c / n**2 + d / n**3


def _ranks_drift(answered: Array) -> bool:
    """Whether the second half's ranks are others than the first's, by three standard errors. The median of two kinds
    of requests, as many of each, is now that of the one and now that of the other: their ranks stay."""
    ranks = _ranks(answered["latency_ns"])
    means = np.array([part.mean() for part in np.array_split(ranks, PARTS)]).reshape(2, -1)
    before, after = means.mean(axis=1)
    return bool(abs(after - before) > 3 * math.sqrt(means.var(axis=1, ddof=1).sum() / means.shape[1]))


def _wanders(found: Array) -> str:
    """Why the latency is not stationary; empty if it is, as far as can be seen."""
    answered = found[found["latency_ns"] != UNANSWERED]
    answered = answered[np.argsort(answered["due_ns"], kind="stable")]
    if len(answered) < LEAST_SAMPLES:
        return ""
    parts = [np.median(part["latency_ns"]) / 1e3 for part in np.array_split(answered, PARTS)]
    half = PARTS // 2
    before, after = float(np.median(parts[:half])), float(np.median(parts[half:]))
    drift = after - before
    if abs(drift) > max(DRIFT * before, DRIFT_US) and _ranks_drift(answered):
        return f"the median goes from {quantity(before)} us in the first half to {quantity(after)} us in the second"
    step = max(len(answered) // ADF_SAMPLES, 1)
    statistic, critical = dickey_fuller(np.log(np.maximum(answered["latency_ns"][::step].astype(np.float64), 1.0)))
    if statistic > critical:
        return f"the augmented Dickey-Fuller test finds a unit root ({statistic:.2f}, critical {critical:.2f} at 5 %)"
    return ""


def interval(hist: Hist, q: float, n: float) -> tuple[float, float]:
    """Between which values the q quantile lies with 95 %, in the histogram's unit, from n independent samples: order
    statistics, whose ranks are binomial. The upper end is infinite if the samples do not reach so far."""
    if n <= 0:
        return math.nan, math.nan
    away = Z95 * math.sqrt(q * (1 - q) / n)
    high = hist.percentile(100 * (q + away)) if q + away < 1 else math.inf
    return hist.percentile(100 * max(q - away, 0.0)), high


def needed(q: float) -> int:
    """Independent samples from which the interval of quantile q has an upper end."""
    return math.ceil(Z95**2 * q / (1 - q)) + 1


def _of_samples(seen: Samples, asked: float) -> list[Doubt]:
    out = []
    if seen.independent_from == 0:
        text = (
            f"samples depend on one another even {DISTANCES[-1]} requests apart (Spearman {seen.correlation:.2f} "
            "between neighbours): the intervals are too narrow; load it longer, or at a lower rate"
        )
        out.append(Doubt("samples", text))
    few = [q for _, q in PERCENTILES if q <= asked and seen.n < needed(q)]
    if few:
        q = few[-1]
        apart = f", {seen.independent_from} requests apart" if seen.independent_from > 1 else ""
        text = (
            f"p{100 * q:g} needs {needed(q):,} independent samples, and there are {seen.n:,.0f}{apart}: load it longer"
        )
        out.append(Doubt("samples", text))
    return out


def _of_generator(lag: Hist, latency: Hist, asked: float) -> list[Doubt]:
    for name, q in PERCENTILES:
        own, whole = lag.percentile(100 * q), latency.percentile(100 * q)
        if q <= asked and math.isfinite(whole) and own > max(LAG_SHARE * whole, 1000):
            text = (
                f"the generator itself was late: at {name.replace('p999', 'p99.9')} its requests left "
                f"{quantity(own / 1e3)} us after their time, of {quantity(whole / 1e3)} us in all; give it --threads, "
                "a CPU of its own, or a lower rate"
            )
            return [Doubt("generator", text)]
    return []


def _what_became(counts: Mapping[str, int]) -> str:
    """Of requests without a right answer, behind a sentence that says how many they are."""
    came = sum(counts[k] for k in ("answered", "wrong", "errors", "broken"))
    told = {
        "never sent, as no connection was free": counts["dropped"],
        "with a wrong answer": counts["wrong"],
        "with an error": counts["errors"],
        "cut off by the server": counts["broken"] - counts["timeouts"],
        "given up after --timeout": counts["timeouts"],
        "unanswered when the load ended": counts["sent"] - came,
    }
    why = [f"{n:,} {what}" for what, n in told.items() if n > 0]
    if counts["refused"]:
        why.append(f"connecting failed {counts['refused']:,} times: look whether the server still runs")
    return f": {', '.join(why)}" if why else ""


def _of_load(counts: Mapping[str, int], offered: float, achieved: float, carried: bool) -> list[Doubt]:
    out = []
    lost = counts["offered"] - counts["answered"]
    if lost:
        share = lost / counts["offered"]
        text = f"{lost:,} of {counts['offered']:,} requests ({100 * share:.3g} %) have no right answer"
        out.append(Doubt("load", text + _what_became(counts)))
    if counts["misses"] > MISSES_MOST * counts["answered"]:
        share = 100 * counts["misses"] / counts["answered"]
        text = f"{share:.3g} % of the answers are misses (of HTTP: redirects): a miss is another request than a hit"
        out.append(Doubt("load", text))
    if not carried and not lost:
        text = (
            f"the load was not carried: {achieved:,.0f} answers/s to {offered:,.0f} requests/s; latency grows with time"
        )
        out.append(Doubt("load", text))
    return out


def _of_machine(explained: Sequence[str], share_us: Mapping[str, float], point: Mapping[str, float]) -> list[Doubt]:
    out = []
    if explained:
        names = ", ".join(name.replace("p999", "p99.9") for name in explained)
        out.append(Doubt("machine", f"this machine's own gaps make half of {names} or more (see the canary)"))
    for name, own in share_us.items():
        whole = point.get(name, math.nan)
        if math.isfinite(whole) and own > SHARE_MOST * whole:
            text = (
                f"the client and this machine's network stack alone take {quantity(own)} us at "
                f"{name.replace('p999', 'p99.9')} (against a reflector), of {quantity(whole)} us in all"
            )
            return [*out, Doubt("machine", text)]
    return out


def doubts(
    *,
    seen: Samples,
    found: Array,
    latency: Hist,
    lag: Hist,
    counts: Mapping[str, int],
    offered: float,
    achieved: float,
    carried: bool,
    asked: float = 0.99,
    explained: Sequence[str] = (),
    share_us: Mapping[str, float] | None = None,
    point_us: Mapping[str, float] | None = None,
) -> list[Doubt]:
    """All reasons against a result. asked: the highest quantile that the reader wants to know."""
    if not counts["answered"]:
        return [Doubt("load", f"none of {counts['offered']:,} requests has a right answer{_what_became(counts)}")]
    wanders = _wanders(found)
    stationary: list[Any] = [Doubt("stationary", f"the latency is not stationary: {wanders}")] if wanders else []
    return [
        *_of_load(counts, offered, achieved, carried),
        *stationary,
        *_of_samples(seen, asked),
        *_of_generator(lag, latency, asked),
        *_of_machine(explained, share_us or {}, point_us or {}),
    ]
