"""The floor under uvicorn on any loop: its protocol and the application, without a network."""

from __future__ import annotations

import asyncio
import importlib
import time
from typing import Any

from ..harness.affinity import started_on
from .server import web_config

REQUEST = b"GET /1024 HTTP/1.1\r\nHost: server\r\nUser-Agent: corelane\r\nAccept: */*\r\n\r\n"


class Nowhere(asyncio.Transport):
    """Takes what is written, and sends none of it."""

    def __init__(self) -> None:
        super().__init__({"sockname": ("10.0.0.1", 80), "peername": ("10.0.0.2", 1024)})
        self.answers = 0

    def write(self, data: Any) -> None:
        """Count the beginnings of answers."""
        self.answers += data.startswith(b"HTTP/1.1 200")

    def is_closing(self) -> bool:
        """Never."""
        return False

    def close(self) -> None:
        """Nothing is open."""


async def _answered(connections: int, seconds: float) -> float:
    """Answers a second."""
    config = web_config()
    config.load()
    state = importlib.import_module("uvicorn.server").ServerState()
    made = [config.http_protocol_class(config=config, server_state=state, app_state={}) for _ in range(connections)]
    transports = [Nowhere() for _ in made]
    for protocol, transport in zip(made, transports, strict=True):
        protocol.connection_made(transport)
    begin = time.perf_counter()
    while (took := time.perf_counter() - begin) < seconds or not transports[0].answers:
        for protocol in made:
            protocol.data_received(REQUEST)
        while state.tasks:
            await asyncio.sleep(0)
    for protocol in made:
        protocol.connection_lost(None)
    return sum(transport.answers for transport in transports) / took


def rate(cpu: int, connections: int, seconds: float) -> float:
    """Answers a second on our loop, on `cpu`: data_received of each connection in turn, and what it makes ready."""
    from ...libos import asyncio as libos_asyncio

    with started_on([cpu]):
        return libos_asyncio.run(_answered(connections, seconds), poll="block")
