"""Connections as they come out of the listener's queue (accept.c): the next living one, and how many came of whom."""

from __future__ import annotations

import socket
from collections import Counter
from dataclasses import dataclass, field

from .._native import ffi, lib

_USERS = 8  # one after the other


@dataclass(slots=True)
class Came:
    """What was taken. sock: one that lives; it does not block. users: how many came of each user, with those that had
    gone. error: errno of what ended it, EAGAIN if the queue is empty; 0: more may wait."""

    sock: socket.socket | None = None
    users: Counter[int] = field(default_factory=Counter)
    error: int = 0


class Callers:
    """Takes from a listening socket, which belongs to who made this. drop: nothing that may block is closed with what
    those have sent who have gone (descriptors.py)."""

    def __init__(self, listener: int, *, drop: bool) -> None:
        self._listener, self._drop = listener, drop
        self._callers = ffi.new("struct cl_io_caller[]", _USERS)
        self._error = ffi.new("int *")

    def take(self, most: int) -> Came:
        """The next one that lives and all before it, but not more than `most` in all. The socket is the caller's."""
        came = Came()
        n = lib.cl_io_accept(self._listener, self._drop, most, self._callers, _USERS, self._error)
        for one in self._callers[0:n]:
            came.users[one.uid] += one.gone + (one.fd >= 0)
            if one.fd >= 0:
                came.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fileno=one.fd)
                came.sock.setblocking(False)
        came.error = int(self._error[0])
        return came
