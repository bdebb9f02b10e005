"""How the overheads of kernels become figures."""

from __future__ import annotations

import pytest

from corelane.bench import probes
from corelane.bench.harness.session import Session
from corelane.bench.probes_kernels import kernels
from corelane.runtime.errors import CorelaneError


def test_a_kernel_that_is_faster_with_probes_counts_as_even_and_the_mean_without_it_stands_beside() -> None:
    session = Session("probes", seconds=0.1)
    ratios = {"matmul": 1.04, "sieve": 0.07, "hash": 1.0}
    rows = [{"name": name, "probed_over_plain": ratio, "gap_p99_us": 1.0} for name, ratio in ratios.items()]
    probes._figures(session, rows)
    figure = session.figures["probes.overhead_geomean"]
    assert figure["value"] == pytest.approx(1.04 ** (1 / 3) - 1)
    assert figure["beside"] == {"without sieve": pytest.approx(1.04**0.5 - 1)}
    assert session.figures["probes.overhead_worst"]["value"] == pytest.approx(0.04)
    probes._figures(session, rows[:1])
    assert "beside" not in session.figures["probes.overhead_geomean"]


def test_kernels_are_chosen_by_name() -> None:
    every = kernels()
    assert probes._chosen(every, None) == every
    assert [kernel.name for kernel in probes._chosen(every, "walk,pairs")] == ["walk", "pairs"]
    with pytest.raises(CorelaneError, match=r"no 'pear'.*matmul"):
        probes._chosen(every, "pear")
