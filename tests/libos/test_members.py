"""Runtimes that are members of a group: one takes another's place, and no request is lost (docs/groups.md)."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pytest
from cltest import wait_until
from cltest.switching import between

from corelane import libos
from corelane.apps.echo import handler as echo_handler
from corelane.drivers._native import lib
from corelane.drivers.port.port import Port, open_port
from corelane.iokernel import AppConfig, Iokernel


@pytest.fixture
def io(socket_path: str) -> Iterator[Iokernel]:
    with Iokernel(socket_path, apps={"kv": AppConfig(members=3)}) as iokernel:
        yield iokernel


@pytest.fixture
def client(io: Iokernel, socket_path: str) -> Iterator[Port]:
    with open_port(socket_path, name="client") as port:
        yield port


class Asking(threading.Thread):
    """Sends requests of 64 flows, 32 at a time, and waits for their replies, until `over` is set."""

    def __init__(self, client: Port, server: Port) -> None:
        super().__init__()
        self._client, self._server = client, server
        self.over = threading.Event()
        self.asked = 0
        self.answered: set[int] = set()

    def run(self) -> None:
        while not self.over.is_set():
            wanted = range(self.asked, self.asked + 32)
            requests = [between(self._client, self._server, n.to_bytes(8, "big"), n % 64) for n in wanted]
            self.asked += self._client.send(requests)
            with contextlib.suppress(AssertionError):  # then fewer are answered than were asked
                wait_until(lambda: self._take() or len(self.answered) == self.asked, 5)
            if len(self.answered) < self.asked:
                return

    def go_on(self) -> None:
        """Wait until 200 more are answered, or one is not."""
        before = len(self.answered)
        wait_until(lambda: len(self.answered) > before + 200 or not self.is_alive())

    def _take(self) -> bool:
        for frame in self._client.recv(64):
            if frame[12:14] == b"\x08\x00":
                self.answered.add(int.from_bytes(frame[42:50], "big"))
        return False


def served(socket_path: str, kthreads: int = 1) -> libos.Runtime:
    runtime = libos.Runtime(socket_path, name="kv", kthreads=kthreads, poll="block")
    runtime.bind(echo_handler(), 9000)
    return runtime.start()


def test_a_server_is_replaced_again_and_again_and_no_request_is_lost(io, client, socket_path):
    old = served(socket_path)
    old.ready()
    assert old.member == 0
    asking = Asking(client, old)
    asking.start()
    try:
        for turn in range(1, 5):
            asking.go_on()
            new = served(socket_path, kthreads=1 + turn % 2)
            assert new.ready(replace=True) == 1
            assert old.wait(20), "it is told that it is to drain"
            old.drain()
            assert old.stop() == 0
            old.close()
            old = new
        asking.go_on()
    finally:
        asking.over.set()
        asking.join()
    assert len(asking.answered) == asking.asked > 1000
    old.close()
    assert io.stats()["departed"]["buffers_lost"] == 0


def test_what_is_of_no_group_is_ready_and_drains_at_once(io, socket_path):
    with libos.Runtime(socket_path, name="alone") as alone:
        alone.start()
        assert alone.member is None
        assert alone.ready(replace=True) == 0
        alone.drain()


def test_members_choose_ports_of_their_own(io, socket_path):
    with served(socket_path) as a, served(socket_path) as b:
        ports = [runtime.open_udp().port for runtime in (a, b)]
    assert ports == [lib.CL_SHM_OWN_PORTS, lib.CL_SHM_OWN_PORTS + lib.CL_SHM_MEMBER_PORTS]
