"""One Raft node with the store behind a tap, and Linux' sockets to it, in a network namespace (root)."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest
from cltest import netns_missing, wait_until
from kvserver import LINUX, OURS, PORT, KvClient
from raftlink import QUICK, await_lead

from corelane.apps.raft.service.service import RaftService, serve
from corelane.apps.raft.service.settings import TcpSettings
from corelane.drivers.linux import netns
from corelane.drivers.nic.tap.tap import Tap
from corelane.libos import Runtime


class RaftServer:
    """The store at (OURS, PORT); `space` is the namespace from which it is reached."""

    def __init__(self, space: netns.Namespace, service: RaftService, runtime: Runtime) -> None:
        self.space, self.service, self.runtime = space, service, runtime

    def client(self, timeout_s: float = 30.0) -> KvClient:
        with self.space.entered():
            s = socket.create_connection((OURS, PORT), timeout_s)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return KvClient(s)

    def stat(self, name: str) -> int:
        """One of the service's counters."""
        return int(self.service.stats()[name])

    def wait_for(self, name: str, value: int) -> None:
        wait_until(lambda: self.stat(name) == value, 60.0, lambda: f"{name} to be {value}, it is {self.stat(name)}")


@contextlib.contextmanager
def raft_server(*, peers: dict[int, tuple[str, int]] | None = None, **tcp: int) -> Iterator[RaftServer]:
    """A node, alone if no other peers are given. Afterwards nobody is connected, nothing is held."""
    if missing := netns_missing():
        pytest.skip(missing)
    with netns.namespace("raft") as space:
        with space.entered():
            nic = Tap(address=f"{LINUX}/24", ipv4=f"{OURS}/24", queues=1)
        with nic, Runtime(nic=nic, address=f"{OURS}/24", kthreads=1, poll="block") as runtime:
            places = {1: (OURS, 7400), **(peers or {})}
            service = serve(runtime, 1, places, kv_port=PORT, tcp=TcpSettings(port=PORT, **tcp), group=QUICK)
            try:
                runtime.start()
                if not peers:
                    await_lead(service)
                made = RaftServer(space, service, runtime)
                yield made
                made.wait_for("conn_connections", 0)
                assert made.stat("conn_held_bytes") == 0
            finally:
                assert runtime.stop() == 0
                service.close()
