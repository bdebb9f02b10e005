"""Puts a loop in the place of asyncio's: tests that ask asyncio for a selector loop get that one."""

from __future__ import annotations

import asyncio
import importlib
import selectors
from collections.abc import Callable
from typing import Any


class Made:
    """Counts of the endpoints of the loops that a test made."""

    def __init__(self) -> None:
        self._counts: list[Any] = []
        self.loops = 0

    def note(self, loop: Any) -> None:
        """A loop that says whose its endpoints are has `endpoints()`, with counts `ours` and `linux` that go on."""
        self.loops += 1
        if hasattr(loop, "endpoints"):
            self._counts.append(loop.endpoints())

    def take(self) -> tuple[int, int, int]:
        """(loops, endpoints of the runtime, endpoints of Linux) since the last time."""
        took = self.loops, sum(c.ours for c in self._counts), sum(c.linux for c in self._counts)
        self._counts, self.loops = [], 0
        return took


def named(factory: str) -> Callable[[], asyncio.AbstractEventLoop]:
    """What "module:name" stands for."""
    module, _, name = factory.partition(":")
    found: Callable[[], asyncio.AbstractEventLoop] = getattr(importlib.import_module(module), name)
    return found


def replace(factory: Callable[[], asyncio.AbstractEventLoop], made: Made) -> None:
    """From now on asyncio's selector loop is what the factory makes, by whatever name it is asked for.

    A selector that is given is closed: the loop has its own.
    """
    stock = asyncio.SelectorEventLoop

    def make(selector: selectors.BaseSelector | None = None) -> asyncio.AbstractEventLoop:
        if selector is not None:
            selector.close()
        loop = factory()
        made.note(loop)
        return loop

    class Replaced(type):
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            return make(*args, **kwargs) if cls is Loop else super().__call__(*args, **kwargs)

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, stock)

    class Loop(stock, metaclass=Replaced):  # type: ignore[misc, valid-type]
        pass

    for name in ("SelectorEventLoop", "EventLoop"):
        if hasattr(asyncio, name):
            setattr(asyncio, name, Loop)
    asyncio.DefaultEventLoopPolicy._loop_factory = Loop  # type: ignore[attr-defined]
