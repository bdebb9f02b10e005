"""What an application counts can be seen from outside while it happens: drops by reason, handlers that fail, and
numbers of its own."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cltest import wait_until
from cltest.control import connect, hello, kind_of
from cltest.packets import Host

from corelane import libos
from corelane.drivers.nic.memory import memory_link
from corelane.iokernel import Iokernel
from corelane.iokernel._native import ffi, lib
from corelane.libos.stats import RuntimeStats

CLIENT = Host("02:00:00:00:00:99", "10.77.0.99")

Values = dict[str, int]


def fails(request: Any, reply: Any) -> int:
    """Returns an error, raises, does not answer, or answers."""
    if request[:1] == b"e":
        return -1
    if request[:1] == b"x":
        raise ValueError("a planted fault")
    return 0 if request[:1] == b"0" else 1


@pytest.fixture
def place(socket_path: str) -> Iterator[tuple[Iokernel, Any]]:
    """An iokernel, and the wire behind its uplink."""
    inner, outer = memory_link()
    with inner, outer, Iokernel(socket_path, uplinks=[inner]) as io:
        yield io, outer


def published(io: Iokernel) -> Values:
    """What the one application of an iokernel publishes."""
    (app,) = io.stats()["apps"]
    return app["counters"]["values"] if app["counters"] else {}


def wait_for(io: Iokernel, wanted: Values) -> Values:
    """Until these are published; all that is."""

    def there() -> Values | None:
        values = published(io)
        return values if wanted.items() <= values.items() else None

    return wait_until(there, 60, lambda: f"{wanted} of {published(io)}")


def test_drops_and_failures_are_seen_while_it_runs(place: tuple[Iokernel, Any]) -> None:
    io, wire = place
    with libos.Runtime(io.socket_path, name="app") as runtime:
        runtime.bind(libos.udp(9000, compiled=False)(fails))
        runtime.start()
        server = Host(runtime.mac, runtime.address)
        for payload in (b"e", b"x", b"x", b"0", b"0", b"0", b"1"):
            wire.send(CLIENT.datagram(server, payload))
        wire.send(CLIENT.datagram(server, b"?", dport=9001))
        garbled = bytearray(CLIENT.datagram(server, b"?"))
        garbled[-1] ^= 0xFF
        wire.send(bytes(garbled))
        counted = {"handled": 7, "handler_errors": 3, "unanswered": 3, "replied": 1}
        values = wait_for(io, counted | {"dropped_udp_no_port": 1, "dropped_udp_checksum": 1})
        assert values["sched_switches"] > 0
        assert 0 not in values.values()


def test_names_are_those_of_the_statistics(place: tuple[Iokernel, Any]) -> None:
    io, _ = place
    with libos.Runtime(io.socket_path, name="app") as runtime:
        stats: RuntimeStats = runtime.start().stats()
        known = {*stats.net, *(f"dropped_{r}" for r in stats.dropped), *(f"sched_{n}" for n in stats.sched)}
        assert all(len(name) < 32 for name in known)
        assert set(wait_for(io, {"tx_frames": 1})) <= known


def test_an_application_adds_numbers_of_its_own(place: tuple[Iokernel, Any], caplog: pytest.LogCaptureFixture) -> None:
    io, _ = place
    numbers: list[Callable[[], dict[str, int]]] = [lambda: {"hits": 3, "misses": 2**64 - 1, "Not-A-Name": 1}]
    with libos.Runtime(io.socket_path, name="app") as runtime:
        runtime.publish(lambda: numbers[0]())
        values = wait_for(io, {"hits": 3, "misses": 2**64 - 1})
        assert "Not-A-Name" not in values
        numbers[0] = lambda: {f"n{i}": i + 1 for i in range(1000)}
        assert len(wait_for(io, {"n0": 1})) <= lib.CL_ARENA_MAX_COUNTERS
        numbers[0] = lambda: 1 // 0  # type: ignore[return-value]
        wait_until(lambda: not any(name.startswith("n") for name in published(io)))
        runtime.publish(lambda: {"clock_ahead": -1, "hits": 4})  # the negative one is no reason to hide the other
        wait_for(io, {"hits": 4})
        runtime.publish(None)
        wait_until(lambda: "hits" not in published(io))
    assert caplog.text.count("ZeroDivisionError") == 1


def test_an_application_that_publishes_garbage_is_shown_without_it(place: tuple[Iokernel, Any]) -> None:
    io, _ = place
    with connect(io.socket_path) as sock:
        sock.sendall(hello(b"liar"))
        message, descriptors, _flags, _address = socket.recv_fds(sock, 4096, lib.CL_CONTROL_FDS)
        assert kind_of(message) == lib.CL_CONTROL_ACCEPT
        accept = ffi.from_buffer("struct cl_control_accept *", message)
        assert io.stats()["apps"][0]["counters"] is None, "it has said nothing"
        at = accept.layout.rx_offset - ffi.sizeof("struct cl_arena_counters")
        names = [b"good", b"\xff\xfe", b"", b"a b", b'a"b', b"x" * 32, b"_x", b"9", b"{}"]
        body = b"".join(struct.pack("=32sQ", name, 7) for name in names)
        for n in (len(names), 2**32 - 1):
            os.pwrite(descriptors[0], struct.pack("=IIQ", n, 0, 1) + body, at)
            assert published(io) == {"good": 7}
        for fd in descriptors:
            os.close(fd)
