"""The event loop: asyncio's selector loop, whose TCP endpoints are a runtime's where their addresses are."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from ...drivers.nic.nic import Nic
from ..runtime import Runtime
from .selector import Selector
from .world import Endpoints, World


class Loop(asyncio.SelectorEventLoop):
    """Made by `new_event_loop`. Public attributes: world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._endpoints = Endpoints()
        super().__init__(Selector(world))

    @property
    def runtime(self) -> Runtime:
        """The runtime whose kthread this loop's thread is."""
        return self.world.runtime

    def endpoints(self) -> Endpoints:
        """How many TCP endpoints were the runtime's, and how many Linux'."""
        return self._endpoints

    def close(self) -> None:
        if self.is_closed():
            return
        super().close()
        self.world.close()


def new_event_loop(
    runtime: Runtime | None = None,
    *,
    socket: str | os.PathLike[str] | None = None,
    nic: Nic | None = None,
    loopback: bool | None = None,
    **options: Any,
) -> Loop:
    """An event loop on a runtime, whose one kthread the thread that runs it becomes.

    runtime: one with kthreads=1 and adopted=1, which stays the caller's. Or one is made, and closed with the loop: with
    socket an application of an iokernel, with nic on that NIC, with neither on a wire to nobody, which serves this
    process alone. options: more for it, as name, address, poll (Runtime). loopback: 127.0.0.0/8 inside this process is
    the runtime's; None: if it serves this process alone. docs/asyncio.md says which endpoints are whose.

    Raises CorelaneError.
    """
    world = World(runtime, socket=socket, nic=nic, loopback=loopback, **options)
    try:
        return Loop(world)
    except BaseException:
        world.close()
        raise
