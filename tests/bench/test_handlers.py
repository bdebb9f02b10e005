"""The plot and the ratios of `corelane bench handlers`. No speed is asserted."""

from __future__ import annotations

import io
from typing import Any

import pytest

from corelane.apps import echo
from corelane.bench import handlers
from corelane.bench.harness.plot import lint
from corelane.bench.harness.session import Session
from corelane.libos.handlers.python import PythonHandler


@pytest.mark.parametrize("slowest", [5.0, 0.0, 4e4])
def test_slow_arms_are_inside_of_the_plot(slowest: float) -> None:
    rates = {"C": 5e6, "asyncio": slowest}
    arms = [{"name": f"{name}, overloaded", "sent": 10, "achieved_rps": rate} for name, rate in rates.items()]
    document: dict[str, Any] = {"bench": "handlers", "arms": arms, "settings": {"message": "64 B"}}
    canvas = handlers.plot(document)
    assert not [c for c in lint(canvas.figure, canvas.expect) if "empty" in c or "outside" in c]
    low, high = canvas.axes[0].get_xlim()
    assert low < max(slowest, 1.0)
    assert high > 5e6


def test_the_bound_of_a_python_handler_is_of_answers() -> None:
    handler = PythonHandler(echo.handler("python", handlers.PORT).function)
    assert handlers.calls_per_s(handler, 0.0) > 0
    with pytest.raises(AssertionError):
        handlers.calls_per_s(PythonHandler(lambda request: 0), 0.0)


def test_the_ratio_over_one_link_stands_beside_that_over_two() -> None:
    session = Session("handlers", seconds=1.0, cores=[0], progress=io.StringIO())
    rates = {"python": [80.0] * 3, handlers.OVER_AF_XDP: [20.0] * 3, handlers.ASYNCIO: [10.0] * 3}
    handlers.compare_with_asyncio(session, rates)
    figure = session.figures["handlers.python_over_asyncio"]
    assert (figure["value"], figure["beside"]) == (8.0, {handlers.ONE_LINK: 2.0})
