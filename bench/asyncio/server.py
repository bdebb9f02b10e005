"""A server on asyncio by a loop of choice, in a process of its own: the same lines for every loop.

    with Server(loops.UVLOOP, ECHO, address="10.77.0.2", cpu=1, netns=far.namespace.name) as server: ...
    with Server(loops.OURS, ECHO, address="10.77.0.2", interface=far.name, netns=far.namespace.name) as server: ...

ECHO has both forms of a TCP echo, at a port each: a protocol, and a coroutine on streams. WEB is uvicorn with an ASGI
application that answers a few bytes of JSON; its parser is httptools for every loop.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import importlib.util
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, cast

from ...drivers.nic.af_xdp.af_xdp import AfXdp
from ...runtime.errors import CorelaneError
from ..baseline.sockets import ServerProcess
from . import loops

ECHO, WEB = "echo", "web"
PROTOCOLS, STREAMS = "protocols", "streams"
PORTS = {PROTOCOLS: 9000, STREAMS: 9001, WEB: 8080}
BACKLOG = 1024
READ_BYTES = 65536
BODY = json.dumps({"message": "Hello, world!"}).encode()
_MODULE = "corelane.bench.asyncio.server"


class Echo(asyncio.Protocol):
    """Sends back what comes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The same on streams, until the client ends."""
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(READ_BYTES):
            writer.write(data)
            await writer.drain()
    writer.close()


async def application(scope: Any, _: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]) -> None:
    """Answers each request of HTTP by BODY."""
    assert scope["type"] == "http"
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(BODY))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": BODY})


@contextlib.asynccontextmanager
async def echoing(address: str, forms: Sequence[str] = (PROTOCOLS, STREAMS)) -> AsyncIterator[None]:
    """The echo listens, in each of these forms."""
    loop = asyncio.get_running_loop()
    async with contextlib.AsyncExitStack() as stack:
        for form in forms:
            where: dict[str, Any] = {"host": address, "port": PORTS[form], "backlog": BACKLOG}
            serve = loop.create_server(Echo, **where) if form == PROTOCOLS else asyncio.start_server(echo, **where)
            await stack.enter_async_context(await serve)
        yield


def web_config(**where: Any) -> Any:
    """uvicorn's. where: more for it."""
    how = {"http": "httptools", "ws": "none", "lifespan": "off", "loop": "none", "log_level": "critical"}
    return importlib.import_module("uvicorn").Config(application, access_log=False, **how, **where)


@contextlib.asynccontextmanager
async def web(address: str) -> AsyncIterator[None]:
    """uvicorn listens, on the loop that runs."""
    config = web_config(host=address, port=PORTS[WEB], backlog=BACKLOG)
    server = importlib.import_module("uvicorn").Server(config)
    serving = asyncio.ensure_future(server.serve())
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    try:
        yield
    finally:
        server.should_exit = True
        await serving


def web_missing() -> str:
    """Why there is no WEB here, in one line; "" if there is."""
    absent = [name for name in ("uvicorn", "httptools") if importlib.util.find_spec(name) is None]
    return f"{' and '.join(absent)} not installed: pip install 'corelane[bench]'" if absent else ""


SERVE = {ECHO: echoing, WEB: web}


async def serve(what: str, address: str) -> None:
    """Until stdin ends; prints a line of JSON when it listens."""
    async with SERVE[what](address):
        loop = asyncio.get_running_loop()
        port = PORTS[WEB if what == WEB else PROTOCOLS]
        print(json.dumps({"port": port, "ours": loops.own_endpoints(loop)}), flush=True)
        await loop.run_in_executor(None, sys.stdin.read)


class Server(ServerProcess):
    """One of the loops serves ECHO or WEB at `address` in a process that is pinned to `cpu` (-1: nowhere). interface,
    prefix: of ours, which is over AF_XDP there. Raises CorelaneError, also if the sockets of ours would be Linux'."""

    def __init__(
        self,
        loop: str,
        what: str,
        *,
        address: str,
        interface: str = "",
        prefix: int = 24,
        cpu: int = -1,
        netns: str = "",
    ) -> None:
        words = ["--loop", loop, "--what", what, "--cpu", str(cpu), "--address", address]
        if loop == loops.OURS:
            words += ["--interface", interface, "--prefix", str(prefix)]
        super().__init__(_MODULE, words, netns)
        if loop == loops.OURS and not self.said["ours"]:
            self.close()
            raise CorelaneError("start a server on our loop", f"its sockets at {address} are Linux'")


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until stdin ends."""
    parser = argparse.ArgumentParser(description="a server on asyncio, until stdin ends")
    parser.add_argument("--loop", choices=loops.ALL, required=True)
    parser.add_argument("--what", choices=sorted(SERVE), default=ECHO)
    parser.add_argument("--cpu", type=int, default=-1)
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--interface", default="")
    parser.add_argument("--prefix", type=int, default=24)
    given = parser.parse_args(arguments)
    if given.cpu >= 0:
        os.sched_setaffinity(0, {given.cpu})
    with contextlib.ExitStack() as stack:
        if given.loop == loops.OURS:
            address = f"{given.address}/{given.prefix}"
            nic = stack.enter_context(AfXdp(given.interface, addresses=[address]))
            factory = loops.ours(nic, address)
        else:
            factory = loops.baseline(given.loop)
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(serve(given.what, given.address))


if __name__ == "__main__":
    main()
