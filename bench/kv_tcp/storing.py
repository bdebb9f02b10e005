"""Storing all items of a key space through a connection of Linux', before anything is measured."""

from __future__ import annotations

import socket

from ...runtime.errors import CorelaneError
from .scripts import Space

TOGETHER_BYTES = 1 << 15  # of values that are stored at once


def store_all(link: socket.socket, space: Space, protocol: str) -> None:
    """Store them in pieces that are answered before the next one, by "memcached" or "redis"; closes the connection.
    Raises CorelaneError if the server closes it first."""
    pairs = list(space.stores(protocol))
    together = max(TOGETHER_BYTES // space.value_bytes, 1)
    with link:
        for at in range(0, len(pairs), together):
            part = pairs[at : at + together]
            link.sendall(b"".join(ask for ask, _ in part))
            left = sum(len(answer) for _, answer in part)
            while left:
                got = len(link.recv(left))
                if not got:
                    raise CorelaneError(f"store items by {protocol}", "the server closed the connection")
                left -= got
