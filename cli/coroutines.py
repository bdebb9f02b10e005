"""A program for asyncio as what `corelane run` runs: module:main, a coroutine function of no arguments.

Its loop is the application's (docs/asyncio.md). It says itself when it serves, by `loop.serve` or `loop.ready`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, cast

from ..runtime.ending import SIGNALS

if TYPE_CHECKING:
    from ..libos import Runtime
    from ..libos.asyncio import Loop

Main = Callable[[], Coroutine[Any, Any, object]]


class Program:
    """What runs. ready: called with it, and how many other members of its group are told to drain, once it serves."""

    def __init__(self, main: Main, runtime: Runtime, ready: Callable[[Program, int], object], *, replace: bool) -> None:
        from ..libos.asyncio import loop_factory

        self._main = main
        self._runner = asyncio.Runner(loop_factory=loop_factory(runtime=runtime))
        self._loop = cast("Loop", self._runner.get_loop())
        self._loop.replaces = replace
        self._loop.on_ready = lambda others: ready(self, others)
        self._counts = self._loop.endpoints()

    @property
    def ports(self) -> tuple[int, ...]:
        """UDP ports on which it answers now."""
        return tuple(self._loop.ports()[0])

    @property
    def tcp_ports(self) -> tuple[int, ...]:
        """The same of TCP."""
        return tuple(self._loop.ports()[1])

    def stats(self) -> dict[str, int]:
        """Endpoints that its loop has had, of the runtime and of Linux."""
        return {"endpoints": self._counts.ours, "endpoints_linux": self._counts.linux}

    def run(self, seconds: float | None) -> None:
        """Until it ends; SIGINT, SIGTERM, or the end of so many seconds cancel it. Raises what it raises."""
        self._runner.run(self._bounded(seconds))

    async def _bounded(self, seconds: float | None) -> None:
        task = asyncio.ensure_future(self._main())
        ended = False

        def end() -> None:
            nonlocal ended
            ended = True
            task.cancel()

        for number in SIGNALS:
            self._loop.add_signal_handler(number, end)
        if seconds is not None:
            self._loop.call_later(seconds, end)
        try:
            await task
        except asyncio.CancelledError:
            if not ended:
                raise

    def close(self) -> None:
        """The loop, and what it has open."""
        self._runner.close()
