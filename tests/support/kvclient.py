"""A memcached UDP client for tests, against whatever listens, and a wait for a server's counters to settle."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable

HEADER = struct.Struct(">HHHH")  # request id, sequence, datagrams, zero


def settled(stats: Callable[[], dict[str, int]]) -> dict[str, int]:
    """A baseline server's counters once they balance: an answer may arrive before the server has counted it."""
    deadline = time.monotonic() + 60
    while True:
        seen = stats()
        if seen["received"] == seen["answered"] + seen["silent"] + seen["failed"]:
            return seen
        assert time.monotonic() < deadline, seen


class UdpClient:
    """Sends requests to 127.0.0.1:port and puts answers together."""

    def __init__(self, port: int, timeout_s: float = 60.0) -> None:
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self._sock.connect(("127.0.0.1", port))
        self._sock.settimeout(timeout_s)
        self._id = 0

    def send(self, datagram: bytes) -> None:
        """Send bytes as they are."""
        self._sock.send(datagram)

    def receive(self) -> bytes:
        """One datagram as it is."""
        return self._sock.recv(1 << 16)

    def ask(self, payload: bytes, total: int = 1) -> list[bytes]:
        """The datagrams of the answer, in order of their sequence numbers, headers checked and taken off."""
        self._id = (self._id + 1) & 0xFFFF
        self.send(HEADER.pack(self._id, 0, total, 0) + payload)
        parts: dict[int, bytes] = {}
        while True:
            datagram = self.receive()
            number, sequence, datagrams, reserved = HEADER.unpack_from(datagram)
            if number != self._id:
                continue  # answer to an earlier question, one that was sent raw
            assert reserved == 0
            assert sequence not in parts
            parts[sequence] = datagram[HEADER.size :]
            if len(parts) == datagrams:
                return [parts[i] for i in range(datagrams)]

    def close(self) -> None:
        self._sock.close()

    def __enter__(self) -> UdpClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
