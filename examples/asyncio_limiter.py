"""A rate limiter on asyncio, on TCP port 7000: docs/examples.md has its protocol.

python examples/asyncio_limiter.py [/run/corelane.sock [hits a window [ms of a window]]]

c_limiter.c and numba_limiter.py are the same service. Only the last lines are corelane's.
"""

import asyncio
import signal
import sys
from collections import OrderedDict
from typing import cast

from corelane.libos import asyncio as libos_asyncio

LINE, NAME, NAMES = 64, 32, 1000  # bytes of a line and of a name at most; names that are remembered
USAGE = b"error say: hit NAME, or left NAME\n"
TOO_LONG = b"error a line has %d bytes at most\n" % LINE


class Limiter:
    def __init__(self, hits: int) -> None:
        self.hits, self.window = hits, 0
        self.used: OrderedDict[bytes, tuple[int, int]] = OrderedDict()  # by name: window, and hits in it

    def answer(self, line: bytes) -> bytes:
        command, _, name = line.removesuffix(b"\r").partition(b" ")
        if command not in (b"hit", b"left") or not 0 < len(name) <= NAME or min(name) <= ord(" "):
            return USAGE
        window, hits = self.used.get(name, (self.window, 0))
        if name in self.used:
            self.used.move_to_end(name)
        if window != self.window:
            hits = 0
        if command == b"hit":
            if hits >= self.hits:
                return b"full\n"
            hits += 1
            self.used[name] = self.window, hits
            if len(self.used) > NAMES:
                self.used.popitem(last=False)
        return b"ok %d\n" % (self.hits - hits)

    async def go_on(self, window_s: float) -> None:
        while True:
            await asyncio.sleep(window_s)
            self.window += 1


class Lines(asyncio.Protocol):
    def __init__(self, limiter: Limiter) -> None:
        self.limiter, self.rest = limiter, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        *lines, self.rest = (self.rest + data).split(b"\n")
        answers = []
        for line in lines:
            if len(line) >= LINE:
                self.rest = line
                break
            answers.append(self.limiter.answer(line))
        if len(self.rest) >= LINE:
            answers.append(TOO_LONG)
        self.transport.write(b"".join(answers))
        if len(self.rest) >= LINE:
            self.transport.close()

    def pause_writing(self) -> None:  # who does not read is not read from
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        self.transport.resume_reading()


async def main(hits: int, window_s: float) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, libos_asyncio.Loop)
    limiter, end = Limiter(hits), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end.set)
    windows = asyncio.create_task(limiter.go_on(window_s))
    async with await loop.create_server(lambda: Lines(limiter), loop.runtime.address, 7000):
        print("serving TCP port 7000", flush=True)
        await end.wait()
    windows.cancel()


if __name__ == "__main__":
    socket = sys.argv[1] if len(sys.argv) > 1 else "/run/corelane.sock"
    hits = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    window_ms = int(sys.argv[3]) if len(sys.argv) > 3 else 1000
    libos_asyncio.run(main(hits, window_ms / 1000), socket=socket, name="asyncio-limiter")
