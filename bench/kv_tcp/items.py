"""Memory per item: how many items a store of so much memory holds before it evicts the first ones."""

from __future__ import annotations

import socket

from ...apps.kv import Store
from ..baseline.memcached import Memcached, preload_tcp
from .scripts import Space
from .storing import store_here


def ours(memory_mib: int, space: Space) -> int:
    """Items that our store holds when all were offered."""
    with Store(memory_mib << 20, huge_pages=0) as store:
        store_here(store, space)
        return store.usage()["items"]


def memcached(memory_mib: int, space: Space) -> int:
    """The same of stock memcached, with as much memory for items (-m)."""
    with (
        Memcached(memory_mib=memory_mib) as server,
        socket.create_connection((server.address, server.tcp_port), timeout=120) as link,
    ):
        return preload_tcp(link, space.items())
