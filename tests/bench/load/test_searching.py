"""Sweeps and the search for a limit, on servers whose latency is a formula."""

from __future__ import annotations

import math

import numpy as np
import pytest

from corelane.bench.harness.openloop import Point
from corelane.bench.load.measuring import Measured
from corelane.bench.load.searching import Found, Limit, Swept, in_turns, next_rate, rates, search, sweep
from corelane.bench.load.sockload.sockload import COUNTS, Result
from corelane.bench.load.trust import Samples, interval
from corelane.runtime.hist import Hist

PEAK = 50_000.0


class Formula:
    """An M/M/1 queue's latency at each rate, drawn by a seed; nothing is carried from PEAK on."""

    def __init__(self, seed: int = 1, n: int = 2000) -> None:
        self.random = np.random.default_rng(seed)
        self.n = n
        self.asked: list[float] = []

    def __call__(self, rate: float) -> Measured:
        self.asked.append(rate)
        carried = rate < PEAK
        mean_ns = 1e9 / (PEAK - rate) if carried else 1e9
        hist = Hist()
        hist.record_all(int(v) + 1 for v in mean_ns * self.random.exponential(size=self.n))
        point = Point(
            rate, rate if carried else PEAK, self.n, self.n if carried else self.n // 2, seconds=1.0, hist=hist
        )
        point.seconds = self.n / rate
        point.set_percentiles(hist)
        result = Result(rate, 1.0, dict.fromkeys(COUNTS, self.n), hist, hist, Hist(), {})
        between = interval(hist, 0.99, self.n)
        return Measured(point, result, Samples(0.0, 1, self.n), {"p99": (between[0] / 1e3, between[1] / 1e3)})


def true_border(limit: Limit) -> float:
    """Where p99 of M/M/1 is the limit."""
    return PEAK + math.log(1 - limit.q) / (limit.us / 1e6)


def nobody(measured: Measured) -> None:
    pass


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("us", [150.0, 1000.0])
def test_the_search_finds_the_border_and_its_interval_holds_it(seed: int, us: float):
    limit, server = Limit(0.99, us), Formula(seed)
    found = Found(limit)
    in_turns([search(server, 500, 1e6, limit, 40, nobody, found)])
    border = true_border(limit)
    assert found.keeps_rps < border * 1.02
    assert found.breaks_rps > border * 0.98
    assert found.keeps_rps > 0.7 * border
    assert found.breaks_rps < 1.3 * border
    assert f"kept up to {found.keeps_rps:,.0f} requests/s" in str(found)


def test_no_rate_keeps_an_impossible_limit():
    found = Found(Limit(0.99, 1.0))
    in_turns([search(Formula(), 1000, 1e6, found.limit, 40, nobody, found)])
    assert found.keeps_rps == 0
    assert str(found).startswith("no rate that was tried keeps p99 of 1 us at most")


def test_few_samples_keep_nothing_and_that_is_said():
    found = Found(Limit(0.99, 1000.0))
    in_turns([search(Formula(n=20), 1000, 4000, found.limit, 40, nobody, found)])
    assert found.keeps_rps == 0
    assert "of 3 rates the samples do not say" in str(found)


def test_the_highest_rate_asked_for_may_keep_it():
    found = Found(Limit(0.99, 1e6))
    in_turns([search(Formula(), 1000, 8000, found.limit, 40, nobody, found)])
    assert found.keeps_rps == 8000
    assert math.isinf(found.breaks_rps)
    assert "the highest rate that was asked for keeps it" in str(found)


def test_tries_end_a_search():
    server, found = Formula(), Found(Limit(0.99, 150.0))
    in_turns([search(server, 500, 1e6, found.limit, 3, nobody, found)])
    assert len(server.asked) == 3
    assert "3 loads did not come closer" in found.why


def test_where_to_look_next():
    assert next_rate(0, math.inf, [], 100, 1000) == 100
    assert next_rate(100, math.inf, [], 100, 1000) == 200
    assert next_rate(800, math.inf, [], 100, 1000) == 1000
    assert next_rate(1000, math.inf, [], 100, 1000) is None
    assert next_rate(100, 200, [], 100, 1000) == 150
    assert next_rate(100, 104, [], 100, 1000) is None
    assert next_rate(100, 200, [150], 100, 1000) == 125
    assert next_rate(148, 200, [150], 100, 1000) == 175
    assert next_rate(0, 100, [], 100, 1000) == 50
    assert next_rate(0, 1, [], 100, 1000) is None


def test_a_sweep_ends_at_the_second_failure_and_says_why_the_first():
    server, out = Formula(), Swept()
    in_turns([sweep(server, [10_000, 40_000, 60_000, 80_000, 100_000], None, nobody, out)])
    assert server.asked == [10_000, 40_000, 60_000, 80_000]
    assert "60,000 requests/s offered" in out.stop


def test_a_sweep_ends_at_its_limit():
    server, out = Formula(), Swept()
    in_turns([sweep(server, [1000, 20_000, 40_000, 45_000, 48_000], Limit(0.99, 300.0), nobody, out)])
    assert server.asked == [1000, 20_000, 40_000, 45_000]
    assert out.stop.startswith("p99 is ")
    assert "over 300 us" in out.stop


def test_a_sweep_may_come_to_its_end():
    server, out = Formula(), Swept()
    in_turns([sweep(server, rates(1000, 16_000, 5), None, nobody, out)])
    assert server.asked == pytest.approx([1000, 2000, 4000, 8000, 16_000])
    assert "16,000 requests/s, was carried" in out.stop


class Noted(Formula):
    """One of two servers that are loaded in turns. left: loads until somebody interrupts."""

    def __init__(self, name: str, order: list[str], left: int = 1000) -> None:
        super().__init__()
        self.name, self.order, self.left = name, order, left

    def __call__(self, rate: float) -> Measured:
        measured = super().__call__(rate)
        self.order.append(self.name)
        self.left -= 1
        measured.result.aborted = self.left == 0
        return measured


def test_sweeps_of_two_servers_take_turns():
    order: list[str] = []
    one, other = Swept(), Swept()
    long, short = [1000, 2000, 4000, 8000], [1000, 2000]
    in_turns([sweep(Noted("a", order), long, None, nobody, one), sweep(Noted("b", order), short, None, nobody, other)])
    assert "".join(order) == "ababaa"
    assert "8,000 requests/s, was carried" in one.stop
    assert "2,000 requests/s, was carried" in other.stop


def test_an_interrupt_ends_the_sweeps_of_both():
    order: list[str] = []
    one, other = Swept(), Swept()
    ladder = [1000, 2000, 4000, 8000]
    in_turns(
        [sweep(Noted("a", order, 2), ladder, None, nobody, one), sweep(Noted("b", order), ladder, None, nobody, other)]
    )
    assert "".join(order) == "aba"
    assert one.stop == other.stop == "it was interrupted"


def test_an_interrupt_before_the_second_server_leaves_it_untried():
    limit = Limit(0.99, 1000.0)
    one, other = Found(limit), Found(limit)
    servers = [(Noted("a", [], 1), one), (Noted("b", []), other)]
    in_turns([search(server, 500, 1e6, limit, 40, nobody, found) for server, found in servers])
    assert "it was interrupted" in str(one)
    assert str(other) == "nothing was tried for p99 of 1,000 us at most"


def test_an_interrupt_ends_the_searches_of_both():
    order: list[str] = []
    limit = Limit(0.99, 1000.0)
    one, other = Found(limit), Found(limit)
    in_turns(
        [
            search(Noted("a", order, 2), 500, 1e6, limit, 40, nobody, one),
            search(Noted("b", order), 500, 1e6, limit, 40, nobody, other),
        ]
    )
    assert "".join(order) == "aba"
    assert one.why == other.why == "it was interrupted"
