"""What the sockets of one run share."""

from __future__ import annotations

import contextvars

from .._asyncio import Poller
from ..asyncio.datagrams import DatagramEndpoints
from ..asyncio.servers import Places
from ..asyncio.sockets import TcpSocket
from ..asyncio.world import Endpoints, World


class Ours:
    """The runtime of a run. Public attributes: world, poller, places, datagrams, endpoints, call."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.poller = Poller(world.runtime.pointer, TcpSocket)
        self.places = Places(world, self.poller)
        self.datagrams = DatagramEndpoints(world, self.poller)
        self.endpoints = Endpoints()
        self.call = contextvars.Context().run  # callbacks of connections: they are no task's
