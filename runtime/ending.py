"""The end of something that serves: is set once, by a call or by SIGINT and SIGTERM, and waited for.

threading.Event does not do for it: a handler that sets one while its thread holds the event's lock waits for ever, and
a signal that comes between the interpreter's last look and the system call is told of when the wait is over. Here
a system call without a lock sets it, and the C handler of a signal writes to a socket that is waited for as well
(signal.set_wakeup_fd).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def end_now(status: int) -> NoReturn:
    """End the process at once, though threads run that cannot be ended: what is printed gets out, and no more."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # closed at the other end, or here
            stream.flush()
    os._exit(status)


def exit_address() -> int:
    """Address of C's `_exit`, for a thread that ends the process without the interpreter."""
    import ctypes

    return ctypes.cast(ctypes.CDLL(None)._exit, ctypes.c_void_p).value or 0


class Ending:
    """Not set at first. Any thread, and a signal handler, may set it; any thread may wait."""

    _fd = -1

    def __init__(self) -> None:
        self._signalled = -1  # our end of the socket, while signals end us
        self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def set(self) -> None:
        """From now on nobody waits."""
        if self._fd >= 0:  # the collector may finalize us before who has us
            os.eventfd_write(self._fd, 1)

    @property
    def descriptors(self) -> tuple[int, int]:
        """One that is readable once this is set, and the socket that signals come by (-1 outside of `by_signals`).

        Not to be read from: for who polls.
        """
        return self._fd, self._signalled

    def wait(self, timeout_s: float | None = None) -> bool:
        """Sleep until it is set, then True; False: time is over."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        if self._signalled >= 0 and threading.current_thread() is threading.main_thread():
            poll.register(self._signalled, select.POLLIN)
        while True:
            left_ms = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
            ready = [fd for fd, _ in poll.poll(left_ms)]
            if self._fd in ready:
                return True
            if not ready:
                return False
            if any(number in SIGNALS for number in os.read(self._signalled, 4096)):
                self.set()  # its handler does so, too, at a time of the interpreter's choice

    @contextlib.contextmanager
    def by_signals(self) -> Iterator[None]:
        """On the main thread SIGINT and SIGTERM set it, also where they come before `wait`. On another: nothing."""
        if threading.current_thread() is not threading.main_thread() or self._signalled >= 0:
            yield
            return

        def on_signal(number: int, frame: FrameType | None) -> None:
            self.set()

        ours, theirs = socket.socketpair()  # not a pipe: another thread may look what is in it, and leave it there
        ours.setblocking(False)
        theirs.setblocking(False)
        self._signalled, written = ours.detach(), theirs.detach()
        wakes = signal.set_wakeup_fd(written, warn_on_full_buffer=False)
        before = {number: signal.signal(number, on_signal) for number in SIGNALS}
        try:
            yield
        finally:
            for number, action in before.items():
                signal.signal(number, action)
            signal.set_wakeup_fd(wakes)
            signalled, self._signalled = self._signalled, -1
            os.close(written)
            os.close(signalled)

    def __del__(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)
