"""What the sockets of one run share."""

from __future__ import annotations

import contextvars
from dataclasses import dataclass

from .._asyncio import Poller
from ..asyncio import world
from ..asyncio.servers import Places
from ..asyncio.sockets import TcpSocket


@dataclass(slots=True)
class Endpoints(world.Endpoints):
    """How many TCP endpoints a run has made: connections and listening sockets, on the runtime and on Linux. refused:
    connections that were reset since as many as the backlog waited to be accepted."""

    refused: int = 0


class Ours:
    """The runtime of a run. Public attributes: world, poller, places, endpoints, call."""

    def __init__(self, world: world.World) -> None:
        self.world = world
        self.poller = Poller(world.runtime.pointer, TcpSocket)
        self.places = Places(world, self.poller)
        self.endpoints = Endpoints()
        self.call = contextvars.Context().run  # callbacks of connections: they are no task's
