"""The check against Erlang-C without a control variate: it passes, finely enough, and finds what it is there for."""

from __future__ import annotations

from typing import Any

import pytest

from corelane.bench.sim import plain


class Told:
    """What a check tells its session."""

    def __init__(self) -> None:
        self.arms: dict[str, dict[str, Any]] = {}
        self.notes: list[str] = []

    def say(self, text: str) -> None: ...

    def note(self, text: str) -> None:
        self.notes.append(text)

    def arm(self, name: str, **row: Any) -> None:
        self.arms[name] = row


@pytest.mark.parametrize(
    "servers",
    [pytest.param(n, marks=[pytest.mark.soak(takes_s=2)] if n != 2 else ()) for n in plain.ROUNDS],
)
def test_mean_wait_is_erlangs(servers: int) -> None:
    """Seeds are fixed, and so is the answer."""
    seen = plain.mean_wait(servers)
    assert seen.n == pytest.approx(plain.SEEDS * plain.ROUNDS[servers] * plain.BATCH_EVENTS / 2, rel=1e-3)
    assert 0.001 < seen.standard_error < plain.GOAL
    assert abs(seen.error) < 3 * seen.standard_error


def test_a_bias_of_what_is_drawn_is_found() -> None:
    """One per cent in the service, which is 4.4 % of the wait and would be in the control variate too."""
    seen = plain.mean_wait(1, drawn_ns=1.01 * plain.MEAN_NS)
    assert seen.error > 5 * seen.standard_error


def test_little_time_is_said() -> None:
    told = Told()
    beside = plain.compare(told, 0.0)  # type: ignore[arg-type]
    least = plain.SEEDS * plain.ROUNDS_LEAST * plain.BATCH_EVENTS / 2
    assert [row["n"] for row in told.arms.values()] == pytest.approx([least] * (len(plain.ROUNDS) + 1), rel=1e-3)
    assert [row["error"] for row in told.arms.values()] == list(beside.values())[:-1]
    assert beside["largest standard error of those"] > plain.GOAL
    assert len(told.notes) == 1
