"""TCP with Linux over a bad wire, on which frames are lost, doubled, overtaken and delayed, and bits flip: every byte
comes.

Both sides open, both send. What they reach is printed and not judged. `make soak` prints what Linux reaches with Linux
over the same wire, too: by the rule of congestion that we have, and by what this machine uses else.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cltest import soak

from corelane.drivers.linux import netns
from corelane.drivers.linux.ethtool import offloads_off
from corelane.drivers.nic.fault import FaultNic, Faults
from corelane.drivers.nic.link.link import Link, LinkNic
from corelane.drivers.nic.link.wire import Wire
from corelane.drivers.nic.nic import Nic
from corelane.drivers.nic.tap.tap import Tap

pytestmark = pytest.mark.root

# Loss, least and longest delay in us; bytes of each transfer in make test (0: none there) and in make soak.
WIRES = {
    "0.1 %": (0.001, 0, 0, 2 << 20, 256 << 20),
    "0.1 %, 10 ms": (0.001, 5_000, 10_000, 0, 32 << 20),
    "0.1 %, 100 ms": (0.001, 80_000, 100_000, 0, 4 << 20),
    "1 %": (0.01, 0, 0, 0, 128 << 20),
    "1 %, 10 ms": (0.01, 0, 10_000, 200_000, 8 << 20),
    "1 %, 10 ms, in order": (0.01, 5_000, 5_000, 0, 8 << 20),
    "1 %, 100 ms": (0.01, 0, 100_000, 0, 1 << 20),
    "5 %": (0.05, 0, 0, 100_000, 8 << 20),
    "5 %, 10 ms": (0.05, 5_000, 10_000, 0, 1 << 20),
    "5 %, 100 ms": (0.05, 0, 100_000, 0, 200_000),
}


OUR_RULE = "cubic"


def rule_of(s: socket.socket) -> str:
    """Of congestion, by which a socket of Linux sends."""
    return s.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()


def link(wire: str) -> Link:
    loss, least, longest, _, _ = WIRES[wire]
    reorder = 0 if "in order" in wire else 0.01
    return Link(loss=loss, delay_us=least, jitter_us=longest - least, reorder=reorder)


def other(wire: str) -> Faults:
    """What befalls frames besides."""
    return Faults(duplicate=0 if "in order" in wire else 0.01, corrupt=0.001)


def bad(wire: str, seed: int) -> Callable[[Nic], Nic]:
    """Wraps a NIC: one direction of its link loses and delays like the other."""
    return lambda nic: FaultNic(
        LinkNic(nic, rx=link(wire), tx=link(wire), seed=seed), rx=other(wire), tx=other(wire), seed=seed + 1
    )


def take(s: socket.socket) -> tuple[int, int]:
    """Bytes, and their CRC-32, up to the end."""
    size = crc = 0
    while part := s.recv(1 << 20):
        size, crc = size + len(part), zlib.crc32(part, crc)
    return size, crc


def at_once(*transfers: Callable[[], None]) -> None:
    """Run each in a thread; raise what one of them raised."""
    failed: list[BaseException] = []

    def guarded(transfer: Callable[[], None]) -> None:
        try:
            transfer()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(transfer,)) for transfer in transfers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def exchange(ours: Any, size: int) -> None:
    """Linux sends and takes over connections that it opened, and over such that we did."""
    data = ours.pattern(0, size)
    expected = size, zlib.crc32(data)

    def sends(s: socket.socket) -> None:
        s.sendall(data)
        s.shutdown(socket.SHUT_WR)
        report = b"".join(iter(lambda: s.recv(100), b"")).split()
        assert (int(report[0]), int(report[1], 16)) == expected
        ours.rate("Linux sends, of three at once", size, since)

    def takes(s: socket.socket, what: str = "we send, of three at once") -> None:
        assert take(s) == expected
        ours.rate(what, size, since)

    since = time.monotonic()
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(ours.socket(listens=4))
        ours.open("sink", listener.getsockname()[1])
        to_us = stack.enter_context(listener.accept()[0])
        into, out = (stack.enter_context(ours.socket(ours.address(kind))) for kind in ("sink", "source"))
        for s in (to_us, into, out):
            s.settimeout(300.0)
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, OUR_RULE.encode())
        out.sendall(b"%d\n" % size)
        at_once(lambda: sends(to_us), lambda: sends(into), lambda: takes(out))
    assert ours.result(timeout_s=120.0) == (0, *expected)
    with ours.socket(listens=4) as listener:
        ours.open("source", listener.getsockname()[1], size=size)
        with listener.accept()[0] as s:
            s.settimeout(300.0)
            since = time.monotonic()
            takes(s, "we send, alone")
    assert ours.result(timeout_s=120.0)[:2] == (0, size)


@contextlib.contextmanager
def two_of_linux(wire: str, seed: int) -> Iterator[tuple[netns.Namespace, netns.Namespace]]:
    """Two namespaces at 10.99.0.1 and .2 with the same wire between them, in user space."""
    with netns.namespace("a") as a, netns.namespace("b") as b:
        nics: list[Nic] = []
        for i, space in enumerate((a, b)):
            with space.entered():
                nics.append(Tap(address=f"10.99.0.{i + 1}/24", ifname="clw"))
                offloads_off("clw")  # else the wire loses 64 KiB at a time, which is one loss for the sender
        macs = [space.ip("-brief", "link", "show", "dev", "clw").split()[2] for space in (a, b)]
        for space, far, mac in ((a, "10.99.0.2", macs[1]), (b, "10.99.0.1", macs[0])):
            space.ip("neigh", "replace", far, "lladdr", mac, "dev", "clw", "nud", "permanent")
        faulty = FaultNic(nics[1], rx=other(wire), tx=other(wire), seed=seed)
        with Wire(nics[0], faulty, there=link(wire), back=link(wire), seed=seed).start():
            yield a, b


def linux_to_linux(wire: str, seed: int, data: bytes, rule: str = "") -> str:
    """Prints what Linux reaches by a rule of congestion, "": its own. Returns which it was."""
    with two_of_linux(wire, seed) as (a, b):
        with b.entered():
            listener = socket.create_server(("10.99.0.2", 0))
        with listener, contextlib.ExitStack() as stack:
            with a.entered():
                s = stack.enter_context(socket.socket())
            s.settimeout(300.0)
            if rule:
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, rule.encode())
            used = rule_of(s)
            s.connect(listener.getsockname())
            peer = stack.enter_context(listener.accept()[0])
            since = time.monotonic()

            def sends() -> None:
                s.sendall(data)
                s.shutdown(socket.SHUT_WR)

            def takes() -> None:
                assert take(peer) == (len(data), zlib.crc32(data))

            at_once(sends, takes)
        print(f"Linux to Linux, alone, {used}: {len(data) * 8 / (time.monotonic() - since) / 1e6:.2f} Mb/s")
    return used


CASES = [pytest.param("tap", w, marks=pytest.mark.soak(short=bool(of[3]), takes_s=60)) for w, of in WIRES.items()]
CASES += [pytest.param("af_xdp", w, marks=pytest.mark.soak(takes_s=60)) for w in ("0.1 %", "1 %, 10 ms", "5 %, 100 ms")]


@pytest.mark.parametrize(("nic", "wire"), CASES)
def test_every_byte_comes(ours_behind: Callable[..., Any], nic: str, wire: str, seed: int) -> None:
    size = soak.examples(*WIRES[wire][3:])
    print(f"\n{wire}: lost, with flipped bits, and with doubles and overtaking if it does not say otherwise:")
    with ours_behind(nic, 1, bad(wire, seed)) as ours:
        exchange(ours, size)
        assert ours.errors()[0] == 0
        counts = ours.counts()
        print(f"resent {counts.resent}, time-outs {counts.timeouts}, out of order {counts.out_of_order}")
        assert counts.resent + counts.out_of_order > 0
    if soak.SOAKS and linux_to_linux(wire, seed, ours.pattern(0, size)) != OUR_RULE:
        linux_to_linux(wire, seed, ours.pattern(0, size), OUR_RULE)
