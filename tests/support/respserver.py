"""The engine of resp on a runtime behind a tap, and Linux' programs to it, in a network namespace (root)."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import pytest
import resptools
from cltest import netns_missing

from corelane import libos
from corelane.apps import registry
from corelane.apps.resp.app import RespService
from corelane.drivers.linux import netns
from corelane.drivers.nic.tap.tap import Tap

LINUX, OURS, PORT = "10.99.3.1", "10.99.3.2", 6379


class Served:
    """An engine at OURS, and the namespace in which Linux is at the other end."""

    def __init__(self, space: netns.Namespace, runtime: libos.Runtime, service: RespService) -> None:
        self.space, self.runtime, self.service = space, runtime, service

    def connect(self) -> socket.socket:
        with self.space.entered():
            s = socket.create_connection((OURS, PORT), timeout=60)
        s.settimeout(60)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return s

    def run(self, program: str, *words: str, stdin: str = "") -> str:
        """What a program of Redis' says that is pointed at the engine."""
        return resptools.run(self.space, (OURS, PORT), program, *words, stdin=stdin)

    def stat(self, name: str) -> int:
        """One of the service's counters."""
        return self.service.stats()[name]

    def clients(self) -> int:
        """Connections that are open."""
        stats = self.service.stats()
        return stats["accepted"] - stats["closed"]


@contextlib.contextmanager
def serving(queues: int = 1, **options: Any) -> Iterator[Served]:
    if missing := netns_missing():
        pytest.skip(missing)
    app = registry.load("resp")
    with netns.namespace("linux") as space:
        with space.entered():
            nic = Tap(address=f"{LINUX}/24", ipv4=f"{OURS}/24", queues=queues)
        with nic:
            runtime = libos.Runtime(nic=nic, address=f"{OURS}/24")
            service = app.setup(runtime, app.options(**options))
            assert isinstance(service, RespService)
            runtime.start()
            try:
                yield Served(space, runtime, service)
            finally:
                runtime.stop()
                service.engine.check()
                runtime.close()
                service.close()
