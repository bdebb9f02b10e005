"""What tests of trio on a runtime have in common: the same test on trio's own sockets and on ours."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from corelane.libos import trio as libos_trio

Run = Callable[[Callable[[], Awaitable[Any]]], Any]


@pytest.fixture(params=["linux", "libos"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs an async function; all TCP endpoints of it are on one side."""

    def run_on(main: Callable[[], Awaitable[Any]]) -> Any:
        async def guarded() -> Any:
            with trio.fail_after(20):
                result = await main()
            if request.param == "libos":
                counts = libos_trio.endpoints()
                assert counts.ours >= counts.linux, "the test was to run on libos"
            return result

        return trio.run(guarded) if request.param == "linux" else libos_trio.run(guarded)

    return run_on
