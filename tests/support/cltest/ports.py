"""Ports of loopback for servers that are told theirs."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket

# Below those that the kernel chooses from (ip_local_port_range), and those of bench/baseline/peers.py.
_FIRST, _PORTS = 10_000, 12_000
_numbers = itertools.count(os.getpid() * 499)  # tests that run beside each other begin at different ones


def free_port() -> int:
    """One that nobody has, of TCP nor of UDP. One of the kernel's choice (port 0) would not do: when it is given back,
    the next connection of another test may get it, before the server is there."""
    while True:
        port = _FIRST + next(_numbers) % _PORTS
        with contextlib.suppress(OSError), socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
            tcp.bind(("127.0.0.1", port))
            udp.bind(("127.0.0.1", port))
            return port
