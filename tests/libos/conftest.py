"""Fixtures: a runtime in embedded mode on one end of a memory link, whose other end is the test's; and an iokernel with
such a link for an uplink."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from cltest import wait_until
from cltest.outside import Outside
from cltest.packets import Datagram, Host, read_datagram

from corelane.drivers.nic.memory import memory_link
from corelane.drivers.nic.nic import Nic
from corelane.iokernel import Iokernel
from corelane.libos import Runtime, RuntimeStats

SERVER = Host("02:00:00:00:00:01", "10.0.0.1")
CLIENT = Host("02:00:00:00:00:02", "10.0.0.2")


@dataclass
class Served:
    """A runtime and the wire to it. `end` is the client's NIC with one queue."""

    runtime: Runtime
    nic: Nic
    end: Nic

    def send(self, *frames: bytes) -> None:
        """Put whole frames on the wire."""
        assert self.end.send(list(frames)) == len(frames)

    def receive(self, n: int = 1, deadline_s: float = 60.0) -> list[bytes]:
        """The next n frames from the runtime."""
        out: list[bytes] = []

        def enough() -> bool:
            out.extend(self.end.recv(n - len(out)))
            return len(out) >= n

        wait_until(enough, deadline_s, lambda: f"{n} frames, have {len(out)}: {self.runtime.stats()}")
        return out

    def ask(self, payload: bytes, port: int = 9000, sport: int = 5555) -> bytes:
        """Send one request and return the reply's payload."""
        self.send(CLIENT.datagram(SERVER, payload, sport, port))
        reply = read_datagram(self.receive()[0])
        assert (reply.src, reply.dst) == (SERVER.ip, CLIENT.ip)
        assert (reply.sport, reply.dport) == (port, sport)
        return reply.payload

    def datagrams(self, n: int) -> list[Datagram]:
        """The next n frames, which are right datagrams."""
        return [read_datagram(f) for f in self.receive(n)]

    def settled(self, condition: Callable[[RuntimeStats], bool]) -> RuntimeStats:
        """Statistics once a condition holds."""
        return self.runtime.wait_until(condition, 60.0)

    def done_with(self, n: int) -> RuntimeStats:
        """Statistics once n requests have left their handlers, or were dropped: `handled` counts them before."""
        ends = ("replied", "unanswered", "handler_errors")
        return self.settled(lambda s: sum(s.net[end] for end in ends) + sum(s.dropped.values()) == n)


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    """`served = serve(handler, ..., kthreads=1, **Runtime options)`: started, announced, and checked at the end.

    before: what is done with the runtime before it starts.
    The check: it stops, every frame is accounted for, and every buffer is back.
    """
    made: list[tuple[Served, int]] = []

    def start(
        *handlers: Any,
        kthreads: int = 1,
        link: dict[str, Any] | None = None,
        before: Callable[[Runtime], object] = lambda _: None,
        **options: Any,
    ) -> Served:
        nic, end = memory_link(
            (kthreads, 1), ipv4=(SERVER.ip, CLIENT.ip), ipv4_prefix=24, mac=(SERVER.mac, CLIENT.mac), **(link or {})
        )
        full = nic.buffers_free
        runtime = Runtime(nic=nic, kthreads=kthreads, **options)
        served = Served(runtime, nic, end)
        made.append((served, full))
        for handler in handlers:
            runtime.bind(handler)
        before(runtime)
        runtime.start()
        (hello,) = served.receive()
        assert hello[12:14] == b"\x08\x06", "the first frame announces our address (RFC 5227)"
        return served

    yield start
    for served, full in made:
        assert served.runtime.stop() == 0, "no uthread is left"
        while served.end.recv():
            pass
        for queue in range(served.nic.queues):  # what came after the stop is the NIC's
            while served.nic.recv(queue=queue):
                pass
        stats = served.runtime.stats()
        assert stats.balanced, stats
        net = stats.net
        ended = net["replied"] + net["unanswered"] + net["handler_errors"]
        assert net["handled"] == ended, stats
        assert net["delivered"] == net["handled"] + net["unhandled"] + net["to_sockets"] + net["learned"], stats
        assert net["tx_dropped_full"] == net["tx_dropped_gone"] == 0, stats
        served.runtime.close()
        assert served.nic.buffers_free == full, "a buffer leaked"
        served.nic.close()
        served.end.close()


@pytest.fixture
def outside(socket_path: str) -> Iterator[tuple[Outside, str, Callable[[], Iokernel]]]:
    """A wire, the path of the control socket, and a function that starts an iokernel there."""
    started: list[Iokernel] = []
    inner, outer = memory_link()

    def start(**options: Any) -> Iokernel:
        kernel = Iokernel(socket_path, uplinks=[inner] if not started else [], poll="adaptive", **options)
        kernel.start()
        started.append(kernel)
        return kernel

    yield Outside(outer), socket_path, start
    for kernel in started:
        kernel.stop()
    inner.close()
    outer.close()
