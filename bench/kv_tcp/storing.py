"""Storing all items of a key space before anything is measured: through a connection of Linux', or in a store of ours
without a network."""

from __future__ import annotations

import itertools
import socket

from ...apps.kv import Session, Store
from ...runtime.errors import CorelaneError
from .scripts import Space

TOGETHER_BYTES = 1 << 15  # of values that are stored at once
HERE_BYTES = 1 << 17  # the same, without a network


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


def store_here(store: Store, space: Space) -> None:
    """Store them in ours, many commands at once: a call for each item takes a second for 100,000. CorelaneError if one
    is refused."""
    session, pairs = Session(store), space.stores("memcached")
    together = max(HERE_BYTES // space.value_bytes, 1)
    while part := [*itertools.islice(pairs, together)]:
        if session.execute(b"".join(ask for ask, _ in part)) != b"".join(answer for _, answer in part):
            raise CorelaneError("store items", "one was refused")
