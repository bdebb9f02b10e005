"""How the overheads of kernels become figures."""

from __future__ import annotations

import time
from typing import Any

import pytest

from corelane.bench._native import lib
from corelane.bench.harness.session import Session
from corelane.bench.probes import probes
from corelane.bench.probes.kernels import kernels
from corelane.runtime.errors import CorelaneError


def rows(ratios: dict[str, tuple[float, float]]) -> list[dict[str, Any]]:
    """By kernel: probed over plain in the first rounds (0.005 less in all), and the control over plain."""
    return [
        {"name": name, "probed_over_plain": a - 0.005, "first_rounds": a, "control": b, "gap_p99_us": 1.0}
        for name, (a, b) in ratios.items()
    ]


def test_the_mean_is_without_kernels_that_probes_made_faster_and_the_one_with_them_stands_beside() -> None:
    session = Session("probes", seconds=0.1)
    some = rows({"matmul": (1.04, 1.01), "sieve": (0.07, 0.98), "hash": (1.0, 1.02)})
    probes._figures(session, some)
    figure, worst = session.figures["probes.overhead_geomean"], session.figures["probes.overhead_worst"]
    assert figure["value"] == pytest.approx(1.04**0.5 - 1)
    again = pytest.approx((1.01 * 1.02) ** (1 / 3) - 1)
    even = pytest.approx(1.04 ** (1 / 3) - 1)
    assert figure["beside"] == {"with sieve as even": even, "plain code compiled again": again}
    assert worst["value"] == pytest.approx(0.035), "of all rounds"
    assert worst["beside"] == {"plain code compiled again": pytest.approx(0.02)}
    probes._figures(session, some[:1])
    assert list(session.figures["probes.overhead_geomean"]["beside"]) == ["plain code compiled again"]
    probes._figures(session, some[1:2])
    assert session.figures["probes.overhead_geomean"]["value"] is None


@pytest.mark.parametrize(("control", "faster"), [(0.999, ["a", "b"]), (1.015, ["a"]), (0.8, ["a"])])
def test_a_kernel_is_faster_if_it_is_so_by_more_than_the_control_or_by_3_per_cent(
    control: float, faster: list[str]
) -> None:
    some = rows({"a": (0.97, 1.0), "b": (0.995, 1.0), "c": (1.02, control)})
    assert probes._faster(some) == faster


class Runs(probes.Measured):
    """Whose arms take what a list says, for as many rounds as it is asked for."""

    def __init__(self, name: str, ratios: list[float]) -> None:
        self.ratios, self.asked = iter(ratios), 0
        took = {("plain", (0, False)): [1000], (probes.BATCH, (0, False)): [int(1000 * next(self.ratios))]}
        super().__init__(name, {}, took, 1.0, {})

    def more(self, seconds: float) -> None:
        self.asked += 1
        time.sleep(min(seconds, 0.001))
        for _ in range(2):
            self.took["plain", (0, False)].append(1000)
            self.took[probes.BATCH, (0, False)].append(int(1000 * next(self.ratios)))


def test_the_rest_of_the_time_goes_to_the_dearest_with_all_rounds_counted() -> None:
    """A kernel whose first rounds were chance is left once more rounds say so; one that is dear is looked at on."""
    chance, dear, cheap = Runs("a", [1.2, *[1.0] * 10_000]), Runs("b", [1.05] * 10_000), Runs("c", [1.01] * 10_000)
    probes._look_closer([chance, dear, cheap], 0.2)
    assert chance.asked == 1
    assert dear.asked >= 1
    assert cheap.asked == 0
    assert (chance.over_plain(probes.BATCH).median, chance.first) == (1.0, 1.2)


def test_kernels_are_chosen_by_name() -> None:
    every = kernels()
    assert probes._chosen(every, None) == every
    assert [kernel.name for kernel in probes._chosen(every, "walk,pairs")] == ["walk", "pairs"]
    with pytest.raises(CorelaneError, match=r"no 'pear'.*matmul"):
        probes._chosen(every, "pear")


def test_gaps_are_noted_of_one_call_at_least() -> None:
    """As where the machine took all the time of a short run before the first."""
    gaps, taken = probes._gaps(lambda: lib.cl_bench_gaps_repeat(10), 0.0)
    assert taken == len(gaps) > 0
