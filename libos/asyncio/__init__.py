"""An asyncio event loop whose TCP endpoints are a runtime's. See README.md beside this; for users docs/asyncio.md.

    from corelane.libos import asyncio as libos_asyncio

    libos_asyncio.run(main(), socket="/run/corelane.sock")

    with asyncio.Runner(loop_factory=libos_asyncio.loop_factory(nic=nic)) as runner:
        runner.run(main())

`run`, `new_event_loop`, `loop_factory` and `install` take the same options, those of `new_event_loop`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from .loop import Loop, new_event_loop
from .world import Endpoints

__all__ = ["Endpoints", "EventLoopPolicy", "Loop", "install", "loop_factory", "new_event_loop", "run"]

_T = TypeVar("_T")


def loop_factory(**options: Any) -> Callable[[], Loop]:
    """What asyncio.Runner(loop_factory=...) takes: makes a loop with these options at each call."""
    return lambda: new_event_loop(**options)


def run(main: Coroutine[Any, Any, _T], *, debug: bool | None = None, **options: Any) -> _T:
    """As asyncio.run, on a loop with these options."""
    with asyncio.Runner(debug=debug, loop_factory=loop_factory(**options)) as runner:
        return runner.run(main)


class EventLoopPolicy(asyncio.DefaultEventLoopPolicy):
    """Loops that asyncio makes by itself are ours: asyncio.set_event_loop_policy(EventLoopPolicy(nic=nic))."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._options = options

    def new_event_loop(self) -> Loop:
        return new_event_loop(**self._options)


def install(**options: Any) -> None:
    """Make the loops of this process ours: asyncio.run(main()) and all who ask asyncio for a loop."""
    asyncio.set_event_loop_policy(EventLoopPolicy(**options))
