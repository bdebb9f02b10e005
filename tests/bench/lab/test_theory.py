"""The engine against queueing theory: every case, with fewer jobs than `corelane bench lab` gives it."""

import numpy as np
import pytest

from corelane.bench.lab import studies, theory
from corelane.bench.sim import formulas

CASES = {case.name: case for case in theory.cases()}


@pytest.mark.parametrize("name", CASES)
def test_mean_times_are_those_of_the_formulas(name):
    for one in theory.check(CASES[name], 60_000, seed=7):
        assert abs(one.error) < max(4 * one.standard_error, 0.005), one
        assert one.standard_error < 0.06


def test_an_engine_that_is_wrong_is_found():
    """The same jobs, held against the formula of a load a tenth higher."""
    case = CASES["M/M/4"]
    wrong = theory.Case(case.name, 4, case.service, "fifo", (1 + formulas.mean_wait_mmn(4, 3.1, 1.0),))
    (one,) = theory.check(wrong, 60_000, seed=7)
    assert abs(one.error) > 4 * one.standard_error


@pytest.mark.parametrize(
    ("errors", "doubtful"), [([0.009], True), ([0.002], False), ([-0.011], True), ([0.03], False), ([0.009] * 9, True)]
)
def test_a_class_is_in_doubt_while_its_interval_has_the_goal_in_it(errors, doubtful):
    one = studies._Class("M/M/1")
    one.runs = [theory.Checked("M/M/1", 0, error, 0.002, 1000) for error in errors]
    assert (one.undecided > 0) is doubtful
    assert one.standard == pytest.approx(0.002 / len(errors) ** 0.5)


def test_controls_take_out_the_sampling_error_that_they_explain():
    rng = np.random.default_rng(1)
    control = rng.standard_normal(20_000)
    values = 5.0 + 3.0 * control + 0.01 * rng.standard_normal(20_000)
    every = np.ones(20_000, bool)
    mean, error = theory.corrected(values, every, [control])
    assert abs(mean - 5.0) < 0.001
    assert error < 0.001
    plain, plain_error = theory.corrected(values, every, [])
    assert plain_error > 0.01
    assert plain == pytest.approx(values.mean(), rel=1e-9)


def test_priorities_share_the_waiting_of_one_queue():
    """Kleinrock's conservation law: weighted by rates, waits of non-preemptive classes sum to those without classes."""
    rates = [0.5, 0.8, 1.2]
    waits = formulas.mean_waits_priority(4, rates, 1.0)
    together = sum(rate * wait for rate, wait in zip(rates, waits, strict=True)) / sum(rates)
    assert together == pytest.approx(formulas.mean_wait_mmn(4, sum(rates), 1.0))
    assert waits == sorted(waits)
    times = formulas.mean_sojourns_preemptive(4, rates, 1.0)
    assert times[0] == pytest.approx(1 + formulas.mean_wait_mmn(4, rates[0], 1.0))
