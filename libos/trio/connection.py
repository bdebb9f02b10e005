"""Connections of a runtime's, and the tasks of trio's that wait for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import outcome
import trio

from ..asyncio.pulled import Pulled
from ..asyncio.sockets import TcpSocket


class Waiter:
    """At most one task that waits for something."""

    __slots__ = ("_task",)

    def __init__(self) -> None:
        self._task: trio.lowlevel.Task | None = None

    async def wait(self) -> None:
        """Until `wake`. Raises trio.BusyResourceError: another task does."""
        if self._task is not None:
            raise trio.BusyResourceError("another task is already using this socket in the same way")
        self._task = trio.lowlevel.current_task()

        def abort(_: Any) -> trio.lowlevel.Abort:
            self._task = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def wake(self, error: Exception | None = None) -> None:
        """Let it go on, or raise an error in it."""
        task, self._task = self._task, None
        if task is not None:
            trio.lowlevel.reschedule(task, outcome.Value(None) if error is None else outcome.Error(error))


class Connection(Pulled):
    """A connection that a socket of trio's has. Public attributes, besides: reading, writing (who waits)."""

    def __init__(self, sock: TcpSocket, call: Callable[..., Any]) -> None:
        self.reading, self.writing = Waiter(), Waiter()
        super().__init__(sock, call)

    def may_read(self, error: Exception | None = None) -> None:
        """Wake who receives."""
        self.reading.wake(error)

    def may_write(self, error: Exception | None = None) -> None:
        """Wake who sends."""
        self.writing.wake(error)
