"""The http application on a NIC, with Linux and its programs at the other end of the link."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from cltest import netns_missing, wait_until
from cltest.netns import skip_without_af_xdp

from corelane import libos
from corelane.apps import registry
from corelane.drivers.linux import netns
from corelane.drivers.nic.af_xdp.af_xdp import AfXdp
from corelane.drivers.nic.nic import Nic
from corelane.drivers.nic.tap.tap import Tap

LINUX, OURS = "10.98.0.1", "10.98.0.2"
_PACKAGES = {"ab": "apache2-utils", "nginx": "nginx-light", "chromium": "chromium"}


def needs(program: str) -> None:
    """Skip the test if a program is missing, with the package that has it."""
    if shutil.which(program) is None:
        pytest.skip(f"needs {program}: apt-get install {_PACKAGES.get(program, program)}")


class Served:
    """A server at OURS:port; `space` is the namespace in which Linux has LINUX on the same link."""

    address = OURS

    def __init__(self, space: netns.Namespace, runtime: libos.Runtime, service: Any, port: int) -> None:
        self.space, self.runtime, self.service, self.port = space, runtime, service, port

    def url(self, path: str = "/", scheme: str = "http") -> str:
        return f"{scheme}://{OURS}:{self.port}{path}"

    def connect(self, port: int = 0) -> socket.socket:
        """A connection of Linux' to that port, or the first one."""
        with self.space.entered():
            link = socket.create_connection((OURS, port or self.port), timeout=60)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return link

    def stats(self) -> dict[str, int]:
        return dict(self.service.stats())

    def run(self, argv: Sequence[str], timeout_s: float = 120.0) -> bytes:
        """What a program prints that runs in the namespace and has to succeed."""
        needs(argv[0])
        done = subprocess.run(self.space.command(argv), capture_output=True, timeout=timeout_s, check=False)
        assert done.returncode == 0, (argv, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
        return done.stdout

    def start(self, argv: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        """A program that runs in the namespace."""
        needs(argv[0])
        return subprocess.Popen(self.space.command(argv), **options)


@contextmanager
def _nic(kind: str, queues: int) -> Iterator[tuple[netns.Namespace, Nic]]:
    if kind == "tap":
        with netns.namespace("http") as space:
            with space.entered():
                nic = Tap(address=f"{LINUX}/24", ipv4=f"{OURS}/24", queues=queues)
            yield space, nic
        return
    skip_without_af_xdp()
    with netns.link(queues=queues, addresses=(OURS, LINUX)) as (near, far):
        with near.namespace.entered():
            xdp = AfXdp(near.name, queues, addresses=[f"{OURS}/24"])
        yield far.namespace, xdp


@contextmanager
def served_on(kind: str, kthreads: int = 1, **options: Any) -> Iterator[Served]:
    """A server with these options. At the end nothing of it is left."""
    if missing := netns_missing():
        pytest.skip(missing)
    app = registry.load("http")
    chosen = app.options(**options)
    with _nic(kind, kthreads) as (space, nic), nic:
        with libos.Runtime(nic=nic, address=f"{OURS}/24", kthreads=kthreads) as runtime:
            service: Any = app.setup(runtime, chosen)
            runtime.start()
            try:
                yield Served(space, runtime, service, chosen.port)
                service.drain()
                wait_until(lambda: service.stats()["alive"] == 0, 60.0, "connections to end")
            finally:
                runtime.stop()
                used = service.stats()["used_bytes"]
                runtime.close()
                service.close()
        assert used == 0
