"""Many connections that do what comes to mind, from a seed: each hears of its end once, after all that it may hear, and
bytes come in order. In a process of its own with CPython's checks of memory, and a count of what is left of them.

    python tests/libos/asyncio/test_stress.py SEED CONNECTIONS
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cltest import soak

HOST = "127.0.0.1"
ACTIONS = ("write", "write", "write", "many", "large", "pause", "resume", "eof", "close", "abort", "wait", "switch")


PERIOD = bytes(i * 7 % 251 for i in range(251))


def pattern(n: int, at: int = 0) -> bytes:
    """Bytes of a stream in which each place is known."""
    return (PERIOD * (n // len(PERIOD) + 2))[at % len(PERIOD) :][:n]


WHOLE = pattern(1 << 20)


class End(asyncio.Protocol):
    """One end: checks what it is told, in which order."""

    def __init__(self, rnd: random.Random) -> None:
        self.rnd = rnd
        self.transport: Any = None
        self.read = self.written = 0
        self.lost = 0
        self.eof = False
        self.paused = False
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        assert self.transport is None
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert self.transport is not None
        assert not self.lost
        assert not self.eof
        assert self.transport.is_reading()
        assert data == WHOLE[self.read : self.read + len(data)]
        self.read += len(data)
        if self.rnd.random() < 0.01:
            raise ZeroDivisionError("as the seed has it")
        if self.rnd.random() < 0.1:
            self.act()

    def eof_received(self) -> bool:
        assert not self.lost
        assert not self.eof
        self.eof = True
        return self.rnd.random() < 0.3

    def pause_writing(self) -> None:
        assert not self.paused
        self.paused = True

    def resume_writing(self) -> None:
        assert self.paused
        self.paused = False

    def connection_lost(self, exc: BaseException | None) -> None:
        self.lost += 1
        assert self.lost == 1
        self.done.set_result(None)

    def write(self, n: int) -> None:
        n = min(n, len(WHOLE) - self.written)
        kind = self.rnd.choice((bytes, bytearray, memoryview))
        self.transport.write(kind(WHOLE[self.written : self.written + n]))
        self.written += n

    def act(self) -> None:
        transport, action = self.transport, self.rnd.choice(ACTIONS)
        if self.lost or transport.is_closing():
            return
        if action in ("write", "many", "large") and not self.eof_sent:
            sizes = {"write": (1, 3000), "many": (1, 20), "large": (50_000, 200_000)}[action]
            for _ in range(30 if action == "many" else 1):
                self.write(self.rnd.randint(*sizes))
        elif action == "pause":
            transport.pause_reading()
        elif action == "resume":
            transport.resume_reading()
        elif action == "eof" and self.rnd.random() < 0.2:
            transport.write_eof()
        elif action in ("close", "abort") and self.rnd.random() < 0.2:
            getattr(transport, action)()
        elif action == "switch":
            transport.set_protocol(self)

    @property
    def eof_sent(self) -> bool:
        return bool(self.transport._eof)


class BufferedEnd(asyncio.BufferedProtocol, End):
    """The same with a buffer of its own."""

    def get_buffer(self, sizehint: int) -> memoryview:
        self.buffer = bytearray(self.rnd.choice((1, 100, 5000)))
        return memoryview(self.buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(self.buffer[:nbytes]))


async def play(seed: int, connections: int) -> None:
    rnd = random.Random(seed)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: unexpected(context))
    ends: list[End] = []

    def unexpected(context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), ZeroDivisionError):
            wrong.append(context)

    def make() -> End:
        ends.append(rnd.choice((End, BufferedEnd))(rnd))
        return ends[-1]

    async def drive(number: int) -> None:
        mine = (await loop.create_connection(make, HOST, port))[1]
        for _ in range(rnd.randint(1, 60)):
            for end in (mine, rnd.choice(ends)):
                if end.transport is not None:
                    end.act()
            if rnd.random() < 0.5:
                await asyncio.sleep(0)
        if not mine.transport.is_closing():
            mine.transport.close()

    wrong: list[dict[str, Any]] = []
    server = await loop.create_server(make, HOST, 0)
    port = server.sockets[0].getsockname()[1]
    await asyncio.gather(*(drive(n) for n in range(connections)))
    server.close()
    for end in list(ends):
        if end.transport is not None and not end.lost:
            end.transport.resume_reading()
    await asyncio.sleep(0.01)
    for end in ends:
        if end.transport is not None and not end.transport.is_closing():
            end.transport.abort()
    async with asyncio.timeout(30):
        for end in ends:
            if end.transport is not None:
                end.transport.abort()
                await end.done
    assert not wrong, wrong[0]
    made = sum(end.transport is not None for end in ends)
    assert made >= 2 * connections - 1
    counts: Any = loop
    assert counts.endpoints().ours >= made


def blocks(seed: int, connections: int) -> int:
    from corelane.libos import asyncio as libos_asyncio

    libos_asyncio.run(play(seed, connections))
    for _ in range(3):
        gc.collect()
    return sys.getallocatedblocks()


def main(seed: int, connections: int) -> None:
    counts = [blocks(seed, connections) for _ in range(5)]
    growth = [after - before for before, after in itertools.pairwise(counts)]
    # A loop's end leaves a few, asyncio's own too; some caches of the interpreter's fill up at first.
    assert min(growth) < connections, f"each run leaves some memory behind: {growth} blocks"


@pytest.mark.soak(short=True, takes_s=30)
def test_connections_do_what_comes_to_mind() -> None:
    support = Path(__file__).resolve().parents[2] / "support"
    for seed in range(soak.examples(1, 30)):
        environment = {**os.environ, "PYTHONMALLOC": "debug", "PYTHONPATH": str(support)}
        command = [sys.executable, "-X", "dev", "-X", "faulthandler", "-W", "ignore::ResourceWarning"]
        done = subprocess.run(
            [*command, __file__, str(seed), "40"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"seed {seed}: {done.stderr}"


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
