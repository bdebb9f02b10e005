"""TCP with Linux under random users, over a bad wire: tiny and odd windows and segments, urgent bytes, slow readers,
half-closes, resets and closes at any time.

What comes back from our echo is what was sent, up to where a user gives up; in the end nothing is left of any.
"""

from __future__ import annotations

import contextlib
import random
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from cltest import soak, wait_until

from corelane.drivers.nic.fault import FaultNic, Faults
from corelane.drivers.nic.nic import Nic

pytestmark = pytest.mark.root

FAULTS = Faults(loss=0.003, duplicate=0.01, reorder=0.02, corrupt=0.002)
ENDS = ("shutdown", "shutdown", "reset", "close")
LATE_S = 60.0


def odd_options(s: socket.socket, r: random.Random) -> None:
    """Before it connects: buffers, windows and segments of any size."""
    if r.random() < 0.5:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, r.choice((2048, 5000, 20000)))
    if r.random() < 0.3:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP, r.choice((500, 1500, 4000)))
    if r.random() < 0.3:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, r.choice((100, 536, 1000)))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, r.random() < 0.5)


class User:
    """It sends `data` to an echo, looks at what comes back, and ends in one of the ENDS."""

    def __init__(self, data: bytes, r: random.Random) -> None:
        self.data, self.r = data, r
        self.sent = self.got = 0
        self.end = r.choice(ENDS)
        self.enough = r.randrange(len(data) + 1)  # of one that does not stay to the end
        self.failed: BaseException | None = None

    def run(self, s: socket.socket) -> None:
        try:
            with s:
                self._use(s)
        except BaseException as error:
            self.failed = error

    def _use(self, s: socket.socket) -> None:
        s.setblocking(False)
        if not self.data:
            s.shutdown(socket.SHUT_WR)
        late = time.monotonic() + LATE_S
        while time.monotonic() < late:
            if self.end in ("reset", "close") and self.sent >= self.enough:
                if self.end == "reset":
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return
            writes = [s] if self.sent < len(self.data) else []
            readable, writable, _ = select.select([s], writes, [], 1.0)
            if readable and self._read(s):
                return
            if writable:
                self._write(s)
            if self.r.random() < 0.05:
                time.sleep(self.r.random() * 0.01)
        raise AssertionError(f"{self.end}: {self.sent} of {len(self.data)} sent, {self.got} came back, and no more")

    def _write(self, s: socket.socket) -> None:
        piece = self.data[self.sent : self.sent + self.r.randrange(1, 20000)]
        flags = 0
        if self.r.random() < 0.05:
            piece, flags = piece[:1], socket.MSG_OOB
        with contextlib.suppress(BlockingIOError):
            self.sent += s.send(piece, flags)
        if self.sent == len(self.data):
            s.shutdown(socket.SHUT_WR)

    def _read(self, s: socket.socket) -> bool:
        """Whether that was the end."""
        part = s.recv(self.r.randrange(1, 30000))
        assert part == self.data[self.got : self.got + len(part)], f"wrong bytes from {self.got} on"
        self.got += len(part)
        if not part:
            assert self.got == len(self.data) == self.sent
        return not part


def all_run(users: list[User], sockets: list[socket.socket]) -> None:
    threads = [threading.Thread(target=u.run, args=(s,)) for u, s in zip(users, sockets, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for user in users:
        if user.failed:
            raise user.failed


@pytest.mark.soak(short=True, takes_s=60)
@pytest.mark.parametrize("kthreads", [1, 2])
def test_bytes_are_right_and_nothing_is_left(ours_behind: Callable[..., Any], kthreads: int, seed: int) -> None:
    r = random.Random(seed)

    def bad(nic: Nic) -> Nic:
        return FaultNic(nic, rx=FAULTS, tx=FAULTS, seed=seed)

    with ours_behind("tap", kthreads, bad) as ours:
        for _ in range(soak.examples(1, 50)):
            users = [
                User(ours.pattern(0, r.choice((0, 1, 3000, 60_000))), random.Random(r.random())) for _ in range(24)
            ]
            half = len(users) // 2
            with ours.socket(listens=64) as listener, contextlib.ExitStack() as stack:
                odd_options(listener, r)
                ours.open("echo", listener.getsockname()[1], half)
                sockets = [stack.enter_context(listener.accept()[0]) for _ in range(half)]
                for _ in range(len(users) - half):
                    s = stack.enter_context(ours.socket())
                    odd_options(s, r)
                    s.connect(ours.address("echo"))
                    sockets.append(s)
                all_run(users, sockets)
            wait_until(lambda: ours.alive == 0, 120.0, lambda: f"all to be over, {ours.alive} are not")
            ours.forget_resets()
