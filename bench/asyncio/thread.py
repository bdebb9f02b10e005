"""Our loop on a thread of this process, with the servers of server.py: on a NIC whose other end is here, too.

with Looping(server_end, partial(server.echoing, SERVER_IP, [server.STREAMS]), cpu=1) as looping:
    ... clients on the other end; looping.busy_s() ...
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager

from ...drivers.nic.nic import Nic
from ...runtime.closing import Closing
from ...runtime.errors import CorelaneError
from ..harness import usage
from ..harness.rig import PREFIX, SERVER_IP
from . import loops

PATIENCE_S = 30.0


class Looping(Closing):
    """What `serving` listens with, from construction to `close`, on a thread that is pinned to `cpu`. Two of one port
    cannot be there at the same time: Linux keeps its number.

    Raises what the thread raises, and CorelaneError if its sockets would be Linux'.
    """

    def __init__(self, nic: Nic, serving: Callable[[], AbstractAsyncContextManager[None]], *, cpu: int) -> None:
        self._nic, self._serving, self._cpu = nic, serving, cpu
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending = asyncio.Event()
        self._listening: Future[int] = Future()
        self._thread = threading.Thread(target=self._run, name="looping", daemon=True)
        self._thread.start()
        try:
            if not self._listening.result(PATIENCE_S):
                raise CorelaneError("run our loop on a memory link", f"its sockets at {SERVER_IP} are Linux'")
        except BaseException:
            self.close()
            raise
        self._tid = self._thread.native_id or 0

    def _run(self) -> None:
        try:
            os.sched_setaffinity(0, {self._cpu})  # of this thread
            with asyncio.Runner(loop_factory=loops.ours(self._nic, f"{SERVER_IP}/{PREFIX}")) as runner:
                runner.run(self._serve())
        except BaseException as error:
            if self._listening.done():
                raise
            self._listening.set_exception(error)

    async def _serve(self) -> None:
        async with self._serving():
            self._loop = asyncio.get_running_loop()
            self._listening.set_result(loops.own_endpoints(self._loop))
            await self._ending.wait()

    def busy_s(self) -> float:
        """CPU seconds that the loop has used so far."""
        return usage.of_thread(self._tid).busy_s

    def close(self) -> None:
        """End the loop. Closing twice is allowed."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(PATIENCE_S)
