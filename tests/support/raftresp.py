"""A Raft node with typed values behind a tap, and Linux' sockets to its port of RESP, in a network namespace (root)."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import resptools
from cltest import netns_missing, wait_until
from raftlink import QUICK
from respwire import parse

from corelane.apps.raft.service.logs import make_log_file
from corelane.apps.raft.service.service import RaftService, serve
from corelane.apps.raft.service.settings import LogSettings, RespSettings
from corelane.apps.resp.engine import encode
from corelane.drivers.linux import netns
from corelane.drivers.nic.tap.tap import Tap
from corelane.libos import Runtime

LINUX, OURS, PORT = "10.99.5.1", "10.99.5.2", 6379


class RespClient:
    """A connection: commands one by one."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self._got = b""

    def call(self, *words: bytes | str | int) -> bytes:
        """One command's reply, as it came."""
        self.link.sendall(encode(*words))
        return self.reply()

    def reply(self) -> bytes:
        """The next reply, or push; b"" if the connection has ended."""
        while not (self._got and (found := parse(self._got))):
            more = self.link.recv(65536)
            if not more:
                return b""
            self._got += more
        whole, self._got = self._got[: found[1]], self._got[found[1] :]
        return whole

    def __enter__(self) -> RespClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.link.close()


class RespNode:
    """The node at (OURS, PORT); `space` is the namespace from which it is reached."""

    def __init__(self, space: netns.Namespace, service: RaftService, runtime: Runtime) -> None:
        self.space, self.service, self.runtime = space, service, runtime

    def client(self) -> RespClient:
        with self.space.entered():
            link = socket.create_connection((OURS, PORT), 30)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return RespClient(link)

    def stat(self, name: str) -> int:
        """One of the service's counters."""
        return int(self.service.stats()[name])

    def await_lead(self) -> None:
        """Until it executes commands."""
        wait_until(lambda: self.stat("port_resp_leads"), 60, "the node to lead")

    def run(self, program: str, *words: str, stdin: str = "") -> str:
        """What a program of Redis' says that is pointed at the node."""
        return resptools.run(self.space, (OURS, PORT), program, *words, stdin=stdin)


@contextlib.contextmanager
def resp_node(
    *, peers: dict[int, tuple[str, int]] | None = None, log: str = "", log_bytes: int = 32 << 20, **settings: int
) -> Iterator[RespNode]:
    """A node, alone if no other peers are given; log: a file, made if there is none; settings: of the core."""
    if missing := netns_missing():
        pytest.skip(missing)
    if log and not Path(log).exists():
        make_log_file(log, log_bytes)
    with netns.namespace("resp") as space:
        with space.entered():
            nic = Tap(address=f"{LINUX}/24", ipv4=f"{OURS}/24", queues=1)
        with nic, Runtime(nic=nic, address=f"{OURS}/24", kthreads=1, poll="block") as runtime:
            service = serve(
                runtime,
                1,
                {1: (OURS, 7400), **(peers or {})},
                resp=RespSettings(port=PORT),
                group=QUICK,
                log=LogSettings(file=log or None),
                **settings,
            )
            try:
                runtime.start()
                made = RespNode(space, service, runtime)
                if not peers:
                    made.await_lead()
                yield made
            finally:
                runtime.stop()
                service.close()
