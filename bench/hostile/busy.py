"""Stand-ins for an attacker and for the control thread, which it keeps busy: as much CPU time each, in as many pieces,
and nothing else. Two processes, with a socket between them.

What the kernel does for a process cannot always be interrupted for somebody else, so it is not alike whether CPU time
goes into that or into computing. Where an attack had the kernel work, the stand-in has as much of the same done,
without an iokernel: memory that is written and given back, files that are made and deleted.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import socket
import time
from pathlib import Path

from ...drivers.blk import file as blk_file
from ...runtime.files import sync_folder
from .attacks import AREA_BYTES, TOUCHED_BYTES, Steps

WAIT_S = 0.02  # for the other one, which may have ended


def asker(
    share: float, pieces: float, asks: float, sock: socket.socket, *, sleeps: bool, touches: float = 0.0
) -> Steps:
    """Uses a share of a CPU in so many pieces a second, and asks so often. sleeps: it does so after each piece, and
    waits for its last answer; False: it computes without end, and its share is what it gets. touches: memory that it
    writes and gives back, in times a second; it is part of its share."""
    period_s = 1 / (pieces if sleeps else asks)
    begin, owed, used, untouched = time.monotonic(), 0.0, time.thread_time(), 0.0
    while True:
        yield
        untouched += touches * period_s
        while untouched >= 1:
            touch()
            untouched -= 1
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


def answerer(share: float, pieces: float, sock: socket.socket, *, changes: float = 0.0, folder: str = "") -> Steps:
    """Uses a share of a CPU in so many pieces a second, each when it is asked. changes: files that it makes or deletes
    in a folder, in times a second; they are part of its share."""
    used, unchanged = time.thread_time(), 0.0
    with contextlib.closing(change(folder)) as changed:
        while True:
            yield
            if select.select([sock], [], [], WAIT_S)[0]:
                sock.recv(1)
                unchanged += changes / pieces
                while unchanged >= 1:
                    next(changed)
                    unchanged -= 1
                used = _compute(used, share / pieces)
                with contextlib.suppress(BlockingIOError):
                    sock.send(b"a")


def touch() -> None:
    """What the attack on memory does with an arena: write some of it, and give it back."""
    fd = os.memfd_create("stand-in")
    try:
        os.ftruncate(fd, TOUCHED_BYTES)
        with mmap.mmap(fd, TOUCHED_BYTES) as memory:
            memory[:] = bytes(TOUCHED_BYTES)
    finally:
        os.close(fd)


def change(folder: str) -> Steps:
    """What the iokernel does when somebody makes a storage area, and when he deletes it, by turns."""
    path = Path(folder) / f"stand-in-{os.getpid()}"
    try:
        while True:
            blk_file.create(path, AREA_BYTES)
            yield
            path.unlink()
            sync_folder(path.parent)
            yield
    finally:
        path.unlink(missing_ok=True)


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
