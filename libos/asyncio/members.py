"""A loop as a member of a group: its servers are replaced without a lost request (docs/groups.md).

What waits for the iokernel does so on a thread of the loop's executor: the loop turns meanwhile, which it waits for.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

from ...runtime.errors import CorelaneError
from .._asyncio import Poller
from ..member import CLOSE_TIMEOUT_S, DRAIN_TIMEOUT_S
from .datagrams import DatagramEndpoints
from .world import World

_LOOK_S = 0.001  # between two looks at what is still open
_log = logging.getLogger("corelane.libos")


class Members(asyncio.SelectorEventLoop):
    """These calls of a loop. Of no group they do nothing, and `serve` serves until it is cancelled.

    Public attributes: draining, whether new flows go to others by now: protocols may end a connection with their next
    answer then. replaces: whether `ready` replaces the others unless it is told; on_ready: is called by it with how
    many these are. Both are for who runs somebody's program, as `corelane run` does.
    """

    world: World
    draining = False
    replaces = False
    on_ready: Callable[[int], object] | None = None
    _poller: Poller
    _datagrams: DatagramEndpoints
    _ended: asyncio.Event | None = None

    async def ready(self, *, replace: bool | None = None) -> int:
        """The servers listen, new flows may come. replace: and none to the other members of the same user from now on,
        which are told to drain. Returns how many. Raises CorelaneError."""
        replaces = self.replaces if replace is None else replace
        say = functools.partial(self.world.runtime.ready, replace=replaces)
        others = await self.run_in_executor(None, say)
        if self.on_ready is not None:
            self.on_ready(others)
        return others

    async def until_replaced(self) -> None:
        """Until another member has taken over, or the runtime is stopped."""
        if self._ended is None:
            self._ended = asyncio.Event()
            self.add_reader(self.world.runtime.end_fileno, self._end)
        await self._ended.wait()

    def _end(self) -> None:
        self.remove_reader(self.world.runtime.end_fileno)
        if self._ended is None:
            self._ended = asyncio.Event()
        self._ended.set()

    async def drain(self, timeout_s: float = DRAIN_TIMEOUT_S) -> None:
        """New flows go to the others. Returns when protocols have got what came before.

        Raises CorelaneError (errno ETIMEDOUT) if something still waits after timeout_s."""
        deadline = self.time() + timeout_s
        self.draining = True
        await self.run_in_executor(None, self.world.runtime.drain, timeout_s)
        await asyncio.sleep(0)  # what came in the last turn is delivered behind who waits for the executor
        while any(sock.reader is not None and sock.readable for sock in self._datagrams.by_fd.values()):
            self._look_at(deadline, "drain the loop", "datagrams still wait to be read")
            await asyncio.sleep(0)

    async def wait_closed(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Until no connection of the runtime's that came in is open any more. Protocols or peers end them.

        Raises CorelaneError (errno ETIMEDOUT) if some are still open after timeout_s."""
        deadline = self.time() + timeout_s
        while (left := self.world.runtime.connections - self._poller.outgoing()) > 0:
            self._look_at(deadline, "wait for the end of the connections", f"{left} are still open")
            await asyncio.sleep(_LOOK_S)

    def _look_at(self, deadline: float, what: str, why: str) -> None:
        if self.time() >= deadline:
            raise CorelaneError(what, why, "close them, or give their peers longer", errno.ETIMEDOUT)

    async def serve(self, *servers: Any, replace: bool | None = None, close_s: float = CLOSE_TIMEOUT_S) -> None:
        """Say `ready`, and return once another member has taken over and the connections have ended, at most close_s
        later; the servers, of create_server or start_server, are closed then.

        It is the same when the task is cancelled, as asyncio.run does by Ctrl-C, and by SIGTERM on the main thread if
        nobody handles that. Raises CorelaneError."""
        with self._ended_by_sigterm():
            try:
                await self.ready(replace=replace)
                try:
                    await self.until_replaced()
                finally:
                    await self._leave(close_s)
            finally:  # also of what is cancelled again while it waits for its connections
                for server in servers:
                    server.close()

    async def _leave(self, close_s: float) -> None:
        if self.world.runtime.member is None or self.world.runtime.stopped:
            return
        for step in (self.drain, functools.partial(self.wait_closed, close_s)):
            try:
                await step()
            except CorelaneError as error:
                if error.errno != errno.ETIMEDOUT:
                    raise
                _log.warning("%s", error)

    @contextlib.contextmanager
    def _ended_by_sigterm(self) -> Iterator[None]:
        here = threading.current_thread() is threading.main_thread()
        if not here or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            yield
            return
        self.add_signal_handler(signal.SIGTERM, self._end)
        try:
            yield
        finally:
            self.remove_signal_handler(signal.SIGTERM)
