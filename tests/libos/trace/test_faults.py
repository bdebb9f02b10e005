"""Page faults of handlers as a stage (faults.py), on records with known ones."""

from __future__ import annotations

import numpy
import pytest
from maderequests import HZ, NAMES, Made

from corelane.libos.trace import faults
from corelane.libos.trace.blame import of_service
from corelane.libos.trace.stages import FAULTS, RUNS, Table, table

SLOW_US = 200.0


def made(n: int, some: int = 50) -> Made:
    """On one kthread, each `some`-th one slow."""
    of = Made(n, 1)
    of.kthread[:] = 0
    of.us["runs"][::some] += SLOW_US
    return of


def seen(of: Made, n_faults: int, fault_us: float, some: int = 50) -> Table:
    records = of.records()
    records.messages["faults"][::some] = n_faults
    out = table(records, NAMES, HZ, fault_us)
    assert numpy.allclose(numpy.sum(list(out.stages.values()), axis=0), out.total)
    return out


def test_blame_goes_down_to_page_faults() -> None:
    found = of_service(seen(made(3000), 250, 1.0), "UDP 9000", 0.99)
    assert found is not None
    assert found.first == FAULTS
    assert found.alone
    assert found.cause is not None
    assert found.cause.word == "page faults"


def test_where_they_cost_less_than_most_the_handler_has_the_rest() -> None:
    found = of_service(seen(made(3000), 100, 1.0), "UDP 9000", 0.99)
    assert found is not None
    assert found.first == ("handler",)
    assert {path for path, _ in found.shares} >= {RUNS, FAULTS}
    assert found.cause is not None
    assert found.cause.word == "page faults"


def test_they_are_shared_out_by_what_ran_since_the_slow_one_before() -> None:
    of = made(500)
    of.us["runs"][:] = 10.0
    of.us["runs"][::50] = 510.0  # and 49 others, 490 us in all
    out = seen(of, 100, 1.0)
    assert out.stages[FAULTS][50::50] == pytest.approx(51, rel=0.02)  # one ends in front of, or behind, another
    assert not out.stages[FAULTS][1:50].any()


def test_a_handler_has_no_more_than_it_ran_and_without_a_cost_there_is_no_stage() -> None:
    out = seen(made(500), 10**6, 1.0)
    assert (out.stages[FAULTS] <= 2 * SLOW_US).all()
    assert (out.stages[RUNS] >= 0).all()
    assert FAULTS not in seen(made(500), 100, 0.0).stages
    assert FAULTS not in seen(made(500), 0, 1.0).stages


def test_what_one_costs_is_measured_once() -> None:
    assert faults.cost_us() >= 0
    assert faults.cost_us() is faults.cost_us()
