"""A wire in user space between two NICs: memory links, and two Linux network stacks over AF_XDP."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest
from cltest import wait_until

from corelane.drivers.linux import netns as spaces
from corelane.drivers.nic.af_xdp.af_xdp import AfXdp
from corelane.drivers.nic.link.link import Link
from corelane.drivers.nic.link.wire import Wire
from corelane.drivers.nic.memory import memory_link
from corelane.drivers.nic.nic import BURST, Nic
from corelane.runtime.clock import VirtualClock
from corelane.runtime.errors import CorelaneError

MS = 1_000_000


def numbered(count: int, length: int = 64) -> list[bytes]:
    return [i.to_bytes(4, "big") + bytes(length - 4) for i in range(count)]


@contextlib.contextmanager
def stepped(there: Link | None = None, back: Link | None = None) -> Iterator[tuple[Nic, Nic, Wire, VirtualClock]]:
    """Two memory links joined by a wire on a virtual clock."""
    clock = VirtualClock()
    (a, near), (far, b) = memory_link((2, 2), clock=clock), memory_link(clock=clock)
    with a, b, Wire(near, far, there=there, back=back) as wire:
        yield a, b, wire, clock


def test_frames_go_both_ways_at_once():
    with stepped() as (a, b, wire, _):
        assert a.send(numbered(40)) == 40
        assert b.send(numbered(30)) == 30
        assert wire.step() > 0
        assert b.recv() == numbered(40)
        assert [f for queue in (0, 1) for f in a.recv(queue=queue)] == numbered(30)
        assert wire.step() == 0
        assert a.buffers_free == a.buffers
        assert b.buffers_free == b.buffers


def test_each_way_has_its_own_link():
    with stepped(Link(delay_us=1000), Link(rate_bps=8e6)) as (a, b, wire, clock):
        assert a.send(numbered(1)) == 1
        assert b.send(numbered(3, 1000)) == 3
        wire.step()
        assert b.recv() == []
        clock.advance(MS)
        wire.step()
        assert b.recv() == numbered(1)
        assert len(a.recv() + a.recv(queue=1)) == 1
        clock.advance(2 * MS)
        wire.step()
        assert len(a.recv() + a.recv(queue=1)) == 2
        assert wire.counts("there").delivered == 1
        assert wire.counts("back").delivered == 3


def test_a_full_end_holds_frames_up_and_loses_none():
    clock = VirtualClock()
    (a, near), (far, b) = memory_link(clock=clock), memory_link(clock=clock, ring_slots=8)
    with a, b, Wire(near, far) as wire:
        assert a.send(numbered(100)) == 100
        wire.step()
        got = b.recv()
        assert len(got) == 8
        assert wire.counts("there").held == BURST - 8
        while wire.step():
            got += b.recv()
        assert got == numbered(100)


def test_a_frame_too_long_for_the_other_end_is_counted():
    clock = VirtualClock()
    (a, near), (far, b) = memory_link(clock=clock), memory_link(clock=clock, mtu=500)
    with a, b, Wire(near, far) as wire:
        assert a.send([bytes(1000), bytes(100)]) == 2
        wire.step()
        assert [len(frame) for frame in b.recv()] == [100]
        assert wire.counts("there").dropped_long == 1


def test_a_thread_moves_it_and_wakes_for_what_is_due():
    """Ends that sleep are woken, and frames come after their delay, not before."""
    (a, near), (far, b) = memory_link(), memory_link()
    link = Link(delay_us=3000)
    with a, b, Wire(near, far, there=link, back=link).start() as wire:
        for i in range(5):
            time.sleep(0.01)  # it sleeps by then
            began = time.monotonic()
            assert a.send(i.to_bytes(1, "big") * 60) == 1
            assert b.recv(timeout_s=20) == [i.to_bytes(1, "big") * 60]
            assert time.monotonic() - began >= 0.003
            assert b.send(bytes(60)) == 1
            assert len(a.recv(timeout_s=20)) == 1
        assert wire.counts("there").delivered == 5
        wait_until(lambda: a.buffers_free == a.buffers)


def ping(space: spaces.Namespace, target: str, count: int) -> str:
    """What `ping` says in the end."""
    with space.entered():
        command = ["ping", "-c", str(count), "-i", "0.02", "-W", "2", target]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return done.stdout + done.stderr


@pytest.fixture
def two_linuxes(netns):
    """Function(Link, Link): two namespaces whose veths' other ends a wire joins: addresses and the wire."""
    opened = contextlib.ExitStack()

    def make(there: Link, back: Link) -> tuple[spaces.Interface, spaces.Interface, Wire]:
        hosts, nics = [], []
        for number in (1, 2):
            host, end = netns.link(static_arp=False)
            with end.namespace.entered():
                nics.append(AfXdp(end.name, steer="all"))
            host.namespace.ip("address", "flush", "dev", host.name)
            host.namespace.ip("address", "add", f"10.99.0.{number}/24", "dev", host.name)
            hosts.append(host)
        wire = opened.enter_context(Wire(*nics, there=there, back=back))
        return hosts[0], hosts[1], wire.start()

    with opened:
        yield make


@pytest.mark.root
def test_two_linux_stacks_meet_over_a_wire(two_linuxes):
    """ARP and ping, whose times have both delays in them; then datagrams, of which the link loses some."""
    near, far, wire = two_linuxes(Link(delay_us=4000), Link(delay_us=6000, loss=0.3))
    said = ping(near.namespace, "10.99.0.2", 10)
    assert " 0 received" not in said, said
    times_ms = [float(word.removeprefix("time=")) for word in said.split() if word.startswith("time=")]
    assert times_ms
    assert min(times_ms) >= 10.0
    with near.namespace.entered():
        client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with far.namespace.entered():
        server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with client, server:
        server.bind(("10.99.0.2", 9000))
        server.settimeout(60)
        for i in range(20):
            client.sendto(i.to_bytes(2, "big"), ("10.99.0.2", 9000))
        assert [server.recv(10) for _ in range(20)] == [i.to_bytes(2, "big") for i in range(20)], "none is lost there"
    back = wire.counts("back")
    assert back.offered == back.delivered + back.dropped_lost + back.held


def test_it_is_closed_once_and_says_so():
    (a, near), (far, b) = memory_link(), memory_link()
    with a, b:
        wire = Wire(near, far).start()
        with pytest.raises(CorelaneError, match="belongs to the NIC that wraps it"):
            near.recv()
        with pytest.raises(CorelaneError, match="a thread moves the wire already"):
            wire.start()
        with pytest.raises(CorelaneError, match="a thread moves it"):
            wire.step()
        with pytest.raises(CorelaneError, match="expected one of 'there', 'back'"):
            wire.counts("up")  # type: ignore[arg-type]
        wire.close()
        wire.close()
        with pytest.raises(CorelaneError, match="closed"):
            wire.step()
        assert a.gone
        assert b.gone
