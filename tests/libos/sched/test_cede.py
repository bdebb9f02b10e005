"""Cores that are given and taken, from the application's side. c/cede.c says what each scenario does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

SCENARIOS = (
    "first_core",
    "asked_yield",
    "asked_probe",
    "asked_no_switch",
    "resumed_elsewhere",
    "interrupted",
    "holds_lock",
    "registers_range",
    "registers_mark",
    "in_handler",
    "timers",
    "positions",
    "stop_without_core",
    "death_yield",
    "death_probe",
    "death_in_place",
)


@pytest.mark.parametrize("yield_wait", [0, 1], ids=["asleep", "yield-wait"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_cores_given_and_taken(c_program: Callable[..., Callable[..., str]], scenario: str, yield_wait: int) -> None:
    c_program("tests/libos/sched/c/cede.c")(scenario, yield_wait)


@pytest.mark.parametrize(
    "scenario",
    ["sleeps_without_core", "parks_before_it_polls", "asked", "interrupted", "roused", "iokernel_dies", "stopped"],
)
def test_cores_of_an_adopted_kthread(c_program: Callable[..., Callable[..., str]], scenario: str) -> None:
    c_program("tests/libos/sched/c/adopt_cores.c")(scenario)


@pytest.mark.parametrize("yield_wait", [0, 1], ids=["asleep", "yield-wait"])
def test_frames_not_sent_bring_a_core_back(c_program: Callable[..., Callable[..., str]], yield_wait: int) -> None:
    c_program("tests/libos/sched/c/unsent.c")(yield_wait)


@pytest.mark.parametrize("scenario", ["parked", "several", "own", "ceded"])
def test_a_trace_is_told_whose_the_core_was_meanwhile(
    c_program: Callable[..., Callable[..., str]], scenario: str
) -> None:
    assert c_program("tests/libos/sched/c/taken.c")(scenario) == "ok\n"
