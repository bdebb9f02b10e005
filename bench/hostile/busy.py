"""Stand-ins for an attacker and for the control thread, which it keeps busy: as much CPU time each, in as many pieces,
and nothing else. Two processes, with a socket between them.

Who wakes whom decides how long a third one waits on their core: a thread that is woken by another takes that one's
place, one that a timer wakes takes anybody's. So the attacker's asks the other one for each of its pieces.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time

from .attacks import Steps

WAIT_S = 0.02  # for the other one, which may have ended


def asker(share: float, pieces: float, asks: float, sock: socket.socket, *, sleeps: bool) -> Steps:
    """Uses a share of a CPU in so many pieces a second, and asks so often. sleeps: it does so after each piece, and
    waits for its last answer; False: it computes without end, and its share is what it gets."""
    period_s = 1 / (pieces if sleeps else asks)
    begin, owed, used = time.monotonic(), 0.0, time.thread_time()
    while True:
        yield
        owed += asks * period_s
        n, owed = int(owed), owed % 1
        for left in range(max(n, 1), 0, -1):
            if sleeps:
                used = _compute(used, share * period_s / max(n, 1))
            if n:
                _ask(sock, wait=sleeps and left == 1)
        begin = max(begin + period_s, time.monotonic() - period_s)  # what it could not have is not caught up on
        if sleeps:
            time.sleep(max(0.0, begin - time.monotonic()))
        else:
            while time.monotonic() < begin:
                pass


def answerer(share: float, pieces: float, sock: socket.socket) -> Steps:
    """Uses a share of a CPU in so many pieces a second, each when it is asked."""
    used = time.thread_time()
    while True:
        yield
        if select.select([sock], [], [], WAIT_S)[0]:
            sock.recv(1)
            used = _compute(used, share / pieces)
            with contextlib.suppress(BlockingIOError):
                sock.send(b"a")


def _compute(used: float, cpu_s: float) -> float:
    """Have used so much CPU time since it was `used`, with all that was done meanwhile. Returns what it is then."""
    until = max(used, time.thread_time() - cpu_s) + cpu_s
    while time.thread_time() < until:
        pass
    return until


def _ask(sock: socket.socket, *, wait: bool) -> None:
    with contextlib.suppress(BlockingIOError):
        while not wait and sock.recv(64):  # answers to what was asked before
            pass
    with contextlib.suppress(BlockingIOError):
        sock.send(b"q")
        if wait and select.select([sock], [], [], WAIT_S)[0]:
            sock.recv(64)
