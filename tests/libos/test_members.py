"""Runtimes that are members of a group: one takes another's place, and no request is lost (docs/groups.md)."""

from __future__ import annotations

import contextlib
import ipaddress
import struct
import threading
from collections.abc import Iterator

import pytest
from cltest import packets, wait_until
from cltest.switching import ip_int, mac_bytes, udp_frame

from corelane import libos
from corelane.apps.echo import handler as echo_handler
from corelane.drivers._native import lib
from corelane.drivers.port.port import Port, open_port
from corelane.iokernel import AppConfig, Iokernel
from corelane.libos._native import ffi
from corelane.libos._native import lib as lib_of_libos
from corelane.runtime.errors import CorelaneError


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

    def __init__(self, client: Port, server: libos.Runtime) -> None:
        super().__init__()
        self._client, self._from = client, (mac_bytes(client), ip_int(client))
        self._to = bytes.fromhex(server.mac.replace(":", "")), int(ipaddress.IPv4Address(server.address))
        self.over = threading.Event()
        self.asked = 0
        self.answered: set[int] = set()

    def run(self) -> None:
        while not self.over.is_set():
            wanted = range(self.asked, self.asked + 32)
            requests = [udp_frame(self._from, self._to, n.to_bytes(8, "big"), (20000 + n % 64, 9000)) for n in wanted]
            self.asked += self._client.send(requests)
            with contextlib.suppress(AssertionError):  # then fewer are answered than were asked
                wait_until(lambda: self._take() or len(self.answered) == self.asked, 60)
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
            assert old.wait(60), "it is told that it is to drain"
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


@libos.tcp(port=7000, compiled=False)
def upper(data: bytes) -> tuple[int, bytes]:
    """Answers in capitals."""
    return len(data), bytes(data).upper()


def serve_streams(socket_path: str) -> libos.Runtime:
    runtime = libos.Runtime(socket_path, name="kv", poll="block")
    runtime.bind(upper)
    runtime.start()
    runtime.ready(replace=True)
    return runtime


def ask(streams: list[libos.TcpStream]) -> None:
    for number, stream in enumerate(streams):
        stream.write(b"question %d" % number, timeout_s=10)
    for number, stream in enumerate(streams):
        assert stream.read(timeout_s=10) == b"QUESTION %d" % number


def test_connections_stay_with_the_member_that_has_them(io, socket_path):
    """Of two replacements: the third one's segments come to the first by two that send them back."""
    connections: list[list[libos.TcpStream]] = []
    members: list[libos.Runtime] = []
    with contextlib.ExitStack() as stack:
        asking = stack.enter_context(libos.Runtime(socket_path, name="client", poll="block")).start()
        for _ in range(3):
            members.append(stack.enter_context(serve_streams(socket_path)))
            new = [asking.connect_tcp((members[0].address, 7000), timeout_s=10) for _ in range(8)]
            connections.append([stack.enter_context(one) for one in new])
            for these in connections:
                ask(these)
        assert [member.stats().net["tcp_resets_sent"] for member in members] == [0, 0, 0]
        assert handed_on(io) > 0
        assert [accepted(member) for member in members] == [8, 8, 8]
        first, mine = members[0], connections[0]
        first.drain()
        with pytest.raises(CorelaneError, match="8 connections are still open"):
            first.wait_closed(0.01)
        for one in mine:
            one.close()
        first.wait_closed(10)
        assert first.stop() == 0
        first.close()
        for these in connections[1:]:
            ask(these)
        members[1].close()  # with 8 connections: they are ended
        ask(connections[2])


def heard(client: Port, port: int) -> list[tuple[int, int, int, bytes]]:
    """Flags, number, acknowledgement and data of the segments that have come to that port."""
    out = []
    for frame in client.recv(64):
        if frame[12:14] == b"\x08\x00" and int.from_bytes(frame[36:38], "big") == port:
            seq, ack, offset, flags = struct.unpack(">IIBB", frame[38:48])
            out.append((flags, seq, ack, frame[34 + 4 * (offset >> 4) : 14 + int.from_bytes(frame[16:18], "big")]))
    return out


def test_a_syn_that_two_members_have_answered_makes_one_connection(io, client, socket_path):
    """The peer takes the answer of the old one, which was long under way; the new one is told so, and asked."""
    mac, ip, port = mac_bytes(client).hex(":"), str(ipaddress.IPv4Address(ip_int(client))), 20000
    answers: list[tuple[int, int, int, bytes]] = []

    def say(flags: int, seq: int, ack: int = 0, data: bytes = b"") -> None:
        segment = packets.tcp(data, ip, old.address, port, 7000, flags, seq=seq, ack=ack)
        assert client.send([packets.ethernet(packets.ipv4(segment, ip, old.address, 6), mac, old.mac)]) == 1

    def answer(flags: int, ack: int) -> tuple[int, int, int, bytes]:
        """The next one with these flags that acknowledges this."""

        def come() -> bool:
            answers.extend(heard(client, port))
            return any((a[0], a[2]) == (flags, ack) for a in answers)

        wait_until(come)
        found = next(a for a in answers if (a[0], a[2]) == (flags, ack))
        answers.remove(found)
        return found

    with serve_streams(socket_path) as old:
        say(2, 1000)
        _, first, _, _ = answer(2 | 16, 1001)
        with serve_streams(socket_path) as new:
            say(2, 1000)
            wait_until(lambda: new.stats().net["tcp_segments"] > 0)
            say(16, 1001, first + 1)
            say(16 | 8, 1001, first + 1, b"question")
            assert answer(16 | 8, 1009)[3] == b"QUESTION"
            assert (accepted(old), accepted(new)) == (1, 0)
            assert not [a for a in answers if a[0] & 4], "nothing is reset"


def handed_on(io: Iokernel) -> int:
    return sum(int(app["tx_handed_on"]) for app in io.stats()["apps"])


def accepted(runtime: libos.Runtime) -> int:
    counts = ffi.new("struct cl_tcp_counts *")
    lib_of_libos.cl_runtime_tcp_counts(runtime.ptr, counts)
    return int(counts.accepted)


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
