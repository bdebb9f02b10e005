"""The store on a runtime of its own behind a tap, and Linux' sockets to it, in a network namespace (root)."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from cltest import netns_missing, wait_until

from corelane.apps.kv.app import KvService, Options
from corelane.drivers.linux import netns
from corelane.drivers.nic.tap.tap import Tap
from corelane.libos import Runtime

LINUX, OURS = "10.98.0.1", "10.98.0.2"
PORT = 11211


def lines(answer: bytes) -> dict[str, str]:
    """Statistics by name."""
    return dict(line.split(" ", 2)[1:] for line in answer.decode().splitlines() if line.startswith("STAT"))


class KvServer:
    """The store at (OURS, PORT); `space` is the namespace from which it is reached."""

    address = (OURS, PORT)

    def __init__(self, space: netns.Namespace, runtime: Runtime, service: KvService) -> None:
        self.space, self.runtime, self.service, self.store = space, runtime, service, service.store

    def connect(self, timeout_s: float = 30.0) -> socket.socket:
        """A connection, without Nagle: what is sent at once arrives as it was sent."""
        with self.space.entered():
            s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        s.settimeout(timeout_s)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        s.connect(self.address)
        return s

    def client(self, timeout_s: float = 30.0) -> KvClient:
        return KvClient(self.connect(timeout_s))

    def stat(self, name: str) -> int:
        """One of the service's counters."""
        return int(self.service.stats()[name])

    def wait_for(self, name: str, value: int) -> None:
        wait_until(lambda: self.stat(name) == value, 60.0, lambda: f"{name} to be {value}, it is {self.stat(name)}")


class KvClient:
    """One connection, and the answers that come by it."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link

    def send(self, data: bytes) -> None:
        self.link.sendall(data)

    def take(self, size: int) -> bytes:
        """So many bytes."""
        parts = []
        while size:
            parts.append(self.link.recv(min(size, 1 << 20)))
            assert parts[-1], f"the end came, and {size} bytes did not: {b''.join(parts)[-200:]!r}"
            size -= len(parts[-1])
        return b"".join(parts)

    def until(self, end: bytes) -> bytes:
        """What comes up to `end`, which nothing follows."""
        answer = b""
        while not answer.endswith(end):
            part = self.link.recv(1 << 16)
            assert part, f"the end came after {answer!r}"
            answer += part
        return answer

    def ask(self, data: bytes, end: bytes = b"\r\n") -> bytes:
        """The answer to commands, of which the last ends with `end`."""
        self.send(data)
        return self.until(end)

    def ended(self) -> bytes:
        """What comes up to the end of the connection."""
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while part := self.link.recv(1 << 20):
                answer += part
        return answer

    def close(self) -> None:
        self.link.close()

    def __enter__(self) -> KvClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextlib.contextmanager
def kv_server(kthreads: int = 1, **options: Any) -> Iterator[KvServer]:
    """A server with a clock that the test moves (`store.time_s`). Afterwards nobody is connected, nothing is held."""
    if missing := netns_missing():
        pytest.skip(missing)
    with netns.namespace("kv") as space:
        with space.entered():
            nic = Tap(address=f"{LINUX}/24", ipv4=f"{OURS}/24", queues=kthreads)
        with nic, Runtime(nic=nic, address=f"{OURS}/24", kthreads=kthreads, poll="block") as runtime:
            options = {"huge_pages": 0, "memory_bytes": 32 << 20, **options}
            service = KvService(runtime, Options(port=PORT, **options), manual_clock=True)
            try:
                runtime.start()
                made = KvServer(space, runtime, service)
                yield made
                made.wait_for("conn_connections", 0)
                assert made.stat("conn_held_bytes") == 0
                service.store.check()
            finally:
                assert runtime.stop() == 0
                service.close()
