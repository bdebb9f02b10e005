"""A UDP echo server on asyncio, the way one is usually written: the baseline of Python handlers.

with AsyncioEcho(cpu=1) as server: ... server.port ...
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Sequence
from typing import cast

from .sockets import ServerProcess

_MODULE = "corelane.bench.baseline.asyncio_echo"


class _Echo(asyncio.DatagramProtocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str | int, int]) -> None:
        self.transport.sendto(data, addr)


async def serve(address: str, port: int) -> None:
    """Echo until stdin ends; prints one line of JSON with the port."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(_Echo, local_addr=(address, port))
    print(json.dumps({"port": transport.get_extra_info("sockname")[1]}), flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    transport.close()


class AsyncioEcho(ServerProcess):
    """The server in a process of its own, pinned to `cpu` (-1: nowhere)."""

    def __init__(self, *, cpu: int = -1, address: str = "127.0.0.1", port: int = 0, netns: str = "") -> None:
        super().__init__(_MODULE, ["--cpu", str(cpu), "--address", address, "--port", str(port)], netns)


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until stdin ends."""
    parser = argparse.ArgumentParser(description="UDP echo on asyncio, until stdin ends")
    parser.add_argument("--cpu", type=int, default=-1)
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args(arguments)
    if given.cpu >= 0:
        os.sched_setaffinity(0, {given.cpu})
    asyncio.run(serve(given.address, given.port))


if __name__ == "__main__":
    main()
