"""What tests of trio on a runtime have in common: the same test on trio's own sockets and on ours."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import trio
from cltest import wait_until

from corelane.libos import trio as libos_trio

Run = Callable[[Callable[[], Awaitable[Any]]], Any]


@pytest.fixture(autouse=True)
def _no_threads_stay(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """trio keeps the threads that it has used for 10 s: later tests of this process may count theirs."""
    monkeypatch.setattr(trio._core._thread_cache, "IDLE_TIMEOUT", 0.01)
    before = threading.active_count()
    yield
    wait_until(lambda: threading.active_count() <= before, 60, "trio's threads to end")


@pytest.fixture(params=["linux", "libos"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs an async function; all TCP endpoints of it are on one side."""

    def run_on(main: Callable[[], Awaitable[Any]]) -> Any:
        async def guarded() -> Any:
            with trio.fail_after(60):
                result = await main()
            if request.param == "libos":
                counts = libos_trio.endpoints()
                assert counts.ours >= counts.linux, "the test was to run on libos"
            return result

        return trio.run(guarded) if request.param == "linux" else libos_trio.run(guarded)

    return run_on
